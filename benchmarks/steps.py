"""Cost of a step relative to the process that it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from time import perf_counter

import loops
import rig
from measure import Contestant, differences, take_turns
from place import Place
from report import Section, row
from sizes import Sizes

_LIMIT_EXIT = 3
# llc without the keeper.
_WITHOUT_KEEPER = """
import sys
from llc.runtime.host import keeper
keeper.guard = lambda folder, lock: None
from llc.runtime.cli.entry import main
sys.argv[0] = "llc"
sys.exit(main())
"""
# A builtin: the shell runner cannot start it as a program and needs a shell.
_BUILTIN = ":"


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="steps",
        title="One `true` step with journal, relative to the bare process",
        about=(
            "In process: the seconds of `Driver.run` for a loop with that action, divided by its steps. "
            "Each step is evaluated by its exit code, routed and counted. The journal is synced once a "
            "step, for the result of a step and the start of the next, on the disk of the temporary "
            "folder. `true` needs no shell, so llc starts the program itself; `:` is a builtin and runs "
            "through `bash -c`. Of whole runs: the difference between `llc run` with many steps and with "
            "few steps, divided by the difference in steps."
        ),
    )
    _in_process(found, place, sizes)
    _whole_runs(found, place, sizes)
    return found


def _in_process(found: Section, place: Place, sizes: Sizes) -> None:
    count = sizes.steps
    program = shutil.which("true") or "/bin/true"

    def spawn() -> None:
        pid = os.posix_spawn(program, [program], os.environ)
        os.waitpid(pid, 0)

    def driven(action: str) -> Contestant:
        image = rig.image_of(loops.repeated(action, count))
        return lambda: rig.drive(image, place.folder).seconds / count

    def repeated(*words: str) -> Contestant:
        def run() -> float:
            started_at = perf_counter()
            for _ in range(count):
                subprocess.run(words)
            return (perf_counter() - started_at) / count

        return run

    def spawned() -> float:
        started_at = perf_counter()
        for _ in range(count):
            spawn()
        return (perf_counter() - started_at) / count

    turns = take_turns(
        {
            "true": driven("true"),
            "bash -c true": repeated("bash", "-c", "true"),
            "sh -c true": repeated("sh", "-c", "true"),
            "spawn": spawned,
            ":": driven(_BUILTIN),
            "bash -c :": repeated("bash", "-c", _BUILTIN),
        },
        sizes.step_rounds,
    )
    bare = '`subprocess.run(["bash", "-c", "true"])`'
    found.add(
        row("`true` step in process", turns["true"], peer=(bare, turns["bash -c true"]), aim=1.3),
        row("", turns["true"], peer=('`subprocess.run(["sh", "-c", "true"])`', turns["sh -c true"])),
        row("", turns["true"], peer=("`posix_spawn` of `true`, waited for", turns["spawn"])),
        row(
            "`:` step in process, through bash",
            turns[":"],
            peer=('`subprocess.run(["bash", "-c", ":"])`', turns["bash -c :"]),
            aim=1.3,
        ),
    )


def _whole_runs(found: Section, place: Place, sizes: Sizes) -> None:
    few, many = 10, 10 + sizes.run_steps
    for count in (few, many):
        place.write_loop(f"steps-{count}", loops.repeated("true", count))

    def whole(count: int, *llc: str) -> Contestant:
        words = [*(llc or place.llc), "run", f"steps-{count}", "--quiet"]
        return lambda: place.seconds(words, (_LIMIT_EXIT,))

    def bare() -> float:
        started_at = perf_counter()
        for _ in range(sizes.run_steps):
            subprocess.run(["bash", "-c", "true"])
        return (perf_counter() - started_at) / sizes.run_steps

    without_keeper = place.python, "-c", _WITHOUT_KEEPER
    contestants = {
        "few": whole(few),
        "many": whole(many),
        "few without_keeper": whole(few, *without_keeper),
        "many without_keeper": whole(many, *without_keeper),
        "bare": bare,
    }
    turns = take_turns(contestants, sizes.run_rounds)
    found.add(
        row(
            "`true` step of whole runs",
            differences(turns["many"], turns["few"], sizes.run_steps),
            peer=('`subprocess.run(["bash", "-c", "true"])`', turns["bare"]),
            aim=1.3,
        ),
        row(
            "`true` step of whole runs, with the keeper",
            differences(turns["many"], turns["few"], sizes.run_steps),
            peer=(
                "llc without the keeper",
                differences(turns["many without_keeper"], turns["few without_keeper"], sizes.run_steps),
            ),
            aim=1.05,
        ),
        row(
            f"a run of {few} `true` steps",
            turns["few"],
            peer=("llc without the keeper", turns["few without_keeper"]),
        ),
    )
