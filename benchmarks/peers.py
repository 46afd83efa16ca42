"""Comparison of llc with its peers for work that both can do; each peer is used as its users use it.

Owns the choice of this work. An absent peer has its name in the table and no figure.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

import loops
import many
import programs
import rig
from environments import Absent, Installed, Process, find
from measure import Contestant, differences, middle, ratios, take_turns
from place import Place
from report import BYTES, TIMES, Row, Section, row
from resuming import InstantWorld, killed_run
from sizes import Sizes

from llc.vm.tiered import Machine

_LIMIT_EXIT = 3
_THEIR_LIMIT_EXIT = 1
_FEW = 10
_LITTLE_LOOPS = ("little-loops-1.37", "little-loops-newest")
_WRITER = "head -c 500 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"


class Peers:
    """Peers of one section: their programs, their commands, and their names in the rows."""

    def __init__(self, place: Place, sizes: Sizes, stack: ExitStack) -> None:
        self.place = place
        # A measurement needs no word with anybody.
        quiet = {"BURR_TELEMETRY_ENABLED": "false", "LANGSMITH_TRACING": "false", "DO_NOT_TRACK": "1"}
        self.env = {**place.env, **quiet, "PYTHONDONTWRITEBYTECODE": "1"}
        self.may_install = sizes.installs_peers
        self.reasons: list[str] = []
        self._stack = stack

    def command(self, key: str, name: str) -> tuple[str, str | None]:
        """Return a peer's title and the path of one of its commands; None for an absent peer."""
        found = self._find(key)
        return found.title, found.command(name) if isinstance(found, Installed) else None

    def process(self, key: str, program: str) -> tuple[str, Process | None]:
        """Return a peer's title and its running program; None for an absent peer."""
        found = self._find(key)
        if isinstance(found, Absent):
            return found.title, None
        try:
            process = Process(found, program, self.place.folder, self.env)
        except (OSError, RuntimeError) as error:
            self._note(found.title, str(error).splitlines()[-1])
            return found.title, None
        return found.title, self._stack.enter_context(process)

    def works(self, title: str, contestant: Callable[[], object]) -> bool:
        """Return whether a peer can do this work; otherwise it counts as absent."""
        try:
            contestant()
        except RuntimeError as error:
            self._note(title, str(error).splitlines()[-1])
            return False
        return True

    def _find(self, key: str) -> Installed | Absent:
        found = find(key, self.may_install)
        if isinstance(found, Absent):
            self._note(found.title, found.reason)
        return found

    def _note(self, title: str, reason: str) -> None:
        text = f"Absent: {title} ({reason})."
        if text not in self.reasons:
            self.reasons.append(text)


@contextmanager
def open_section(
    place: Place, sizes: Sizes, name: str, title: str, about: str
) -> Iterator[tuple[Section, Peers]]:
    with ExitStack() as stack:
        peers = Peers(place, sizes, stack)
        found = Section(name=name, title=title, about=about)
        yield found, peers
    found.notes.extend(peers.reasons)


# --- a step with its state kept -----------------------------------------------------------------


def steps(place: Place, sizes: Sizes) -> Section:
    about = (
        "A step starts `true`, is evaluated by its exit code and is stored, so that the run can be "
        "resumed after it. In process: in LangGraph, a graph of two nodes that lead to each other, "
        "with its SqliteSaver (the default, `async`, writes during the next step); in Burr, two "
        "actions with its SQLitePersister, whose steps start `true` by `subprocess.run`; in llc, a "
        "loop. Of whole runs: the difference between `llc run --quiet` or `ll-loop run --quiet` with "
        "many steps and with few, divided by the difference in steps. llc and both SQLite peers sync "
        "the stored data (llc once a step); little-loops 1.37 does not sync, the newest version syncs"
        " each event. A separate row shows the cost of syncing in llc: there, `os.fdatasync` does "
        "nothing, for which llc has no option. Bytes of a step are the difference between the files "
        "of a longer and a shorter run."
    )
    title = "Compared with peers: one `true` step, stored"
    with open_section(place, sizes, "peers-steps", title, about) as (found, peers):
        _steps_in_process(found, place, sizes, peers)
        _steps_by_runs(found, place, sizes, peers)
    return found


