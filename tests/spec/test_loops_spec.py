"""`spec/loops.md` says what is so: its loops, its refusals, its tables."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from llc.frontend.compile import compile_text
from llc.frontend.fsm import print_fsm
from llc.frontend.json_schema import fill_tables
from llc.ir.diagnostics import CompileError, Diagnostic

ROOT = Path(__file__).parents[2]
CHAPTER = ROOT / "spec" / "loops.md"
TEXT = CHAPTER.read_text("utf-8")
BLOCKS = [
    (TEXT.count("\n", 0, found.start()) + 1, found[1].strip(), found[2])
    for found in re.finditer(r"^```(\S[^\n]*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
]
LOOPS = [pytest.param(info, text, id=f"line {line}") for line, info, text in BLOCKS]
MADE = re.compile(r"```yaml[^\n]*\n(paradigm:.*?)```\n\nbecomes\n\n```yaml[^\n]*\n(.*?)```", re.DOTALL)
# Where findings about files, keys and states are made; the others' ids are in their own chapters.
MODULES = ("documents", "structure", "check", "variables")


def findings(text: str) -> list[Diagnostic]:
    try:
        return list(compile_text(text).diagnostics)
    except CompileError as error:
        return list(error.diagnostics)


@pytest.mark.parametrize(("info", "text"), LOOPS)
def test_a_loop_is_what_its_fence_says(info: str, text: str) -> None:
    """A plain block compiles without a word; others give their one finding, on the marked line."""
    found = findings(text)
    language, _, expected = info.partition(" ")
    assert language == "yaml"
    if not expected:
        assert found == []
        return
    severity, _, id = expected.partition("=")
    (finding,) = found
    assert (finding.severity, finding.id) == (severity, id)
    assert finding.span is not None
    assert "# <-" in text.split("\n")[finding.span.line - 1]


def test_what_a_paradigm_becomes_is_what_is_printed() -> None:
    """The block after *becomes* is what `--emit fsm` prints for the one before."""
    pairs = MADE.findall(TEXT)
    assert len(pairs) == 4
    for written, made in pairs:
        assert print_fsm(compile_text(written).loop) == made.replace("    # <-", "")


def test_tables_are_printed_from_the_schema(update: bool) -> None:
    """The tables of keys are those of the classes."""
    filled = fill_tables(TEXT)
    if update:
        CHAPTER.write_text(filled, "utf-8")
        return
    assert filled == TEXT, "to accept: pytest --update tests/spec"


def test_every_finding_is_listed() -> None:
    """The table of findings has every id that the code gives, and no other."""
    listed = set(
        re.findall(
            r"`([a-z0-9-]+)`", "".join(re.findall(r"^\|(.*?)\|", TEXT.partition("## Findings")[2], re.M))
        )
    )
    given = set()
    for module in MODULES:
        tree = ast.parse((ROOT / "frontend" / f"{module}.py").read_text("utf-8"))
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
        for call in calls:
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            first = call.args[0]
            if name in ("Diagnostic", "_warning", "error", "warn", "fail", "refuse") and isinstance(
                first, ast.Constant
            ):
                given.add(first.value)
    assert listed == given
