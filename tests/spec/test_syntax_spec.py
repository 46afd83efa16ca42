"""`spec/syntax.md`: its texts mean what it says, its findings and layouts are those that are printed."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest
from spec.blocks import Block, blocks, parameters, take, text_of

from llc.frontend.sexp.formatter import format_source
from llc.frontend.sexp.reader import read
from llc.frontend.source.files import text_source
from llc.ir.diagnostics import render_all

CHAPTER = "syntax.md"
ALL = [block for block in blocks(CHAPTER) if block.language in ("sexp", "text")]
# A block, and the one behind it, which is what comes of it.
PAIRS = list(pairwise(ALL))
SAME = take(CHAPTER, "sexp same")
FINDINGS = take(CHAPTER, "sexp findings")
LAYOUTS = [block for block in take(CHAPTER, "sexp") if not block.info]
take(CHAPTER, "text")
FRONTEND = Path(__file__).parents[2] / "frontend"


def behind(block: Block) -> Block:
    return next(after for before, after in PAIRS if before == block)


@pytest.mark.parametrize("block", parameters(SAME))
def test_two_sides_read_the_same(block: Block) -> None:
    """Each line's two sides are the same data, without findings."""
    for line in block.text.splitlines():
        left, right = re.split(r" += ", line)
        (one, findings), (other, more) = read(text_source(left)), read(text_source(right))
        assert one == other, line
        assert findings == more == []


@pytest.mark.parametrize("block", parameters(FINDINGS))
def test_findings_are_those_shown(block: Block) -> None:
    """The block behind a text is what is said about it."""
    source = text_source(block.text, "flow.sexp")
    assert render_all(read(source)[1], [source]) == behind(block).text.rstrip("\n")


def test_layouts_are_those_shown() -> None:
    """The block after *becomes* is the one before it laid out, and stays as it is."""
    before, after = LAYOUTS
    assert format_source(before.text) == after.text
    assert format_source(after.text) == after.text


def test_every_finding_is_listed() -> None:
    """The table has every id that reading gives, and no other."""
    table = text_of(CHAPTER).partition("| finding | when |")[2].partition("## Layout")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    listed = {id for cell in rows for id in re.findall(r"`([a-z-]+)`", cell)}
    given = set()
    for module in (FRONTEND / "sexp").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name in ("Diagnostic", "report", "Problem"):
                    given.add(node.args[0].value)
    assert listed == given - {None}
