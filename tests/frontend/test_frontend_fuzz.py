"""Any text gives a loop or diagnostics with positions in that text, and never another exception."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import tried

from llc.frontend.loop.checks import check
from llc.frontend.loop.evaluator_schema import EVALUATORS
from llc.frontend.loop.fsm_printer import print_fsm
from llc.frontend.loop.paradigms import PARADIGMS, to_fsm
from llc.frontend.loop.reader import read_loop
from llc.frontend.loop.schema import LoopSettings, StateSpec
from llc.frontend.source.files import text_source
from llc.frontend.source.schema import fields_of
from llc.ir.diagnostics import render_all
from llc.ir.spans import Span

KEYS = sorted(
    {
        key
        for cls in (*PARADIGMS.values(), *EVALUATORS.values(), StateSpec, LoopSettings)
        for key in fields_of(cls)
    }
    | {"paradigm", "type", "on_yes", "on_no", "on_blocked", "_", "_error", "success", "a", "b", "<<"}
)
TEMPLATES = [
    "${captured.a.output}",
    "${context.a}",
    "echo '${prev.output}'",
    "${env.HOME:default=}",
    "${raw:result.x}",
]
ODDITIES = ["a", "b", "$current", "true", "/ll:x", "eq", "le", "[", "(?", "${", "$${x", "é😀"]
WORDS = st.sampled_from([*PARADIGMS, *EVALUATORS, *ODDITIES, *TEMPLATES])
SCALARS = st.one_of(
    WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just(10**400)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=25,
)
TARGETS = st.sampled_from(["a", "b", "c", "$current", "${context.x}", "${captured.y.output}", "nowhere"])
EVALUATES = st.fixed_dictionaries(
    {"type": st.sampled_from([*EVALUATORS, "nonsense"])},
    optional={
        "operator": st.sampled_from(["eq", "lt", "about"]),
        "target": st.one_of(st.integers(-3, 3), WORDS),
        "path": st.sampled_from([".a", ".[", "error", "${context.x}"]),
        "pattern": WORDS,
        "source": WORDS,
        "schema": VALUES,
        "previous": WORDS,
    },
)
STATES = st.fixed_dictionaries(
    {},
    optional={
        "action": st.one_of(WORDS, st.text(max_size=30)),
        "capture": st.sampled_from(["a", "y", "not so"]),
        "evaluate": EVALUATES,
        "route": st.dictionaries(
            st.sampled_from(["success", "failure", "_", "_error", "error", "target"]), TARGETS
        ),
        "on_success": TARGETS,
        "on_failure": TARGETS,
        "on_error": TARGETS,
        "on_yes": TARGETS,
        "on_blocked": TARGETS,
        "next": TARGETS,
        "terminal": st.booleans(),
        "on_maintain": TARGETS,
        "status": st.sampled_from(["success", "failure"]),
        "timeout": st.one_of(st.integers(-1, 5), SCALARS),
    },
)
LOOPS = st.fixed_dictionaries(
    {
        "name": st.one_of(st.just("x"), SCALARS),
        "initial": TARGETS,
        "states": st.dictionaries(st.sampled_from(["a", "b", "c", "d e", "$x"]), STATES, max_size=4),
    },
    optional={
        "context": st.dictionaries(st.sampled_from(["a", "x"]), st.one_of(WORDS, SCALARS)),
        "on_error": TARGETS,
        "maintain": st.booleans(),
        "llm": st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "model": WORDS}),
        "paradigm": st.sampled_from([*PARADIGMS, "fms"]),
        "scope": st.lists(WORDS),
    },
)


def check_frontend(text: str) -> None:
    """Read and check a text as `llc validate` does, and check all outputs."""
    source = text_source(text)
    spec, document, diagnostics = read_loop(source)
    if spec is not None:
        loop = to_fsm(spec)
        diagnostics += check(loop, document)
        print_fsm(loop)
    assert spec is not None or diagnostics
    lines = text.split("\n")
    for diagnostic in diagnostics:
        assert diagnostic.id == diagnostic.id.lower()
        if isinstance(diagnostic.span, Span):
            assert 1 <= diagnostic.span.line <= diagnostic.span.end_line <= len(lines)
            assert 1 <= diagnostic.span.column <= len(lines[diagnostic.span.line - 1]) + 1
    render_all(diagnostics, [source])


@settings(max_examples=tried(100), deadline=None)
@given(st.text())
def test_any_text_is_accepted_or_rejected(text: str) -> None:
    """No text makes the frontend raise another exception."""
    check_frontend(text)


@settings(max_examples=tried(100), deadline=None)
@given(st.text(alphabet=" \n\t-:#[]{},&*!|>'\"%@`ab1~?.$\\", max_size=60))
def test_any_yaml_like_text_is_accepted_or_rejected(text: str) -> None:
    """No arrangement of YAML's own characters makes the frontend raise another exception."""
    check_frontend(text)


@settings(max_examples=tried(40), deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8))
def test_wrong_values_of_known_keys_are_diagnostics(data: dict[str, object]) -> None:
    check_frontend(json.dumps(data))


@settings(max_examples=tried(40), deadline=None)
@given(LOOPS)
def test_any_loop_of_the_right_shape_is_checked(data: dict[str, object]) -> None:
    """Nearly valid loops are checked to the end."""
    check_frontend(json.dumps(data, ensure_ascii=False))


@pytest.mark.parametrize(
    "text", ["", "\n", "---\n", "...", "a", "[]", "{}", "- a", "? a", "a: b: c", "\ufeff", "!!"]
)
def test_documents_without_a_loop_are_rejected(text: str) -> None:
    check_frontend(text)
