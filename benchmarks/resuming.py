"""What it costs to go on with a run that was cut off, and what a run of a growing state keeps."""

from __future__ import annotations

import os
import shutil
from typing import Any

import loops
import rig
from measure import Contestant, differences, take_turns
from place import Place
from report import BYTES, Section, row
from sizes import Sizes

from llc.runtime.effects.world import World
from llc.runtime.execution.driver import Driver
from llc.runtime.execution.observer import Display
from llc.runtime.host.clock import timestamp
from llc.runtime.host.effect_context import Context, Interrupt
from llc.runtime.journal.journal import Journal, write_file
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import locks
from llc.runtime.runs.checkpoints import Checkpoints
from llc.vm.code.image import Image
from llc.vm.tiered import Machine

_FEW = 10
_PORTION = 1000
_LIMIT_EXIT = 3
_MOST_S = 0.15
_MOST_BYTES = 2_000_000


class _Cut(Exception):
    """The process is as if it were killed here."""


class Told(World):
    """Answers at once, so many times; `output(n)` is what action n gives."""

    def __init__(self, count: int, output: Any) -> None:
        super().__init__()
        self.done = 0
        self.count = count
        self.output = output

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        if self.done == self.count:
            raise _Cut
        self.done += 1
        if context.on_process is not None:
            context.on_process(1, "no boot:1")
        return {**rig.ANSWER, "output": self.output(self.done), "elapsed_ms": self.done}


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="resuming",
        title="Going on with a run that was cut off",
        about=(
            "A run of so many steps is cut off before its last; its world answered at once, its journal is "
            "a real one. Resuming is the whole command, `llc resume`, with that last step; what many steps "
            "cost over few is the difference. The growing state: every other action's output, 1 KB that "
            "does not repeat, stays captured under a name of its own, and all files of the run are counted "
            "when it is cut off, but for its program."
        ),
    )
    _resume(found, place, sizes)
    _grow(found, place, sizes)
    return found


def cut_run(image: Image, root: str, world: World) -> RunFolder:
    """A run that was cut off where `world` has no more answers."""
    here = os.getcwd()
    os.chdir(root)
    try:
        run, lock = locks.start("", image.name, ["."], {"program": image.name})
        write_file(run.image, image.to_bytes())
        journal = Journal.create(run.journal, lambda: timestamp(world.time()))
        about = {"run": run.id, "program": image.name, "path": "", "llc": ""}
        journal.write("run_start", {"format": 1, **about, "program_hash": image.program_hash})
        interrupt = Interrupt()
        driver = Driver(
            Machine(image), world, journal, run, Display(), interrupt, checkpoints=Checkpoints(run)
        )
        try:
            driver.run()
        except _Cut:
            pass
        finally:
            journal.close()
            lock.close()
            interrupt.close()
        return run
    finally:
        os.chdir(here)


def _resume(found: Section, place: Place, sizes: Sizes) -> None:
    many = sizes.resumed_steps

    def resumed(count: int) -> Contestant:
        image = rig.image_of(loops.repeated("true", count + 1))
        run = cut_run(image, place.folder, Told(count, lambda n: ""))
        kept = shutil.move(os.path.join(place.folder, run.path), place.inside(f"kept-{count}"))

        def go() -> float:
            shutil.copytree(kept, os.path.join(place.folder, run.path))
            took = place.seconds([*place.llc, "resume", run.id, "--quiet"], (_LIMIT_EXIT,))
            shutil.rmtree(place.inside(".loops", ".history", run.id))
            return took

        return go

    turns = take_turns({"few": resumed(_FEW), "many": resumed(many)}, sizes.resume_rounds)
    found.add(
        row(f"`llc resume` after {many:,} steps", turns["many"], peer=(f"after {_FEW}", turns["few"])),
        row(
            f"what {many:,} steps add to it",
            differences(turns["many"], turns["few"], 1),
            aim=_MOST_S,
            aim_is_absolute=True,
        ),
    )


def _grow(found: Section, place: Place, sizes: Sizes) -> None:
    def kept(portion: Any) -> float:
        image = rig.image_of(loops.growing(sizes.growing_steps))
        run = cut_run(image, place.folder, Told(sizes.growing_steps, portion))
        path = os.path.join(place.folder, run.path)
        files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        return float(sum(os.path.getsize(file) for file in files if not file.endswith(".llb")))

    def odd(text: Any) -> Any:
        return lambda n: text() if n % 2 else ""

    found.add(
        row(
            f"kept of {sizes.growing_steps:,} steps, 1 KB more captured by every other",
            [kept(odd(lambda: os.urandom(_PORTION // 2).hex()))],
            BYTES,
            peer=("nothing captured", [kept(lambda n: "")]),
            aim=_MOST_BYTES,
            aim_is_absolute=True,
        ),
    )
