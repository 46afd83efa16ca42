"""Compile options: their types, and the cache keys made from them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llc as package
from llc.ir.compile_options import CompileOptions
from llc.runtime.project import image_cache
from llc.runtime.project.load import compile_options, context_option
from llc.runtime.project.options import Values, recorded_options

Llc = Callable[..., Any]

DEEP = """\
(define-syntax twice (syntax-rules () ((_ x) (list x x))))
(twice (twice (twice 1)))
"""
CONTEXT = """\
name: l
initial: a
context: {v: 1}
states:
  a: {action: "echo ${context.v}", capture: said, next: done}
  done: {terminal: true}
"""
# A value of each option that differs from its default.
CHANGED: dict[str, Any] = {
    "arguments": {"x": 1},
    "context": {"x": 1},
    "declare": ("t",),
    "default_model": "m",
    "dialect": "little-loops",
    "folder": "f",
    "links": (("f", "s", "l"),),
    "llm_enabled": False,
    "llm_model": "m",
    "max_expansions": 1,
    "max_iterations": 1,
    "max_nesting": 1,
}


@pytest.mark.parametrize("name", [name for name in CompileOptions.field_names if name != "project"])
def test_every_option_is_part_of_the_cache_key(name: str) -> None:
    """A new option needs a row in `CHANGED` and must be part of the key."""
    assert CompileOptions(**{name: CHANGED[name]}).key() != CompileOptions().key()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"context": {"a=b": "c"}}, {"context": {"a": "b=c"}}),
        ({"context": {"v": "7"}}, {"context": {"v": 7}}),
        ({"context": {"x": 1}}, {"arguments": {"x": 1}}),
        ({"llm_model": "None"}, {}),
        ({"declare": ("a", "b")}, {"declare": ("a, b",)}),
    ],
)
def test_different_options_have_different_keys(first: dict[str, Any], second: dict[str, Any]) -> None:
    """The key distinguishes types, names and separators."""
    assert CompileOptions(**first).key() != CompileOptions(**second).key()


def test_options_are_read_only() -> None:
    """A hashed value cannot change."""
    with pytest.raises(AttributeError):
        CompileOptions().max_iterations = 3


def test_cache_entries_depend_on_the_limits(llc: Llc, tmp_path: Path) -> None:
    """`--max-expansions` and `--max-nesting` apply to a flow that ran without them before."""
    (tmp_path / ".loops" / "deep.sexp").write_text(DEEP)
    assert llc("run", "deep", "-q").returncode == 0
    limited = llc("run", "deep", "-q", "--max-expansions", "1")
    assert (limited.returncode, "expansion" in limited.stderr) == (2, True)
    limited = llc("run", "deep", "-q", "--max-nesting", "2")
    assert (limited.returncode, "nested" in limited.stderr) == (2, True)


def test_batch_compiles_again_for_another_limit(llc: Llc, tmp_path: Path) -> None:
    (tmp_path / ".loops" / "deep.sexp").write_text(DEEP)
    assert llc("batch", "deep", "-q").returncode == 0
    assert llc("batch", "deep", "-q", "--max-expansions", "1").returncode == 2


def test_image_is_compiled_again_for_another_limit(llc: Llc, tmp_path: Path) -> None:
    (tmp_path / ".loops" / "deep.sexp").write_text(DEEP)
    assert llc("compile", "deep", "-o", "deep.llb").returncode == 0
    assert llc("run", "deep.llb", "-q", "--max-expansions", "1").returncode == 2


def test_changed_configuration_is_checked_again(llc: Llc, tmp_path: Path) -> None:
    """A removed agent is an error, although the loop itself is in the cache."""
    config = tmp_path / ".loops" / "config.yaml"
    config.write_text('agents:\n  mine: {argv: ["true"]}\n')
    loop = "name: l\ninitial: a\nagent: mine\nstates:\n  a: {terminal: true}\n"
    (tmp_path / ".loops" / "l.yaml").write_text(loop)
    assert llc("run", "l", "-q").returncode == 0
    config.write_text("{}\n")
    assert "unknown-agent" in llc("run", "l", "-q").stderr


def test_change_in_any_module_invalidates_cache_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a change in a sub-package."""
    (tmp_path / "frontend" / "loop").mkdir(parents=True)
    module = tmp_path / "frontend" / "loop" / "m.py"
    module.write_text("")
    monkeypatch.setattr(image_cache, "_PACKAGE", os.fspath(tmp_path))
    before = image_cache.entry_key(b"", "", ())
    module.write_text("x = 1")
    assert image_cache.entry_key(b"", "", ()) != before


@pytest.mark.parametrize("value", ["007", "true", "", "0x10", "1e3", 7, 1.5, True, None, [1, "2"], {"a": 1}])
def test_context_values_keep_their_types(value: Any, project_dir: Path) -> None:
    """From Python to the compiler: directly, through the options, and through the journal of a run."""
    typed = package.compile(CONTEXT, context={"v": value})
    assert typed.program_hash != package.compile(CONTEXT, context={"v": "other"}).program_hash
    options = Values("l", context=(("v", context_option(value)),))
    assert compile_options(options).context == {"v": value}
    recorded = recorded_options({"context": [["v", context_option(value)]]})
    read_back = compile_options(Values("l", **recorded)).context["v"]
    assert (type(read_back), read_back) == (type(value), value)


def test_string_from_python_is_not_a_number(project_dir: Path) -> None:
    """`"007"` is used as a string; `--context v=007` is the number 7."""
    (project_dir / ".loops" / "l.yaml").write_text(CONTEXT)
    images = [package.compile(CONTEXT, context={"v": value}) for value in ("007", 7)]
    assert images[0].program_hash != images[1].program_hash
    assert compile_options(Values("l", context=(("v", "007"),))).context == {"v": 7}
    assert package.run("l", context={"v": "007"}).status == "success"
    (journal,) = (project_dir / ".loops").rglob("*.jsonl")
    assert '"output":"007' in journal.read_text()