def _steps_in_process(found: Section, place: Place, sizes: Sizes, peers: Peers) -> None:
    count = sizes.peer_steps
    image = rig.image_of(loops.repeated("true", count))

    def synced() -> float:
        return rig.drive(image, place.folder).seconds / count

    def not_synced() -> float:
        real = os.fdatasync
        os.fdatasync = lambda fd: None
        try:
            return synced()
        finally:
            os.fdatasync = real

    graph_title, graph = peers.process("langgraph", "langgraph_steps")
    burr_title, burr = peers.process("burr", "burr_steps")
    ways: dict[str, tuple[Process | None, dict[str, Any]]] = {
        f"{graph_title}, sync": (graph, {"kind": "process", "durability": "sync"}),
        f"{graph_title}, async": (graph, {"kind": "process", "durability": "async"}),
        burr_title: (burr, {"kind": "process"}),
    }
    turns = take_turns(
        {
            "llc": synced,
            "not synced": not_synced,
            **{name: _asked(process, work, count) for name, (process, work) in ways.items() if process},
        },
        sizes.peer_rounds,
    )
    found.add(
        *(row("`true` step in process", turns["llc"], peer=(name, turns.get(name, ()))) for name in ways),
        row("`true` step in process, not synced", turns["not synced"], peer=("llc as it is", turns["llc"])),
    )

    def ours(steps: int) -> float:
        return float(rig.drive(rig.image_of(loops.repeated("true", steps)), place.folder).journal_bytes)

    # Enough of them for a database, which grows by pages.
    more = 5 * count
    kept = [_per_step(ours, more)]
    for name, (process, work) in ways.items():
        theirs = [_per_step(_bytes(process, work), more)] if process else []
        found.add(row("bytes of a `true` step in process", kept, BYTES, peer=(name, theirs)))


def _steps_by_runs(found: Section, place: Place, sizes: Sizes, peers: Peers) -> None:
    counts = (_FEW, _FEW + sizes.peer_steps)
    kept: dict[str, list[float]] = {}
    contestants: dict[str, Contestant] = {}

    def whole(name: str, count: int, words: list[str], text: str, limit: int) -> Contestant:
        here = place.fresh(f"{name}-{count}")
        here.env = peers.env if name != "llc" else place.env

        def run() -> float:
            shutil.rmtree(here.folder)
            here.write_loop("steps", text)
            seconds = here.seconds([*words, "run", "steps", "--quiet"], (limit,))
            _expect_steps(here.folder, count)
            kept.setdefault(f"{name}-{count}", []).append(_kept_in(here.folder))
            return seconds

        return run

    titles: dict[str, str] = {}
    for key in _LITTLE_LOOPS:
        titles[key], command = peers.command(key, "ll-loop")
        if command:
            theirs = {
                f"{key}-{count}": whole(key, count, [command], _their_steps(count), _THEIR_LIMIT_EXIT)
                for count in counts
            }
            if peers.works(titles[key], theirs[f"{key}-{_FEW}"]):
                contestants.update(theirs)
    kept.clear()
    for count in counts:
        text = loops.repeated("true", count)
        contestants[f"llc-{count}"] = whole("llc", count, place.llc, text, _LIMIT_EXIT)
    turns = take_turns(contestants, sizes.peer_rounds)

    def per_step(values: Mapping[str, list[float]], name: str) -> list[float]:
        few, many = (f"{name}-{count}" for count in counts)
        return differences(values[many], values[few], sizes.peer_steps) if many in values else []

    for what, values, unit in (
        ("`true` step of whole runs", turns, "seconds"),
        ("bytes of a `true` step of whole runs", kept, BYTES),
    ):
        for key, title in titles.items():
            found.add(row(what, per_step(values, "llc"), unit, peer=(title, per_step(values, key))))


def _expect_steps(folder: str, count: int) -> None:
    """Check that the events of a run contain the number of steps; the exit code of a limit is ambiguous."""
    paths = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    for path in paths:
        if path.endswith("events.jsonl"):
            with open(path, encoding="utf-8") as file:
                found = sum('"action_start"' in line for line in file)
            if found == count:
                return
    raise RuntimeError(f"no run of {count} steps in {', '.join(paths)}")


def _their_steps(count: int) -> str:
    """Return the loop of `loops.repeated` for little-loops, with limits on revisits and throttling
    that do not apply.
    """
    return f"""\
name: steps
description: steps of one action
scope: ["."]
initial: work
max_iterations: {count}
max_edge_revisits: 1000000
states:
  work:
    action: "true"
    action_type: shell
    throttle: {{normal_max: 1000000, warn_max: 1000001, hard_max: 1000002}}
    on_success: work
    on_failure: failed
  failed: {{terminal: true}}
"""


