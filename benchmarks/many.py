"""Many runs in one process: memory and time of each run while it waits, and time to start."""

from __future__ import annotations

import calendar
import contextlib
import glob
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from measure import take_turns
from place import Place
from report import BYTES, TIMES, Row, Section, row
from sizes import Sizes

_HERE = os.path.dirname(os.path.abspath(__file__))
_LOOK = 0.1
_AT_ONCE = 50
_MOMENT = 0.01

# Performs one action, and waits before its next iteration.
_SLEEPING = """\
name: sleeping
initial: look
backoff: {seconds}
max_iterations: 2
states:
  look: {{action: "true", on_success: look, on_failure: failed}}
  failed: {{terminal: true, status: failure}}
"""
_ASKING = """\
name: asking
initial: fix
states:
  fix: {action: "/fix it", next: done}
  done: {terminal: true}
"""
_JUDGED = """\
name: judged
initial: look
states:
  look:
    action: "true"
    evaluate: {type: llm_structured, prompt: "Is it good?"}
    route: {success: done, _: failed}
  done: {terminal: true}
  failed: {terminal: true, status: failure}
"""


def section(place: Place, sizes: Sizes) -> Section:
    many = sizes.many_runs
    found = Section(
        name="many",
        title=f"{many:,} runs in one process",
        about=(
            "`llc batch` of runs of one YAML loop, each with its own folder, "
            "lock, journal and state file. Asleep: each run has performed an "
            "action and waits for its next iteration. Memory is the peak "
            "(`VmHWM`) minus that of a batch of one, divided by the number of "
            "runs; the peers hold only a timer and are measured in the same way. "
            "Start of one run: from the start of the command until the last run sleeps, "
            "minus that of a batch of one; each run has started `true` once by "
            "then, and synced its journal three times. Processor seconds per second: while "
            "all runs sleep. With an "
            f"agent: a stub that takes {sizes.many_waits:g} s, {_AT_ONCE} concurrently; its peer is `xargs "
            f"-P {_AT_ONCE}` of the same stub. With a model: a Messages API on this "
            f"machine, each reply after {sizes.many_waits:g} s, {_AT_ONCE} concurrently; memory is that of "
            "all processes of llc, and the time is relative to the time in which "
            "llc only waited for replies."
        ),
    )
    place.write_loop("asking", _ASKING)
    place.write_loop("judged", _JUDGED)
    _sleep(found, place, sizes)
    _ask(found, place, sizes)
    _judge(found, place, sizes)
    return found


def _sleep(found: Section, place: Place, sizes: Sizes) -> None:
    many, seconds = sizes.many_runs, sizes.many_seconds
    kept: dict[str, list[float]] = {"started": [], "processor": []}

    def ours() -> float:
        one, all_of_them = asleep(place, 1, _MOMENT), asleep(place, many, seconds)
        kept["started"].append(each(all_of_them.asleep, one.asleep, many))
        kept["processor"].append(all_of_them.load)
        return each(all_of_them.peak, one.peak, many)

    def peer(kind: str) -> float:
        one, all_of_them = (
            place.answer("many_sleepers.py", kind, str(n), str(min(seconds, 2))) for n in (1, many)
        )
        kept.setdefault(kind, []).append(each(all_of_them["started"], one["started"], many))
        return each(all_of_them["peak"], one["peak"], many)

    contestants = {"llc": ours, "asyncio": lambda: peer("asyncio"), "threads": lambda: peer("threads")}
    turns = take_turns(contestants, sizes.many_rounds)
    for name, title in (("asyncio", "a task of asyncio in `sleep`"), ("threads", "a thread in `sleep`")):
        found.add(row("memory of a run that sleeps", turns["llc"], BYTES, peer=(title, turns[name])))
    for name, title in (("asyncio", "a task of asyncio"), ("threads", "a thread")):
        found.add(
            row(
                "start of one run",
                kept["started"][-sizes.many_rounds :],
                peer=(title, kept[name][-sizes.many_rounds :]),
            )
        )
    figures = kept["processor"][-sizes.many_rounds :]
    found.add(Row(what="processor seconds per second while all runs sleep", unit=TIMES, figure=max(figures)))


def _ask(found: Section, place: Place, sizes: Sizes) -> None:
    many = sizes.many_runs
    stub = place.inside("stub-agent")
    with open(stub, "w") as file:
        file.write(f"#!/bin/sh\nsleep {sizes.many_waits}\necho done\n")
    os.chmod(stub, 0o755)
    place.env["LLC_AGENT"] = stub
    kept: list[float] = []

    def ours() -> float:
        one, all_of_them = _batch(place, "asking", 1), _batch(place, "asking", many, str(_AT_ONCE))
        kept.append(each(all_of_them.peak, one.peak, many))
        return all_of_them.seconds

    def xargs() -> float:
        return place.seconds(["sh", "-c", f"seq {many} | xargs -P {_AT_ONCE} -n 1 {stub}"])

    turns = take_turns({"llc": ours, "xargs": xargs}, sizes.many_rounds)
    peer = (f"`xargs -P {_AT_ONCE}`", turns["xargs"])
    found.add(
        row(f"{many:,} runs with an agent each, {_AT_ONCE} at once", turns["llc"], peer=peer),
        row("memory of one of them", kept[-sizes.many_rounds :], BYTES),
    )


