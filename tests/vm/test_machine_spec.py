"""`spec/machine.md` and `spec/snapshot.md`: their programs run, and do what stands beside them."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest

from llc.ir.text import parse_program
from llc.vm.emit import emit
from llc.vm.image import Image
from llc.vm.machine import Effect, Machine

SPEC = Path(__file__).parents[2] / "spec"
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(chapter: str) -> list[tuple[str, str]]:
    return BLOCK.findall((SPEC / chapter).read_text("utf-8"))


def test_the_sessions_of_the_machine_chapter_run() -> None:
    """Each session sees the programs above it, by their names, and prints what it shows."""
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(verbose=False)
    kinds = set()
    for kind, text in blocks("machine.md"):
        kinds.add(kind)
        if kind == "llc-ir":
            names[parse_program(text, "<spec>").name] = text
        else:
            assert kind == "python"
            test = doctest.DocTestParser().get_doctest(text, names, "machine.md", None, 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names = test.globs
    assert kinds == {"llc-ir", "python"}


@pytest.fixture
def example() -> tuple[Image, Any]:
    """The program of the snapshot chapter and the snapshot below it."""
    (kind, program), (other, snapshot) = blocks("snapshot.md")
    assert (kind, other) == ("llc-ir", "json")
    return emit(parse_program(program, "<spec>")), json.loads(snapshot)


def test_the_snapshot_of_the_chapter_is_the_program_s(example: tuple[Image, Any]) -> None:
    """Taken at its effect, but for the hash."""
    image, expected = example
    machine = Machine(image)
    assert isinstance(machine.resume(), Effect)
    assert {**machine.snapshot(), "program_hash": "…"} == expected


def test_the_snapshot_of_the_chapter_can_be_restored(example: tuple[Image, Any]) -> None:
    """The effect waits for its answer, and the program goes on to its end."""
    image, snapshot = example
    machine = Machine.restore(image, {**snapshot, "program_hash": image.program_hash})
    assert repr(machine.effect) == "Effect(1, 'shell', {'command': 'ls'})"
    assert repr(machine.resume("x")) == "Done(['x', [40, 2]])"
