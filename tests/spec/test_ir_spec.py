"""`spec/ir.md`: its programs are parsed and verified; its tables list all ids of the verifier."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from spec.blocks import Block, parameters, take, text_of

from llc.ir.text import KEYWORDS, parse_program, print_program
from llc.ir.verify import verify

ROOT = Path(__file__).parents[2]
CHAPTER = text_of("ir.md")
BLOCKS = take("ir.md", "llc-ir")


@pytest.mark.parametrize("block", parameters(BLOCKS))
def test_a_block_has_the_shown_diagnostics(block: Block) -> None:
    """A block is accepted without diagnostics, or rejected with the ids in its first line."""
    diagnostics = list(verify(parse_program(block.text, "spec/ir.md")))
    assert {diagnostic.id for diagnostic in diagnostics} == set(block.info.split())


@pytest.mark.parametrize("block", parameters(BLOCKS))
def test_a_block_reads_back(block: Block) -> None:
    """Printing and parsing a block gives an equal program."""
    program = parse_program(block.text, "spec/ir.md")
    assert parse_program(print_program(program), "x.ir") == program


def test_the_chapter_has_blocks() -> None:
    """The pattern for blocks finds blocks."""
    assert len(BLOCKS) >= 6


def test_the_ids_are_those_of_the_verifier() -> None:
    """The tables of the chapter list exactly the ids that the verifier reports."""
    modules = ("verify.py", "limit_proof.py", "call_limits.py")
    source = "".join((ROOT / "ir" / name).read_text("utf-8") for name in modules)
    given = set(
        re.findall(
            r'"((?:bad|counter|unbounded|uncounted|unreachable|nested|empty|operand)-[a-z-]+)"', source
        )
    )
    given |= set(re.findall(r'"((?:duplicate|unknown)-[a-z]+)"', source))
    assert set(re.findall(r"^\| `([a-z]+-[a-z-]+)` \|", CHAPTER, re.MULTILINE)) == given


def test_the_rule_for_backticks_covers_all_keywords() -> None:
    """Each keyword is the first word of an instruction or exit, or is named in the rule."""
    heads = set(re.findall(r"^\| `([a-z]+) ", CHAPTER, re.MULTILINE))
    assert heads | {"null", "true", "false", "inf", "nan", "on", "closure"} >= KEYWORDS
