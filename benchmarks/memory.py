"""Memory over many iterations and over a large output, which must not grow; time for a large output."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from time import perf_counter

import loops
import rig
from measure import Contestant, take_turns
from place import Place
from report import BYTES, Section, row
from sizes import Sizes

_HERE = os.path.dirname(os.path.abspath(__file__))
_CHUNK = 1 << 16


def iterations(place: Place, sizes: Sizes) -> Section:
    few, many = sizes.iterations
    found = Section(
        name="iterations",
        title=f"{many:,} iterations of a pure decision loop",
        about=(
            "Peak resident memory of `llc run --quiet` as a process, including the journal. Each "
            "iteration compares the iteration number, routes back to its state and emits three notes."
        ),
    )
    for count in (few, many):
        place.write_loop(f"decide-{count}", loops.decisions(count))
    turns = take_turns(
        {str(count): _peak(place, f"decide-{count}") for count in (few, many)}, sizes.memory_rounds
    )
    peer = (f"{few:,} iterations", turns[str(few)])
    found.add(row(f"peak of {many:,} iterations", turns[str(many)], BYTES, peer=peer, aim=1.05))
    times = take_turns(
        {str(count): _seconds_per_iteration(place, f"decide-{count}", count) for count in (few, many)},
        sizes.memory_rounds,
    )
    peer = (f"{few:,} iterations", times[str(few)])
    found.add(row(f"time of one of {many:,}, start-up included", times[str(many)], peer=peer))
    return found


def output(place: Place, sizes: Sizes) -> Section:
    some, much = sizes.output_bytes
    found = Section(
        name="output",
        title=f"{much // 1_000_000} MB of output from one action",
        about=(
            "Peak resident memory of `llc run` as a process, compared with a run whose output is just too"
            " large to be stored completely. Time: `Driver.run` of that one action in this process; the "
            "peers run the same command under bash and read its pipe; one discards the data, the other "
            "writes them to a file as llc does. The output of a smaller step is stored completely and "
            "synced, with different content at each step: the seconds of a run of such steps, divided by "
            "their number; the peer that stores the output also syncs its file."
        ),
    )
    for size in (some, much):
        place.write_loop(f"write-{size}", loops.once(_writer(size)))
    place.write_loop("write-nothing", loops.once("true"))
    peaks = take_turns(
        {
            "some": _peak(place, f"write-{some}"),
            "much": _peak(place, f"write-{much}"),
            "shown": _peak(place, f"write-{much}", quiet=False),
            "nothing": _peak(place, "write-nothing"),
        },
        sizes.memory_rounds,
    )
    peer = (f"{some / 1_000_000:g} MB", peaks["some"])
    found.add(
        row(f"peak, {much // 1_000_000} MB, `--quiet`", peaks["much"], BYTES, peer=peer, aim=1.05),
        row(f"peak, {much // 1_000_000} MB, progress to a pipe", peaks["shown"], BYTES, peer=peer, aim=1.2),
        row(f"peak, {some / 1_000_000:g} MB", peaks["some"], BYTES, peer=("no output", peaks["nothing"])),
    )
    _output_time(found, place, sizes)
    _output_step(found, place, sizes)
    return found


def _output_time(found: Section, place: Place, sizes: Sizes) -> None:
    much = sizes.output_bytes[1]
    image = rig.image_of(loops.once(_writer(much)))
    turns = take_turns(
        {
            "llc": lambda: rig.drive(image, place.folder).seconds,
            "drop": lambda: _read(place, _writer(much)),
            "keep": lambda: _read(place, _writer(much), keep=True),
        },
        sizes.output_rounds,
    )
    what = f"time of {much // 1_000_000} MB"
    found.add(
        row(what, turns["llc"], peer=("bash and a reader that drops it", turns["drop"])),
        row("", turns["llc"], peer=("bash and a reader that writes it to a file", turns["keep"])),
    )


def _output_step(found: Section, place: Place, sizes: Sizes) -> None:
    size, count = sizes.output_step_bytes, sizes.output_steps
    command = _writer(size, "$LLC_ITERATION")
    image = rig.image_of(loops.repeated(command, count))

    def captured() -> float:
        started_at = perf_counter()
        for _ in range(count):
            subprocess.run(["bash", "-c", command], capture_output=True)
        return (perf_counter() - started_at) / count

    def read(keep: bool) -> float:
        return sum(_read(place, command, keep, is_synced=keep) for _ in range(count)) / count

    turns = take_turns(
        {
            "llc": lambda: rig.drive(image, place.folder).seconds / count,
            "captured": captured,
            "drop": lambda: read(False),
            "keep": lambda: read(True),
        },
        sizes.output_rounds,
    )
    for name, peer in (
        ("captured", "`subprocess.run(…, capture_output=True)`"),
        ("drop", "bash and a reader that drops it"),
        ("keep", "bash and a reader that writes it to a file, and syncs that"),
    ):
        what = f"a step that writes {size / 1_000_000:g} MB" if name == "captured" else ""
        found.add(row(what, turns["llc"], peer=(peer, turns[name])))


def _read(place: Place, command: str, keep: bool = False, is_synced: bool = False) -> float:
    """Return the seconds of a command under bash whose output is read from a pipe and stored in a file
    or discarded.
    """
    with tempfile.TemporaryFile(dir=place.folder, buffering=0) as file:
        started_at = perf_counter()
        with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, bufsize=0) as child:
            assert child.stdout is not None
            while data := child.stdout.read(_CHUNK):
                if keep:
                    file.write(data)
        if is_synced:
            os.fdatasync(file.fileno())
        return perf_counter() - started_at


def _writer(size: int, word: str = "") -> str:
    """Return a command that writes the given number of bytes in lines. word: contained in each line."""
    return f"yes 0123456789abcdefghijklmnopqrstuvwxyz{word} | head -c {size}"


def _peak(place: Place, loop: str, quiet: bool = True) -> Contestant:
    """Return the peak of the resident memory of a run, in bytes."""
    file = place.inside("peak.json")
    words = [place.python, "-P", os.path.join(_HERE, "peak.py"), file, "run", loop]

    def run() -> float:
        with subprocess.Popen(
            [*words, "--quiet"] if quiet else words,
            cwd=place.folder,
            env=place.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        ) as child:
            assert child.stdout is not None
            last = b""
            while data := child.stdout.read(_CHUNK):
                last = data
        if child.returncode:
            raise RuntimeError(f"{loop} could not be run: {last.decode(errors='replace')[-2000:]}")
        with open(file) as result:
            found = json.load(result)
        if found["exit_code"]:
            raise RuntimeError(f"{loop} ended with {found['exit_code']}: {last.decode(errors='replace')}")
        return float(found["peak"])

    return run


def _seconds_per_iteration(place: Place, loop: str, count: int) -> Callable[[], float]:
    return lambda: place.seconds([*place.llc, "run", loop, "--quiet"]) / count