def _judge(found: Section, place: Place, sizes: Sizes) -> None:
    many = sizes.many_runs
    with _server(place, sizes.many_waits) as url:
        place.env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "NO_PROXY": "127.0.0.1"}
        one = _batch(place, "judged", 1)
        all_of_them = _batch(place, "judged", many, str(_AT_ONCE))
    least = -(-many // _AT_ONCE) * sizes.many_waits
    found.add(
        row(
            f"{many:,} runs with a model's verdict each, {_AT_ONCE} at once",
            [all_of_them.seconds],
            peer=("only waiting for the answers", [least]),
        ),
        row(
            "memory of one of them, with worker processes", [each(all_of_them.whole, one.whole, many)], BYTES
        ),
        row("memory of the worker processes for a batch of one run", [one.whole - one.peak], BYTES),
    )


# --- a batch, seen from outside -----------------------------------------------------------------


def each(all_of_them: float, one: float, count: int) -> float:
    """Return the cost of each run beyond the first one; too small to measure for few runs."""
    return max((all_of_them - one) / count, 1e-9)


def asleep(place: Place, count: int, seconds: float, only: bool = False) -> BatchFigures:
    """Run a batch of sleeping runs. only: runs of a flow that only sleeps."""
    name = f"sleeping-{seconds * 1000:.0f}"
    if only:
        name += ".sexp"
        with open(place.inside(name), "w") as file:
            file.write(f"(sleep {seconds})\n")
    else:
        place.write_loop(name, _SLEEPING.format(seconds=seconds))
    return _batch(place, name, count)


@dataclass
class BatchFigures:
    """Measurements of a batch: seconds until its end, seconds until its last run slept, memory peaks,
    load while all runs slept.
    """

    seconds: float = 0.0
    asleep: float = 0.0
    load: float = 0.0
    peak: float = 0.0
    # Of all its processes together.
    whole: float = 0.0
    samples: list[tuple[float, float]] = field(default_factory=list)


def _batch(place: Place, loop: str, count: int, at_once: str = "8") -> BatchFigures:
    jobs = place.inside("jobs.jsonl")
    with open(jobs, "w") as file:
        file.write((json.dumps({"loop": loop, "scope": []}) + "\n") * count)
    seen = BatchFigures()
    started_at = time.time()
    process = subprocess.Popen(
        [*place.llc, "batch", jobs, "--at-once", at_once, "--json"],
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    output = None
    while output is None:
        _look(seen, process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            output, _ = process.communicate(timeout=_LOOK)
    seen.seconds = time.time() - started_at
    ended = [json.loads(line)["status"] for line in output.splitlines()]
    is_sleeping = loop.startswith("sleeping")
    wanted = "limit" if is_sleeping and not loop.endswith(".sexp") else "success"
    if ended != [wanted] * count:
        raise RuntimeError(f"a batch of {loop} ended with {sorted(set(ended))}")
    if is_sleeping:
        _sleeping(seen, place, count, started_at)
    return seen


def _look(seen: BatchFigures, pid: int) -> None:
    try:
        with open(f"/proc/{pid}/status") as file:
            facts = dict(line.split(":", 1) for line in file)
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        children = [child for path in glob.glob(f"/proc/{pid}/task/*/children") for child in _words(path)]
    except OSError:
        return
    if "VmHWM" not in facts:
        return
    seen.peak = float(facts["VmHWM"].split()[0]) * 1024
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    seen.samples.append((time.time(), used))
    seen.whole = max(seen.whole, seen.peak + sum(map(_resident, children)))


def _words(path: str) -> list[str]:
    with open(path) as file:
        return file.read().split()


def _resident(pid: str) -> float:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0


def _sleeping(seen: BatchFigures, place: Place, count: int, started_at: float) -> None:
    """Return when all runs slept, and the load during that time, from the journals of the runs."""
    since, until, found = started_at, float("inf"), 0
    for path in glob.glob(place.inside(".loops", ".history", "sleeping-*", "*.events.jsonl")):
        with open(path) as file:
            events = [json.loads(line) for line in file]
        times = {event["event"]: _seconds(event["ts"]) for event in events if event.get("kind") == "sleep"}
        if times["effect_start"] >= started_at - 0.001:
            found += 1
            since = max(since, times["effect_start"])
            until = min(until, times["effect_complete"])
    if found != count:
        raise RuntimeError(f"{found} journals of {count} runs")
    seen.asleep = since - started_at
    during = [(at, used) for at, used in seen.samples if since < at < until]
    if len(during) > 1:
        (first, before), (last, after) = during[0], during[-1]
        seen.load = max((after - before) / (last - first), 1e-6)
    else:
        seen.load = 1e-6


def _seconds(ts: str) -> float:
    return calendar.timegm(time.strptime(ts[:19], "%Y-%m-%dT%H:%M:%S")) + int(ts[20:23]) / 1000


@contextlib.contextmanager
def _server(place: Place, seconds: float) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, os.path.join(_HERE, "many_models.py"), str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()
