"""`spec/machine.md` and `spec/snapshot.md`: their programs run with the shown results."""

from __future__ import annotations

import doctest
import json
from typing import Any

import pytest
from spec.blocks import take

from llc.ir.text import parse_program
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine

SESSIONS = take("machine.md", "llc-ir", "python")
EXAMPLE = take("snapshot.md", "llc-ir", "json")


def test_the_sessions_of_the_machine_chapter_run() -> None:
    """Each session can use the programs above it by name, and prints the shown output."""
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(verbose=False)
    for block in SESSIONS:
        if block.language == "llc-ir":
            names[parse_program(block.text, "<spec>").name] = block.text
        else:
            test = doctest.DocTestParser().get_doctest(block.text, names, "machine.md", None, 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names = test.globs
    assert {block.language for block in SESSIONS} == {"llc-ir", "python"}


def restored(image: Image, snapshot: Any) -> Machine:
    return Machine.restore(image, {**snapshot, "program_hash": image.program_hash})


@pytest.fixture
def example() -> tuple[Image, Any]:
    """The program of the snapshot chapter and the snapshot below it."""
    program, snapshot = EXAMPLE[:2]
    assert (program.language, snapshot.language) == ("llc-ir", "json")
    return emit(parse_program(program.text, "<spec>")), json.loads(snapshot.text)


def test_snapshot_of_the_chapter_matches_its_program(example: tuple[Image, Any]) -> None:
    """Taken at the effect of the program; the hash is ignored."""
    image, expected = example
    machine = Machine(image)
    assert isinstance(machine.resume(), Effect)
    assert {**machine.snapshot(), "program_hash": "…"} == expected


def test_the_snapshot_of_the_chapter_can_be_restored(example: tuple[Image, Any]) -> None:
    """The effect is pending, and the program runs to its end."""
    image, snapshot = example
    machine = restored(image, snapshot)
    assert repr(machine.effect) == "Effect(1, 'shell', {'command': 'ls'})"
    assert repr(machine.resume("x")) == "Done(['x', [40, 2]])"


def test_snapshot_with_strands_matches_its_program() -> None:
    """One strand has ended, one has failed, one waits; the restored run ends with the fault."""
    program, snapshot = EXAMPLE[2:]
    image, expected = emit(parse_program(program.text, "<spec>")), json.loads(snapshot.text)
    machine = Machine(image, [["ls", "", "pwd"]])
    assert [repr(machine.resume()), repr(machine.resume())] == [
        "Effect(1, 'shell', {'command': 'ls'})",
        "Effect(2, 'shell', {'command': 'pwd'})",
    ]
    assert repr(machine.resume("a b", 1)) == "Waiting()"
    assert {**machine.snapshot(), "program_hash": "…"} == expected
    restored_machine = restored(image, expected)
    assert {**restored_machine.snapshot(), "program_hash": "…"} == expected
    fault = restored_machine.resume("/home")
    assert repr(fault) == "Fault('user', 'nothing to ask', None)"
    assert [row[:2] for row in fault.backtrace] == [("main", "start"), ("ask", "refuse")]
