"""The programs in `spec/lowering.md` are the compiled loops above them."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from spec.blocks import SPEC, take

from llc.frontend.compile import compile_text
from llc.ir.text import print_program

CHAPTER = SPEC / "lowering.md"
PROGRAMS = take("lowering.md", "llc-ir")
PAIR = re.compile(r"```yaml\n(.*?)```\n\n```llc-ir\n(.*?)```", re.DOTALL)
# A loop, the file that it calls as `lib.sexp`, and the program of both.
JOINT = re.compile(r"```yaml program\n(.*?)```\n\n```sexp\n(.*?)```\n\n```llc-ir\n(.*?)```", re.DOTALL)
FILES = take("lowering.md", "yaml program", "sexp")


def lowered(text: str) -> str:
    program = attrs.evolve(compile_text(text).program, sources=())
    return print_program(program, spans=False)


def test_each_loop_is_followed_by_its_program(update: bool) -> None:
    """A yaml block and the llc-ir block after it belong together, to the letter."""
    chapter = CHAPTER.read_text("utf-8")
    assert len(PAIR.findall(chapter)) + len(JOINT.findall(chapter)) == len(PROGRAMS) > 0
    printed = PAIR.sub(lambda pair: f"```yaml\n{pair[1]}```\n\n```llc-ir\n{lowered(pair[1])}```", chapter)
    if update:
        CHAPTER.write_text(printed, "utf-8")
    assert printed == CHAPTER.read_text("utf-8"), "to accept: pytest --update tests/spec"


def test_a_loop_and_its_functions_are_one_program(
    update: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three blocks belong together, to the letter."""
    monkeypatch.chdir(tmp_path)

    def print_one(found: re.Match[str]) -> str:
        (tmp_path / "lib.sexp").write_text(found[2])
        program = lowered(found[1])
        return f"```yaml program\n{found[1]}```\n\n```sexp\n{found[2]}```\n\n```llc-ir\n{program}```"

    chapter = CHAPTER.read_text("utf-8")
    assert 2 * len(JOINT.findall(chapter)) == len(FILES) > 0
    printed = JOINT.sub(print_one, chapter)
    if update:
        CHAPTER.write_text(printed, "utf-8")
    assert printed == CHAPTER.read_text("utf-8"), "to accept: pytest --update tests/spec"
