"""What a long history costs: to resume its run, to look at it, to replay it; and what it keeps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
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
_MOST_S = 0.06
# Twenty thousand steps in a second.
_STEP_S = 50e-6
_TRACE_S = 0.5
_LOOK_S = 0.2
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
        title="Long histories: resuming, looking, replaying",
        about=(
            "A run of so many steps is cut off before its last; its world answered at once, its journal is "
            "a real one. Resuming is the whole command, `llc resume`, with that last step; what many steps "
            "cost over few is the difference. The growing state: every other action's output, 1 KB that "
            "does not repeat, stays captured under a name of its own, and all files of the run are counted "
            "when it is cut off, but for its program. The other commands are those of a scripted run that "
            "has ended, each whole; a step of it is the difference to a run of few steps, by their number."
        ),
    )
    _resume(found, place, sizes)
    _look(found, place, sizes)
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


def _look(found: Section, place: Place, sizes: Sizes) -> None:
    many = sizes.looked_steps
    inner = place.fresh("looking")
    with open(inner.inside("world.yaml"), "w") as file:
        file.write('rules: [{kind: shell, result: {output: "", exit_code: 0, duration_ms: 1}}]\n')
    runs = {"few": _FEW, "many": many}
    for name, count in runs.items():
        inner.write_loop(name, loops.repeated("true", count).replace("name: steps", f"name: {name}"))

    def command(*words: str, expected: int = 0) -> Contestant:
        return lambda: inner.seconds([*inner.llc, *words], (expected,))

    def turns(make: Callable[[str, int], Contestant]) -> dict[str, list[float]]:
        return take_turns({name: make(name, count) for name, count in runs.items()}, sizes.memory_rounds)

    scripted = ("--script", "world.yaml", "--quiet")
    for what, make in (
        ("`llc run --script`", lambda name, _: command("run", name, *scripted, expected=_LIMIT_EXIT)),
        ("`llc replay`", lambda name, _: command("replay", name)),
    ):
        taken = turns(make)
        cost = differences(taken["many"], taken["few"], many - _FEW)
        found.add(
            row(f"{what}: what each of {many:,} steps add to it", cost, aim=_STEP_S, aim_is_absolute=True)
        )
    for what, aim, make in (
        (
            "`llc trace --at N` near the end",
            _TRACE_S,
            lambda name, n: command("trace", name, "--at", str(n - 2)),
        ),
        ("`llc status`", _LOOK_S, lambda name, _: command("status", name)),
        ("`llc logs -n 5`", _LOOK_S, lambda name, _: command("logs", name, "-n", "5")),
    ):
        taken = turns(make)
        peer = (f"of {_FEW}", taken["few"])
        found.add(row(f"{what} of {many:,} steps", taken["many"], peer=peer, aim=aim, aim_is_absolute=True))


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
