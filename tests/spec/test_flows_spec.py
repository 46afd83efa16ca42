"""The programs printed in `spec/flows.md` are what the flows above them become."""

from __future__ import annotations

import re

import attrs
from spec.blocks import SPEC, take

from llc.frontend.compile import compile_text
from llc.ir.text import print_program
from llc.ir.verify import verify

CHAPTER = SPEC / "flows.md"
PROGRAMS = take("flows.md", "llc-ir")
FLOWS = take("flows.md", "sexp")
PAIR = re.compile(r"```sexp\n(.*?)```\n\n```llc-ir\n(.*?)```", re.DOTALL)


def lowered(text: str) -> str:
    """The program without places, and without what comes from `stdlib/`."""
    program = compile_text(text, "<text>.sexp").program
    assert [finding for finding in verify(program) if finding.is_error] == []
    own = [
        function
        for function in program.functions
        if function.span is None or not function.span.path.startswith("stdlib/")
    ]
    return print_program(attrs.evolve(program, name="flow", functions=tuple(own), sources=()), spans=False)


def test_each_flow_is_followed_by_its_program(update: bool) -> None:
    """A sexp block and the llc-ir block after it belong together, to the letter."""
    chapter = CHAPTER.read_text("utf-8")
    assert len(PAIR.findall(chapter)) == len(PROGRAMS) == len(FLOWS) > 0
    printed = PAIR.sub(lambda pair: f"```sexp\n{pair[1]}```\n\n```llc-ir\n{lowered(pair[1])}```", chapter)
    if update:
        CHAPTER.write_text(printed, "utf-8")
    assert printed == CHAPTER.read_text("utf-8"), "to accept: pytest --update tests/spec"
