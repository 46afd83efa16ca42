"""The programs printed in `spec/lowering.md` are what the loops above them become."""

from __future__ import annotations

import re

import attrs
from spec.blocks import SPEC, take

from llc.frontend.compile import compile_text
from llc.ir.text import print_program

CHAPTER = SPEC / "lowering.md"
PROGRAMS = take("lowering.md", "llc-ir")
PAIR = re.compile(r"```yaml\n(.*?)```\n\n```llc-ir\n(.*?)```", re.DOTALL)


def lowered(text: str) -> str:
    program = attrs.evolve(compile_text(text).program, sources=())
    return print_program(program, spans=False)


def test_each_loop_is_followed_by_its_program(update: bool) -> None:
    """A yaml block and the llc-ir block after it belong together, to the letter."""
    chapter = CHAPTER.read_text("utf-8")
    assert len(PAIR.findall(chapter)) == len(PROGRAMS) > 0
    printed = PAIR.sub(lambda pair: f"```yaml\n{pair[1]}```\n\n```llc-ir\n{lowered(pair[1])}```", chapter)
    if update:
        CHAPTER.write_text(printed, "utf-8")
    assert printed == CHAPTER.read_text("utf-8"), "to accept: pytest --update tests/spec"
