"""Printed loops read back equal and have the layout of the seed."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from laws import tried

from llc.frontend.loop.fsm_printer import print_fsm
from llc.frontend.loop.paradigms import to_fsm
from llc.frontend.loop.reader import read_loop
from llc.frontend.loop.schema import Loop
from llc.frontend.source.files import text_source
from llc.frontend.source.yaml_tree import read_document

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)
WORDY = st.one_of(TEXT, st.text(alphabet="ab \n\t#:-'\"|>é\x85\u2028\x7f\ufeff\\", max_size=20))
FILLED = WORDY.filter(lambda text: text.strip() != "")
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), WORDY
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDY, inner, max_size=3)),
    max_leaves=8,
)
NAMES = st.sampled_from(["a", "b", "yes", "null", "12", "the end", "é", '"', "x" * 200])
SECONDS = st.one_of(st.integers(1, 10**6), st.floats(0.001, 1e6))
EVALUATES = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("exit_code")}, optional={"success": st.lists(st.integers(0, 255))}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("output_numeric"),
            "operator": st.sampled_from(["eq", "ge"]),
            "target": st.integers(),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("output_json"), "path": FILLED, "target": JSON}, optional={"operator": st.just("ne")}
    ),
    st.fixed_dictionaries(
        {"type": st.just("output_contains"), "pattern": FILLED}, optional={"negate": st.booleans()}
    ),
    st.fixed_dictionaries(
        {"type": st.just("convergence"), "target": st.just("${context.t}")},
        optional={"tolerance": st.just(0)},
    ),
    st.fixed_dictionaries(
        {"type": st.just("llm_structured")},
        optional={"schema": st.dictionaries(WORDY, JSON, max_size=3), "min_confidence": st.floats(0, 1)},
    ),
)
STATES = st.fixed_dictionaries(
    {},
    optional={
        "action": FILLED,
        "action_type": st.sampled_from(["shell", "slash"]),
        "capture": FILLED,
        "evaluate": EVALUATES,
        "route": st.dictionaries(WORDY.filter(re.compile(r"\S(?:.*\S)?").fullmatch), FILLED, max_size=3),
        "on_yes": FILLED,
        "on_blocked": FILLED,
        "on_error": FILLED,
        "next": FILLED,
        "terminal": st.booleans(),
        "status": st.sampled_from(["success", "failure"]),
        "timeout": SECONDS,
        "on_unknown": st.sampled_from(["rerun", "ask", "fail"]),
    },
)
LOOPS = st.fixed_dictionaries(
    {"name": FILLED, "initial": FILLED, "states": st.dictionaries(NAMES, STATES, max_size=3)},
    optional={
        "description": WORDY,
        "context": st.dictionaries(WORDY, JSON, max_size=3),
        "scope": st.lists(FILLED, min_size=1, max_size=3),
        "llm": st.fixed_dictionaries(
            {}, optional={"enabled": st.booleans(), "max_tokens": st.integers(1, 999)}
        ),
        "agent": st.fixed_dictionaries({}, optional={"args": st.lists(FILLED, max_size=2)}),
        "budget": st.fixed_dictionaries({}, optional={"usd": st.floats(0.01, 100)}),
        "max_iterations": st.integers(1, 10**6),
        "backoff": SECONDS,
        "maintain": st.booleans(),
        "on_error": FILLED,
    },
)


def as_yaml(data: object) -> str:
    """JSON text that is also YAML: characters that YAML rejects are escaped; there are no surrogate pairs."""
    written = json.dumps(data, ensure_ascii=False)
    return re.sub("[\x7f-\uffff]", lambda found: f"\\u{ord(found[0]):04x}", written)


def load(text: str) -> Loop:
    spec, _, diagnostics = read_loop(text_source(text))
    assert [finding for finding in diagnostics if finding.is_error] == []
    assert spec is not None
    return to_fsm(spec)


@settings(max_examples=tried(50), deadline=None)
@given(LOOPS)
def test_a_printed_loop_reads_back_equal(data: dict[str, object]) -> None:
    """For any names and texts."""
    loop = load(as_yaml(data))
    printed = print_fsm(loop)
    assert load(printed) == loop
    assert print_fsm(load(printed)) == printed


@settings(max_examples=tried(50), deadline=None)
@given(JSON)
def test_context_round_trips(value: object) -> None:
    """Lists, mappings and unusual texts in `context` are read back unchanged."""
    loop = Loop(name="x", initial="a", states={}, context={"k": value})
    document = read_document(text_source(print_fsm(loop)))
    assert document.diagnostics == []
    assert document.root is not None
    assert document.plain(document.root)["context"] == {"k": value}


def test_a_script_prints_as_a_block() -> None:
    """An action of several lines is printed as a block scalar."""
    loop = load(
        "name: x\ninitial: a\nstates:\n  a:\n    action: |\n      set -e\n\n      make\n    next: a\n"
    )
    assert "    action: |\n      set -e\n\n      make\n    next:" in print_fsm(loop)


def test_explicit_default_values_are_printed() -> None:
    text = "name: x\ninitial: a\nstates:\n  a:\n    terminal: true\nmax_iterations: 50\n"
    assert print_fsm(load(text)).endswith("max_iterations: 50\n")


def test_shorthand_prints_in_normal_form() -> None:
    """`on_yes` is printed as `on_success`, `on_blocked` as a route."""
    text = "name: x\ninitial: a\nstates: {a: {action: /ll:x, on_yes: a, on_blocked: a}}"
    assert print_fsm(load(text)).endswith('    route:\n      blocked: "a"\n    on_success: "a"\n')
