"""Cost of a long history: time to resume, inspect and replay the run, and stored bytes."""

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
_MAX_RESUME_S = 0.06
# Twenty thousand steps in a second.
_MAX_STEP_S = 50e-6
_MAX_TRACE_S = 0.5
_MAX_INSPECTION_S = 0.2
_MAX_STORED_BYTES = 2_000_000


class _Killed(Exception):
    """Simulated kill of the process."""


class InstantWorld(World):
    """World that answers `count` effects at once; `output(n)` is the output of action n."""

    def __init__(self, count: int, output: Any) -> None:
        super().__init__()
        self.done = 0
        self.count = count
        self.output = output

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        if self.done == self.count:
            raise _Killed
        self.done += 1
        if context.on_process is not None:
            context.on_process(1, "no boot:1")
        return {**rig.ANSWER, "output": self.output(self.done), "elapsed_ms": self.done}


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="resuming",
        title="Long histories: resuming, looking, replaying",
        about=(
            "A run with the given number of steps is killed before its last step; its world "
            "answered at once, its journal is real. Resuming is the complete command `llc "
            "resume` with that last step; the time due to the steps is the difference to a "
            "run with few steps. Growing state: the output of every second action, 1 KB of "
            "non-repeating data, stays captured under its own name; the stored bytes are "
            "those of all files of the killed run, without its program. The other commands, "
            "also complete, are applied to a finished scripted run; the time for a step is "
            "the difference to a run with few steps, divided by the number of steps."
        ),
    )
    _resume(found, place, sizes)
    _look(found, place, sizes)
    _grow(found, place, sizes)
    return found


def killed_run(image: Image, root: str, world: World) -> RunFolder:
    """Return a run that was killed when `world` had no more answers."""
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
        except _Killed:
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
        run = killed_run(image, place.folder, InstantWorld(count, lambda n: ""))
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
            f"resume time due to {many:,} steps",
            differences(turns["many"], turns["few"], 1),
            aim=_MAX_RESUME_S,
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
            row(f"{what}: time for each of {many:,} steps", cost, aim=_MAX_STEP_S, aim_is_absolute=True)
        )
    for what, aim, make in (
        (
            "`llc trace --at N` near the end",
            _MAX_TRACE_S,
            lambda name, n: command("trace", name, "--at", str(n - 2)),
        ),
        ("`llc status`", _MAX_INSPECTION_S, lambda name, _: command("status", name)),
        ("`llc logs -n 5`", _MAX_INSPECTION_S, lambda name, _: command("logs", name, "-n", "5")),
    ):
        taken = turns(make)
        peer = (f"of {_FEW}", taken["few"])
        found.add(row(f"{what} of {many:,} steps", taken["many"], peer=peer, aim=aim, aim_is_absolute=True))


def _grow(found: Section, place: Place, sizes: Sizes) -> None:
    def kept(portion: Any) -> float:
        image = rig.image_of(loops.growing(sizes.growing_steps))
        run = killed_run(image, place.folder, InstantWorld(sizes.growing_steps, portion))
        path = os.path.join(place.folder, run.path)
        files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        return float(sum(os.path.getsize(file) for file in files if not file.endswith(".llb")))

    def odd(text: Any) -> Any:
        return lambda n: text() if n % 2 else ""

    found.add(
        row(
            f"stored after {sizes.growing_steps:,} steps, of which every second captures 1 KB",
            [kept(odd(lambda: os.urandom(_PORTION // 2).hex()))],
            BYTES,
            peer=("nothing captured", [kept(lambda n: "")]),
            aim=_MAX_STORED_BYTES,
            aim_is_absolute=True,
        ),
    )
