"""The fenced blocks of the chapters in `spec/`: one way to read them, and an account of who runs them.

A test module takes the blocks that it executes when it is imported. `test_spec_yaml` fails where a
block is left that nobody takes, so no block can stand in `spec/` unchecked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

SPEC = Path(__file__).parents[2] / "spec"
CHAPTERS = sorted(path.name for path in SPEC.glob("*.md"))
_FENCE = re.compile(r"^(`{3,}|~{3,})([^\n`]*)\n(.*?)^\1 *$", re.DOTALL | re.MULTILINE)
_TAKEN: set[tuple[str, int]] = set()


class Block(NamedTuple):
    """A fenced block. line: of its fence. language, info: the first word after it, and the rest."""

    chapter: str
    line: int
    language: str
    info: str
    text: str

    @property
    def kind(self) -> str:
        """Language and info, as they stand on the fence."""
        return f"{self.language} {self.info}".strip()


def text_of(chapter: str) -> str:
    return (SPEC / chapter).read_text("utf-8")


def blocks(chapter: str) -> list[Block]:
    """Every fenced block of a chapter, in order."""
    text = text_of(chapter)
    found = []
    for fence in _FENCE.finditer(text):
        language, _, info = fence[2].strip().partition(" ")
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(chapter, line, language, info.strip(), fence[3]))
    return found


def take(chapter: str, *kinds: str) -> list[Block]:
    """The blocks whose language, or language and info, is one of `kinds`; who takes them runs them."""
    found = [block for block in blocks(chapter) if block.language in kinds or block.kind in kinds]
    _TAKEN.update((block.chapter, block.line) for block in found)
    return found


def is_taken(block: Block) -> bool:
    return (block.chapter, block.line) in _TAKEN


def parameters(found: list[Block]) -> list[object]:
    """Blocks as test parameters, named after their places."""
    return [pytest.param(block, id=f"{block.chapter}:{block.line}") for block in found]
