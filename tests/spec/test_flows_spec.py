"""The programs in `spec/flows.md` are the compiled flows above them."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from spec.blocks import SPEC, take

from llc.frontend.compile import compile_text
from llc.ir.text import print_program
from llc.ir.verify import verify

CHAPTER = SPEC / "flows.md"
PROGRAMS = take("flows.md", "llc-ir")
FLOWS = take("flows.md", "sexp")
FILES = take("flows.md", "yaml")
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


def test_each_flow_is_followed_by_its_program(
    update: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sexp block and the llc-ir block after it belong together, to the letter."""
    monkeypatch.chdir(tmp_path)
    for file in FILES:
        path = tmp_path / file.info
        path.parent.mkdir(exist_ok=True)
        path.write_text(file.text)
    chapter = CHAPTER.read_text("utf-8")
    assert len(PAIR.findall(chapter)) == len(PROGRAMS) == len(FLOWS) > 0
    printed = PAIR.sub(lambda pair: f"```sexp\n{pair[1]}```\n\n```llc-ir\n{lowered(pair[1])}```", chapter)
    if update:
        CHAPTER.write_text(printed, "utf-8")
    assert printed == CHAPTER.read_text("utf-8"), "to accept: pytest --update tests/spec"