# --- a state that grows -------------------------------------------------------------------------


def growing(place: Place, sizes: Sizes) -> Section:
    about = (
        "Every other step adds 1 KB of non-repeating data to the state, and all of it is kept. In "
        "process, with steps that have a result at once: in LangGraph a list (with the reducer "
        "`operator.add`, and in a `DeltaChannel`, which is in beta there), in Burr a list, in llc "
        "captures with different names. Of whole runs: each step is a process in llc and in little-"
        "loops, which stores captures in its `state.json`; it rewrites that file at each step, so few"
        " of the written bytes remain (the newest version also leaves a `history.db` of 0.6 MB and "
        "the events of the run twice). All of them read their loop first. Each is measured once. The "
        "file of the program itself is not counted."
    )
    title = f"Compared with peers: {sizes.peer_growing_steps:,} steps of a state that grows"
    with open_section(place, sizes, "peers-growing", title, about) as (found, peers):
        _grow_in_process(found, place, sizes, peers)
        _grow_by_runs(found, place, sizes, peers)
    return found


def _grow_in_process(found: Section, place: Place, sizes: Sizes, peers: Peers) -> None:
    count = sizes.peer_growing_steps
    image = rig.image_of(loops.growing(count))
    world = InstantWorld(count, lambda n: os.urandom(500).hex() if n % 2 else "")
    started_at = perf_counter()
    run = killed_run(image, place.folder, world)
    seconds = [perf_counter() - started_at]
    kept = [_kept_in(os.path.join(place.folder, run.path))]
    graph_title, graph = peers.process("langgraph", "langgraph_steps")
    burr_title, burr = peers.process("burr", "burr_steps")
    ways: dict[str, tuple[Process | None, dict[str, Any]]] = {
        f"{graph_title}, reducer": (graph, {"kind": "growing", "durability": "async"}),
        f"{graph_title}, DeltaChannel": (graph, {"kind": "delta", "durability": "async"}),
        burr_title: (burr, {"kind": "growing"}),
    }
    costs = {name: process.ask(**work, steps=count) for name, (process, work) in ways.items() if process}
    _add_both(found, "in process", seconds, kept, {name: costs.get(name) for name in ways})


def _grow_by_runs(found: Section, place: Place, sizes: Sizes, peers: Peers) -> None:
    count = sizes.peer_run_growing_steps

    def cost(name: str, words: list[str], text: str) -> dict[str, float]:
        here = place.fresh(name)
        here.env = peers.env if name != "llc" else place.env
        here.write_loop("growing", text)
        seconds = here.seconds([*words, "run", "growing", "--quiet"])
        return {"seconds": seconds, "bytes": _kept_in(here.folder)}

    text = _growing_by_processes(count)
    ours = cost("llc", place.llc, text)
    costs: dict[str, dict[str, float] | None] = {}
    for key in _LITTLE_LOOPS:
        title, command = peers.command(key, "ll-loop")
        costs[title] = None
        if command:

            def theirs(title: str = title, key: str = key, command: str = command) -> None:
                costs[title] = cost(key, [command], text)

            peers.works(title, theirs)
    _add_both(found, f"{count:,} steps by a whole run", [ours["seconds"]], [ours["bytes"]], costs)


def _add_both(
    found: Section,
    how: str,
    seconds: list[float],
    kept: list[float],
    costs: Mapping[str, Mapping[str, float] | None],
) -> None:
    for what, unit, ours in (("time", "seconds", seconds), ("bytes", BYTES, kept)):
        for name, cost in costs.items():
            theirs = [float(cost[unit])] if cost else []
            found.add(row(f"{what}, {how}", ours, unit, peer=(name, theirs)))


def _growing_by_processes(count: int) -> str:
    """Return a loop that llc and little-loops can run: every second action writes 1 KB."""
    lines = ["name: growing", "description: captures what it writes", 'scope: ["."]', "initial: s0"]
    lines += [f"max_iterations: {count + 1}", "states:"]
    for number in range(count):
        lines += [f"  s{number}:", "    action_type: shell"]
        if number % 2 == 0:
            lines += [f'    action: "{_WRITER}"'.replace("\\", "\\\\"), f"    capture: c{number}"]
        else:
            lines.append('    action: "true"')
        lines.append(f"    next: {'done' if number == count - 1 else f's{number + 1}'}")
    return "\n".join([*lines, "  done: {terminal: true}"]) + "\n"


