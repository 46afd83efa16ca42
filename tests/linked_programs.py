"""Programs of several files: written to a folder, driven with real shells and a simulated clock."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llc.frontend.compile import compile_file
from llc.ir.compile_options import CompileOptions
from llc.ir.nodes import Program
from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.lift import lift
from llc.vm.code.verify import verify_image
from llc.vm.machine.machine import Done, Effect, OutOfFuel
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault

DEFAULTS = CompileOptions()
# A loop with a context, a capture and a cycle.
FIX = """\
name: fix
initial: check
context:
  what: nothing
states:
  check:
    action: "echo ${context.what}; test -e ${context.flag:default=missing}"
    capture: said
    on_success: done
    on_failure: repair
  repair:
    action: "touch missing"
    next: check
  done:
    terminal: true
max_iterations: 5
"""


def write(folder: Path, **files: str) -> None:
    """Write files given by their names, with `__` for a dot; loops go to `.loops/`."""
    loops = folder / ".loops"
    loops.mkdir(exist_ok=True)
    for name, text in files.items():
        name = name.replace("__", ".")
        (loops / name if name.endswith(".yaml") else folder / name).write_text(text, "utf-8")


def program_of(path: str, options: CompileOptions = DEFAULTS) -> Program:
    """The program of a file, checked in every form: verified, printed and parsed, emitted and lifted."""
    program = compile_file(path, options).program
    assert [finding for finding in verify(program) if finding.is_error] == []
    assert parse_program(print_program(program), "ir.txt") == program
    image = Image.from_bytes(emit(program).to_bytes())
    assert list(verify_image(image)) == []
    assert lift(image) == program
    return program


def shell(command: str) -> dict[str, Any]:
    """Result of a command in bash, as the result of an action."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    return {
        "output": done.stdout.decode(),
        "stderr": done.stderr.decode(),
        "exit_code": done.returncode,
        "duration_ms": 1,
        "elapsed_ms": 1,
    }


class World:
    """Answers effects, and records them with the notes made before each.

    The clock advances by one for each effect; `sleep` takes its time, but not beyond a deadline.
    """

    def __init__(self, answers: Callable[[Effect], dict[str, Any] | None] | None = None) -> None:
        self.answers = answers
        self.now = 0
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []

    def perform(self, effect: Effect) -> dict[str, Any]:
        self.asked.append((effect.kind, effect.args))
        given = self.answers(effect) if self.answers is not None else None
        if given is not None:
            return given
        self.now += 1
        if effect.kind == "clock":
            return {"time": "2024-01-15T10:30:00.000Z", "elapsed_ms": self.now}
        if effect.kind == "sleep":
            end = self.now + round(effect.args["seconds"] * 1000)
            deadline = effect.args.get("deadline_ms")
            is_cut = deadline is not None and end > deadline
            self.now = max(self.now, deadline if is_cut else end)
            return {"elapsed_ms": self.now, **({"timed_out": "loop"} if is_cut else {})}
        assert effect.kind == "shell", effect.kind
        return shell(effect.args["command"])


def drive(program: Program, world: World, *, restoring: bool = False, fuel: int | None = None) -> Any:
    """The value of a program, or its Fault. `restoring`: restore from a snapshot at each effect."""
    machine = Machine(Image.from_bytes(emit(program).to_bytes()), fuel=fuel)
    outcome = machine.resume()
    while isinstance(outcome, Effect | OutOfFuel):
        world.notes += machine.take_notes()
        if restoring:
            machine = Machine.restore(machine.image, machine.snapshot())
        if isinstance(outcome, OutOfFuel):
            assert fuel is not None
            machine.refuel(fuel)
            outcome = machine.resume()
        else:
            answer = world.perform(outcome)
            if fuel is not None:
                machine.refuel(fuel)
            outcome = machine.resume(answer)
    world.notes += machine.take_notes()
    assert isinstance(outcome, Done | Fault)
    return outcome.value if isinstance(outcome, Done) else outcome
