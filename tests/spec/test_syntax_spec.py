"""`spec/syntax.md`: equal texts read as equal data; diagnostics and formatted texts are as shown."""

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
# Each block with the next block, which shows its output.
PAIRS = list(pairwise(ALL))
SAME = take(CHAPTER, "sexp same")
DIAGNOSTICS = take(CHAPTER, "sexp diagnostics")
LAYOUTS = [block for block in take(CHAPTER, "sexp") if not block.info]
take(CHAPTER, "text")
FRONTEND = Path(__file__).parents[2] / "frontend"


def next_block(block: Block) -> Block:
    return next(after for before, after in PAIRS if before == block)


@pytest.mark.parametrize("block", parameters(SAME))
def test_two_sides_read_the_same(block: Block) -> None:
    """Both sides of each line are the same data, without diagnostics."""
    for line in block.text.splitlines():
        left, right = re.split(r" += ", line)
        assert read(text_source(left)) == (read(text_source(right))[0], []), line
        assert read(text_source(right))[1] == []


@pytest.mark.parametrize("block", parameters(DIAGNOSTICS))
def test_diagnostics_are_as_shown(block: Block) -> None:
    """The block after a text shows its diagnostics."""
    source = text_source(block.text, "flow.sexp")
    assert render_all(read(source)[1], [source]) == next_block(block).text.rstrip("\n")


def test_formatted_texts_are_as_shown() -> None:
    """The block after *becomes* is the block before it, formatted. Formatting it again changes nothing."""
    before, after = LAYOUTS
    assert format_source(before.text) == after.text
    assert format_source(after.text) == after.text


def test_every_diagnostic_is_listed() -> None:
    """The table lists exactly the ids that the reader reports."""
    table = text_of(CHAPTER).partition("| diagnostic | reported for |")[2].partition("## Layout")[0]
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