# --- events, nothing kept -----------------------------------------------------------------------


def events(place: Place, sizes: Sizes) -> Section:
    about = (
        "Two states that lead to each other. An event is a result with an exit code that decides the "
        "route out of the state, and each visit is counted. llc's machine receives the result of an "
        "effect, evaluates it, takes the route, expands the action of the next state and requests it;"
        " its state can be stored at any time. Events per second are the inverse."
    )
    title = "Compared with peers: an event in process, nothing stored"
    with open_section(place, sizes, "peers-events", title, about) as (found, peers):
        count = sizes.peer_events
        name, process = peers.process("transitions", "transitions_events")
        image = rig.image_of(_two_states(count))

        def ours() -> float:
            machine = Machine(image)
            started_at = perf_counter()
            rig.step(machine, count)
            return (perf_counter() - started_at) / count

        contestants: dict[str, Contestant] = {"llc": ours}
        if process:

            def theirs() -> float:
                return float(process.ask(events=count)["seconds"]) / count

            contestants["peer"] = theirs
        turns = take_turns(contestants, sizes.peer_rounds)
        found.add(row("an event", turns["llc"], peer=(name, turns.get("peer", ()))))
    return found


def _two_states(count: int) -> str:
    return f"""\
name: two
paradigm: fsm
initial: first
max_iterations: {count + 1}
states:
  first: {{action: "true", on_success: second, on_failure: failed}}
  second: {{action: "true", on_success: first, on_failure: failed}}
  failed: {{terminal: true, status: failure}}
"""


# --- programs -----------------------------------------------------------------------------------


def computing(place: Place, sizes: Sizes) -> Section:
    about = (
        "The seven programs of the section on programs, compared with Hy (`peer_programs/seven.hy`; "
        "it compiles to Python, counts nothing and cannot stop within a program; loops replace the "
        "tail calls that it does not have) and, for fib, Monty, which interprets the Python text in a"
        " worker process. The results are compared. llc's time starts with an image and includes the "
        "translation; Hy compiles before."
    )
    title = "Compared with peers: programs that only compute"
    with open_section(place, sizes, "peers-programs", title, about) as (found, peers):
        hy_title, hy = peers.process("hy", "hy_programs")
        monty_title, monty = peers.process("monty", "monty_fib")
        to_hy: list[float] = []
        for name, (text, twin, whole) in programs.PROGRAMS.items():
            size = programs.size_of(whole, sizes)
            image = programs.image_of(text, size)
            answer = twin(size)
            contestants: dict[str, Contestant] = {
                "llc": _checked(lambda image=image: programs.result(image, "auto"), answer),  # type: ignore[misc]
            }
            if hy:
                contestants["hy"] = _answered(hy, {"program": name, "size": size}, answer)
            if monty and name == "fib":
                contestants["monty"] = _answered(monty, {"size": size}, answer)
            turns = take_turns(contestants, sizes.peer_rounds)
            found.add(row(name, turns["llc"], peer=(hy_title, turns.get("hy", ()))))
            if name == "fib":
                found.add(row(name, turns["llc"], peer=(monty_title, turns.get("monty", ()))))
            if hy:
                to_hy.append(middle(ratios(turns["llc"], turns["hy"])))
        if hy:
            found.add(
                Row(
                    what=f"all seven, geometric mean of the ratios to {hy_title}",
                    unit=TIMES,
                    figure=_mean(to_hy),
                ),
            )
    return found


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _checked(action: Callable[[], object], answer: object) -> Contestant:
    def run() -> float:
        started_at = perf_counter()
        value = action()
        seconds = perf_counter() - started_at
        if value != answer:
            raise RuntimeError(f"the answer is {value!r}, not {answer!r}")
        return seconds

    return run


def _answered(process: Process, work: dict[str, Any], answer: object) -> Contestant:
    def run() -> float:
        found = process.ask(**work)
        if found["value"] != answer:
            raise RuntimeError(f"{process.name}: the answer is {found['value']!r}, not {answer!r}")
        return float(found["seconds"])

    return run


# --- cold starts --------------------------------------------------------------------------------


