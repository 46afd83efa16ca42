"""Runs in this process, assembled from the parts of `llc run`.

Owns the assembly of image, world, journal and driver, with the journal on the real disk and without
output. Only the driver is timed, not the set-up and the end.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any

from llc.frontend.compile import compile_text
from llc.runtime.effects.world import World
from llc.runtime.execution.driver import Driver
from llc.runtime.execution.observer import Display
from llc.runtime.host.clock import timestamp
from llc.runtime.host.effect_context import Interrupt
from llc.runtime.journal.journal import Journal
from llc.runtime.journal.outcome import Outcome
from llc.runtime.runs import locks
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine

# What an action that did its work gives, at once.
ANSWER = {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}


def image_of(text: str) -> Image:
    return emit(compile_text(text).program)


class Run:
    """Cost of a run: seconds in the driver, and bytes of its journal."""

    def __init__(self, seconds: float, outcome: Outcome, journal: str) -> None:
        self.seconds = seconds
        self.outcome = outcome
        self.journal_bytes = os.path.getsize(journal)


def drive(image: Image, root: str, display: Display | None = None) -> Run:
    """Run an image with its journal in `root`. Raises RuntimeError if the run ends with an error."""
    world = World()
    folder, lock = locks.start(root, image.name, image.meta["scope"], {"program": image.name})
    journal = Journal.create(folder.journal, lambda: timestamp(world.time()))
    interrupt = Interrupt()
    try:
        driver = Driver(Machine(image), world, journal, folder, display or Display(), interrupt)
        started_at = perf_counter()
        outcome = driver.run()
        seconds = perf_counter() - started_at
    finally:
        world.close()
        journal.close()
        lock.close()
        interrupt.close()
    folder.finish()
    if outcome.status not in ("success", "limit"):
        raise RuntimeError(f"{image.name} ended with {outcome.status}: {outcome.error}")
    return Run(seconds, outcome, folder.journal)


def step(machine: Machine, count: int) -> None:
    """Take `count` effects and answer each at once; consume notes as a driver does."""
    answer: dict[str, Any] | None = ANSWER if machine.effect is not None else None
    for _ in range(count):
        stop = machine.resume(answer)
        machine.take_notes()
        if not isinstance(stop, Effect):
            raise RuntimeError(f"the machine stopped: {stop!r}")
        answer = ANSWER
