"""The chapter on the IR: each program in it is parsed and verified, each id in it exists."""

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
def test_a_block_says_what_the_verifier_says(block: Block) -> None:
    """A block is accepted without a word, or refused with the ids it names."""
    diagnostics = list(verify(parse_program(block.text, "spec/ir.md")))
    assert {diagnostic.id for diagnostic in diagnostics} == set(block.info.split())


@pytest.mark.parametrize("block", parameters(BLOCKS))
def test_a_block_reads_back(block: Block) -> None:
    """What is printed of a block is the same program."""
    program = parse_program(block.text, "spec/ir.md")
    assert parse_program(print_program(program), "x.ir") == program


def test_the_chapter_has_blocks() -> None:
    """The pattern that finds them still does."""
    assert len(BLOCKS) >= 6


def test_the_ids_are_those_of_the_verifier() -> None:
    """Every id the verifier can give is in a table of the chapter, and no other."""
    modules = ("verify.py", "limit_proof.py", "call_limits.py")
    source = "".join((ROOT / "ir" / name).read_text("utf-8") for name in modules)
    given = set(
        re.findall(
            r'"((?:bad|counter|unbounded|uncounted|unreachable|nested|empty|operand)-[a-z-]+)"', source
        )
    )
    given |= set(re.findall(r'"((?:duplicate|unknown)-[a-z]+)"', source))
    assert set(re.findall(r"^\| `([a-z]+-[a-z-]+)` \|", CHAPTER, re.MULTILINE)) == given


def test_the_quoted_words_are_named() -> None:
    """The chapter's rule for words in backticks covers every one."""
    heads = set(re.findall(r"^\| `([a-z]+) ", CHAPTER, re.MULTILINE))
    assert heads | {"null", "true", "false", "inf", "nan", "on", "closure"} >= KEYWORDS