def starts(place: Place, sizes: Sizes) -> Section:
    about = (
        "Whole commands, each a new process. `run` is a loop of three states whose action is `true`. "
        "llc takes it from its compile cache; little-loops has none."
    )
    with open_section(place, sizes, "peers-start", "Compared with peers: cold starts", about) as (
        found,
        peers,
    ):
        place.write_loop("three", loops.THREE_STEPS)
        commands = {key: peers.command(key, "ll-loop") for key in _LITTLE_LOOPS}
        contestants: dict[str, Contestant] = {
            "help": lambda: place.seconds([*place.llc, "--help"]),
            "run": lambda: place.seconds([*place.llc, "run", "three", "--quiet"]),
            "validate": lambda: place.seconds([*place.llc, "validate", "three"]),
        }
        for key, (title, command) in commands.items():
            if command:
                there = place.fresh(key)
                there.env = peers.env
                there.write_loop("three", _THEIR_THREE_STEPS)
                run = _command(there, command, "run", "three", "--quiet")
                if peers.works(title, run):
                    contestants[f"run-{key}"] = run
                    contestants[f"help-{key}"] = _command(there, command, "--help")
                    contestants[f"validate-{key}"] = _command(there, command, "validate", "three")
        turns = take_turns(contestants, sizes.peer_rounds)
        for word, what, theirs in (
            ("help", "`llc --help`", "`ll-loop --help`"),
            ("run", "`llc run`, cached", "`ll-loop run`"),
            ("validate", "`llc validate`", "`ll-loop validate`"),
        ):
            for key, (title, _) in commands.items():
                peer = (f"{theirs}, {title}", turns.get(f"{word}-{key}", ()))
                found.add(row(what, turns[word], peer=peer))
    return found


_THEIR_THREE_STEPS = """\
name: three
description: three steps
scope: ["."]
initial: first
states:
  first: {action: "true", action_type: shell, next: second}
  second: {action: "true", action_type: shell, next: third}
  third: {action: "true", action_type: shell, next: done}
  done: {terminal: true}
"""


def _command(place: Place, *words: str) -> Contestant:
    return lambda: place.seconds(words)


# --- many at once -------------------------------------------------------------------------------


def many_asleep(place: Place, sizes: Sizes) -> Section:
    count, seconds = sizes.many_runs, sizes.many_seconds
    about = (
        "Sleeping runs in one process: in llc, runs of a flow in `llc batch`, each with a journal; in"
        " LangGraph, coroutines of a graph of one node that awaits `asyncio.sleep`, with one "
        "AsyncSqliteSaver. Memory is the peak minus the memory before (LangGraph) or minus that of a "
        "batch of one (llc), divided by the number of runs. Started is the time until the last run "
        "sleeps, divided by the number of runs. Each is measured once."
    )
    title = f"Compared with peers: {count:,} runs in one process"
    with open_section(place, sizes, "peers-many", title, about) as (found, peers):
        graph_title, graph = peers.process("langgraph", "langgraph_many")
        for seconds_of_one in (0.01, seconds):
            many.asleep(place, 1, seconds_of_one, only=True)  # both are compiled now
        one = many.asleep(place, 1, 0.01, only=True)
        ours = many.asleep(place, count, seconds, only=True)
        theirs = graph.ask(count=count, seconds=seconds) if graph else {}
        for what, unit, cost in (
            ("memory of a run that sleeps", BYTES, many.each(ours.peak, one.peak, count)),
            ("start of one run", "seconds", many.each(ours.asleep, one.asleep, count)),
        ):
            peer = [float(theirs[unit])] if theirs else []
            found.add(row(what, [cost], unit, peer=(graph_title, peer)))
    return found


# --- costs --------------------------------------------------------------------------------------


def _asked(process: Process, work: dict[str, Any], steps: int) -> Contestant:
    return lambda: float(process.ask(**work, steps=steps)["seconds"]) / steps


def _bytes(process: Process, work: dict[str, Any]) -> Callable[[int], float]:
    return lambda steps: float(process.ask(**work, steps=steps)["bytes"])


def _per_step(kept: Callable[[int], float], steps: int) -> float:
    """Return the stored bytes of one step: the difference of two runs, divided by `steps`."""
    return (kept(_FEW + steps) - kept(_FEW)) / steps


def _kept_in(folder: str) -> float:
    """Return the bytes of the files of runs in a folder, without program texts and images."""
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    return float(sum(os.path.getsize(file) for file in files if not file.endswith((".llb", ".yaml"))))
