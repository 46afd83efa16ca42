"""One simulated history: runs, operators, faults, and the oracles that watch all the time.

`Simulation(seed).run()` builds a machine, starts runs, injects the faults of its plan and resumes what is
left until every run has ended. It raises Violation where a promise of `spec/promises.md` is broken. The plan
follows from the seed; `kept` keeps only some of it, which is how a failure is made small.
"""

from __future__ import annotations

import errno
import gc
import json
import re
import signal
import stat
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from random import Random
from typing import Any

from llc.runtime.host import keeper, protocol
from llc.runtime.host.coroutines import alone
from llc.runtime.host.errors import UserError
from llc.runtime.host.paths import HISTORY
from llc.runtime.inspection import status
from llc.runtime.journal.codec import unseal
from llc.runtime.journal.events import NoteEvent
from llc.runtime.journal.journal import Blobs, JournalError, unpack
from llc.runtime.journal.reader import Damage, read
from llc.runtime.journal.run_folder import JOURNAL_SUFFIX, RunFolder
from llc.runtime.launch import failures
from llc.runtime.launch.command import Command
from llc.runtime.launch.report import Report
from llc.runtime.launch.resume import resume_run
from llc.runtime.launch.run import start
from llc.runtime.launch.stop_signals import StopSignals
from llc.runtime.project import verify
from llc.runtime.project.limits import Bounds
from llc.runtime.project.options import Values
from llc.runtime.runs import checkpoint_reader, checkpoints, locks
from llc.runtime.runs.runs import runs_in
from llc.vm.code.image import Image

from . import programs
from .disk import Change, Node
from .host import PROJECT, Machine, OpenFile, SimulatedHost
from .scheduler import Killed, Process, Scheduler, Stuck

SECRET = "s3cr3t-4711-token"
# The name of an output in a line of a journal.
_OUTPUT = re.compile(rb'"\$blob":"(\w+)"')
_COPY = re.compile(r"\[llc: (\d+ of \d+ bytes are left out here); [^\n]*\]")
# Virtual seconds within which a run must end once no more faults happen.
PATIENCE = 900.0
# How often somebody looks.
LOOKS = 0.15
# Bytes of a journal between two checkpoints: a short run has some.
SPACE = 4096
# Faults happen before this many calls of the host; a short run takes about a thousand.
SPAN = 4000
KINDS = (
    *["kill"] * 6,
    *["kill-any"] * 2,
    *["power"] * 4,
    "freeze",
    "terminate",
    "second",
    "full",
    "broken",
    *["handles"] * 2,
    "clock",
    "slow",
)
# The share of histories in which a program is edited, or llc replaced by another version.
CHANGES = 0.15
FORMAT = checkpoints.FORMAT
ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO, "handles": errno.EMFILE}
# Some faults come at most so many calls after a moment: one of the first of its kind in a history.
MOMENTS = ("llc starts", "a run changes hands", "an action begins", "an action ends")
FIRST = 8
SOON = 80
# Which calls fail.
_FAILING = {
    "full": ("write", "name"),
    "broken": ("write", "sync", "truncate"),
    "handles": ("open",),
}


class Violation(Exception):
    """A promise is broken."""


class Fault:
    """at: the call of the host at which it happens; earlier if it is `delay` calls after a moment."""

    def __init__(
        self, at: int, kind: str, amount: float, moment: tuple[str, int] | None = None, delay: int = 0
    ) -> None:
        self.at = at
        self.kind = kind
        self.amount = amount
        self.moment = moment
        self.delay = delay

    def __str__(self) -> str:
        return f"{self.kind} at call {self.at}"


class Action:
    """An action as the world outside saw it."""

    def __init__(self, effect: str, key: str, process: Process) -> None:
        self.effect = effect
        self.key = key
        self.process = process
        self.has_ended = False


class Wanted:
    """A run that the operator wants to end. used: the actions whose results it has used."""

    def __init__(self, program: str, copy: int) -> None:
        self.program = program
        self.name = f"{program}-{copy}"
        self.image = programs.image_of(program, copy)
        self.actions: list[Action] = []
        self.used: set[str] = set()
        self.is_over = False
        self.attempts = 0
        # The most of its journal that was ever on disk, by folder: a start that did not act may be lost.
        self.durable: dict[str, bytes] = {}


class Simulation:
    """seed: of all choices. kept: numbers of the faults of the plan that happen, None for all.

    error: what was wrong in the end, None for nothing.
    """

    error: BaseException | None = None
    kinds, moments = KINDS, MOMENTS
    # So many histories are in memory before what is left of them is removed.
    kept_histories = 16

    def __init__(self, seed: int, kept: Sequence[int] | None = None, without_faults: str = "") -> None:
        self.seed = seed
        random = Random(seed)
        set_format(FORMAT)
        self.scheduler = Scheduler(Random(random.random()))
        self.machine = Machine(self.scheduler)
        self.machine.disk.is_ordered = random.random() < 0.5
        self.trace: list[str] = []
        names = list(programs.TEXTS)
        chosen = [random.choice(names) for _ in range(random.choice((1, 1, 1, 1, 1, 2, 2, 3)))]
        if without_faults:
            chosen = [without_faults]
        self.runs = [Wanted(name, copy) for copy, name in enumerate(chosen)]
        self.plan = [] if without_faults else self._plan(random)
        wanted = range(len(self.plan)) if kept is None else kept
        self.faults = [self.plan[number] for number in wanted]
        self.injected = 0
        self._moments = dict.fromkeys(MOMENTS, 0)
        # The kind of the error, until which call, and for a single error how many calls are before it.
        self._failing: tuple[str, int, int | None] | None = None
        # The locks of runs; a folder that is being removed may have lost its own.
        self._locks: dict[str, Node] = {}
        # What was read last of each journal, and its lines.
        self._read: dict[str, tuple[bytes, list[Any]]] = {}
        self._quiet_since = 0.0
        # Whether an action has another result than without faults.
        self._is_disturbed = False
        self._problem: BaseException | None = None
        self._prepare()

    def _plan(self, random: Random) -> list[Fault]:
        count = random.choice((1, 2, 3, 5, 8, 13, 21))
        span = random.choice((100, 300, 1000, SPAN))
        share = random.choice((0.0, 0.3, 0.7))
        plan = []
        for _ in range(count):
            fault = Fault(random.randrange(1, span), random.choice(self.kinds), random.random())
            if random.random() < share:
                fault.moment = random.choice(self.moments), random.randrange(FIRST)
                fault.delay = int(SOON * random.random() ** 2)
            plan.append(fault)
        # What people do to files is chosen apart, so that the other faults of a seed stay as they are.
        chance = Random(f"{self.seed} changes")
        while chance.random() < CHANGES:
            plan.append(Fault(chance.randrange(1, span), chance.choice(("edit", "upgrade")), chance.random()))
        return sorted(plan, key=lambda fault: fault.at)

    def _prepare(self) -> None:
        machine, disk = self.machine, self.machine.disk
        machine.programs = {"act": self._act, "bash": self._bash}
        machine.fail = self._fail
        machine.on_spawn = self._check_spawn
        machine.on_write = self._check_write
        machine.on_sync = self._note_sync
        machine.on_names = self._check_names
        machine.on_lock = lambda: self._reach("a run changes hands")
        self.scheduler.on_call = self._on_call
        root = disk.root
        for path in ("bin", "dev", "tmp", "project", "project/.loops"):
            folder = root
            *above, name = path.split("/")
            for part in above:
                folder = folder.names[part]
            node = Node(stat.S_IFDIR, 0o755, 0.0)
            disk.change((folder, name, node))
        for name in machine.programs:
            disk.change((root.names["bin"], name, Node(stat.S_IFREG, 0o755, 0.0)))
        for change in disk.changes:
            change.apply()
        disk.changes.clear()

    # --- the whole history ------------------------------------------------------------------------

    def run(self) -> None:
        """Raises Violation."""
        self.scheduler.after(0.0, self._operate)
        try:
            self.scheduler.run(self._is_over)
        except Stuck as error:
            raise Violation(str(error)) from None
        finally:
            for process in self.scheduler.living():
                self.scheduler.end(process, 9)
        if self._problem is not None:
            raise self._problem
        self._check_end()

    def _is_over(self) -> bool:
        return self._problem is not None or all(run.is_over for run in self.runs)

    def _operate(self) -> None:
        """Once in a while: start and resume what is not driven; give up on what takes too long."""
        if not self.faults:
            if not self._quiet_since:
                self._quiet_since = self.scheduler.now
            if self.scheduler.now - self._quiet_since > PATIENCE:
                waiting = ", ".join(run.name for run in self.runs if not run.is_over)
                self._fails(f"{waiting} did not end within {PATIENCE:g} s without faults")
        for run in self.runs:
            if not run.is_over:
                self._act_for(run)
        self._supervise()
        self.scheduler.after(self.scheduler.random.choice((0.05, 0.5, 5.0)), self._operate)

    def _act_for(self, run: Wanted) -> None:
        """Start or resume a run that is not driven."""
        if not any(process.about.get("run") is run for process in self.scheduler.living()):
            self._start(run)

    def _supervise(self) -> None:
        """What else happens once in a while."""
        for name, action in (("llc status", self._look), ("llc batch", self._sweep)):
            if self.scheduler.random.random() < LOOKS:
                self.scheduler.start(self._new_process(name), action)

    def _new_process(self, name: str) -> Process:
        env = {b"PATH": b"/bin", b"HOME": b"/project", b"PWD": b"/project", b"DEPLOY_TOKEN": SECRET.encode()}
        process = self.scheduler.new_process(None, env)
        process.about["cwd"] = PROJECT
        process.is_llc = True
        process.name = name
        for number in range(3):
            process.handles[number] = self._null()
        return process

    def _look(self) -> int:
        """What `llc status` says of each run agrees with who holds it."""
        for folder in list(runs_in("")):
            lock = self._lock_of(folder.id)
            holder, times = self._holder(lock), lock.times_locked
            try:
                word = status.of(folder)["status"]
            except (UserError, JournalError):
                return 1
            except Exception as error:
                if failures.is_internal(error):
                    error.add_note("in llc status")
                    self._problem = self._problem or error
                return 1
            is_same = self._lock_of(folder.id) is lock and lock.times_locked == times
            if self._holder(lock) is not holder or not is_same:
                continue  # it changed hands meanwhile
            if holder is not None and word in ("crashed", "interrupted"):
                raise self._fails(f"status says that {folder.id} is {word}, and {holder.name} drives it")
            if holder is None and word in ("running", "queued"):
                raise self._fails(f"status says that {folder.id} is {word}, and nobody drives it")
        return 0

    def _sweep(self) -> int:
        """What is left of killed starts is removed, as a batch does before it starts any."""
        try:
            locks.sweep("")
        except Exception as error:
            if failures.is_internal(error):
                error.add_note("in llc batch")
                self._problem = self._problem or error
            return 1
        return 0

    def _lock_of(self, run_id: str) -> Node:
        return self._run_folders().get(run_id, self.machine.null).names.get("lock", self.machine.null)

    def _holder(self, lock: Node) -> Process | None:
        """The process that has a lock."""
        for process in self.scheduler.living() if lock.exclusive is not None else ():
            if lock.exclusive in process.handles.values():
                return process
        return None

    def _start(self, run: Wanted, is_second: bool = False) -> None:
        """Another process that drives the run; a second one only resumes it."""
        run.attempts += 1
        process = self._new_process(f"llc {run.name} #{run.attempts}")
        process.about |= {"run": run, "is_second": is_second}
        self._tell(f"start {process.name} (pid {process.pid})")
        self._reach("llc starts")
        self.scheduler.start(process, lambda: self._drive(process, run))

    def _null(self) -> OpenFile:
        return OpenFile(self.machine, self.machine.null, 2)

    def _drive(self, process: Process, run: Wanted) -> int:
        """The main program of llc: run, or resume what there is."""
        values = Values(run.name, quiet=True, no_input=True, queue=self.scheduler.random.random() < 0.5)
        command = Command(values, Report(values, is_silent=True))
        try:
            with StopSignals(False) as interrupt:
                command.choose_tier()
                command.configure()
                folder = self._folder(run)
                if folder is None:
                    if process.about["is_second"]:
                        return 1
                    command.bounds = Bounds.of_options(values)
                    command.bounds.apply()
                    steps = start(command, "", run.image, interrupt)
                elif folder == "ended":
                    run.is_over = True
                    return 0
                else:
                    steps = resume_run(command, folder, interrupt)
                ended = alone(steps)
        except Killed:
            raise
        except Violation as error:
            self._problem = error
            return 70
        except BaseException as error:
            return self._failed(process, run, command, error)
        self._tell(f"{process.name} ended: {ended.status}")
        if ended.status != "interrupted":
            # Its user has been told: whatever happens now, nothing of it is performed again.
            self._check_told(run)
            run.used |= {action.key for action in run.actions}
            run.is_over = not self.faults or self.scheduler.random.random() < 0.5
            if not run.is_over:
                self.faults.insert(0, Fault(0, "power", 0.0))
        return 0

    def _failed(self, process: Process, run: Wanted, command: Command, error: BaseException) -> int:
        shown = failures.of_run(error, command.folder) if isinstance(error, Exception) else error
        self._tell(f"{process.name} failed: {type(shown).__name__}: {shown}")
        if failures.is_internal(shown):
            error.add_note(f"in {process.name}")
            self._problem = error
        return 1

    def _folder(self, run: Wanted) -> Any:
        """The run's folder, "ended" if it is in the history, None where there is nothing."""
        for _ in range(2):  # it may end between the two looks
            if any(folder.name == run.name for folder in runs_in("", HISTORY)):
                return "ended"
            found = [folder for folder in locks.unfinished("") if folder.name == run.name]
            if found:
                return found[0]
        if run.actions:
            raise Violation(f"{run.name} is lost, although it has acted")
        return None

    # --- actions ------------------------------------------------------------------------------------

    def _bash(self, machine: Machine, process: Process, words: list[str]) -> int:
        return self._act(machine, process, words[2].split())

    def _act(self, machine: Machine, process: Process, words: list[str]) -> int:
        """What the action does to the world, seen from the outside."""
        _, key, seconds, code, size, *after = words
        effect = process.env[b"LLC_EFFECT_ID"].decode()
        run = next(run for run in self.runs if effect.startswith(run.name))
        again = [action for action in run.actions if action.key == key]
        self._tell(f"act {key} (effect {effect}, pid {process.pid}){' again' if again else ''}")
        if key in run.used and not self._may_stray(process, run):
            raise self._fails(f"{key} of {run.name} is performed again, although its result was used")
        if any(self._is_alone(action) for action in again):
            raise self._fails(f"{key} of {run.name} is performed twice at once")
        for other in self.runs:
            if other is not run and any(self._is_driven(action) for action in other.actions):
                raise self._fails(f"{key} of {run.name} is performed during one of {other.name}")
        others = {action.effect for action in again} - {effect}
        if others:
            raise self._fails(f"{key} of {run.name} has the ids {effect} and {', '.join(others)}")
        run.used |= set(after)
        action = Action(effect, key, process)
        run.actions.append(action)
        self._reach("an action begins")
        # Actions of one kind have the same output.
        half = f"{key.partition('-')[0]}: {SECRET}\n".encode() + b"x" * (int(size) // 2)
        self._write(half + SECRET[:8].encode())
        self.scheduler.wait(lambda: False, float(seconds))
        self._write(SECRET[8:].encode() + half)
        action.has_ended = True
        self._reach("an action ends")
        return int(code)

    @staticmethod
    def _write(data: bytes) -> None:
        """Write output, of which a pipe takes a part at a time."""
        while data:
            data = data[host.files.write(1, data) :]

    def _may_stray(self, process: Process, run: Wanted) -> bool:
        """Whether an action may be performed although its result was used."""
        return False

    @staticmethod
    def _is_alone(action: Action) -> bool:
        """Whether nothing may repeat an action now."""
        return action.process.is_alive

    @staticmethod
    def _is_driven(action: Action) -> bool:
        """Whether it goes on, and the process that has started it lives: its run has its paths."""
        return action.process.is_alive and action.process.parent is not None

    # --- faults ---------------------------------------------------------------------------------------

    def _on_call(self) -> None:
        if self._problem is not None:
            raise Killed
        while self.faults and self.faults[0].at <= self.scheduler.calls:
            self._inject(self.faults.pop(0))

    def _reach(self, kind: str) -> None:
        """A moment that faults may follow: what has just changed is not yet on disk, or not yet seen."""
        soon = [fault for fault in self.faults if fault.moment == (kind, self._moments[kind])]
        self._moments[kind] += 1
        for fault in soon:
            fault.at = min(fault.at, self.scheduler.calls + fault.delay)
        if soon:
            self.faults.sort(key=lambda fault: fault.at)

    @staticmethod
    def drives(process: Process) -> bool:
        """Whether faults are meant for a process."""
        return "run" in process.about

    def _inject(self, fault: Fault) -> None:
        scheduler, machine = self.scheduler, self.machine
        self.injected += 1
        drivers = [process for process in scheduler.living() if self.drives(process)]
        target = drivers[int(fault.amount * len(drivers))] if drivers else None
        self._tell(f"fault: {fault}{'' if target is None else f', {target.name}'}")
        match fault.kind:
            case "kill" if target is not None:
                scheduler.end(target, signal.SIGKILL)
            case "kill-any":
                living = scheduler.living()
                if living:
                    victim = living[int(fault.amount * len(living))]
                    self._is_disturbed = self._is_disturbed or not victim.is_llc
                    scheduler.end(victim, signal.SIGKILL)
            case "power":
                machine.lose_power()
                self._check_disk()
            case "freeze" if target is not None:
                target.is_stopped = True
                scheduler.after(fault.amount * 20, lambda: setattr(target, "is_stopped", False))
            case "terminate" if target is not None:
                # Asked to stop, or its terminal was closed.
                machine.send(target, (signal.SIGTERM, signal.SIGHUP)[fault.at % 2])
            case "second" if target is not None:
                self._start(target.about["run"], is_second=True)
            case "full" | "broken" | "handles":
                # That an action cannot be started is a result, too.
                self._is_disturbed = self._is_disturbed or fault.kind == "handles"
                share = 2 * fault.amount
                span, before = (
                    (SOON, int(share * SOON / 5)) if share < 1 else (int((share - 1) ** 3 * 200), None)
                )
                self._failing = fault.kind, scheduler.calls + span, before
            case "clock":
                machine.wall += (fault.amount - 0.5) * 7200
            case "slow":
                scheduler.now += fault.amount * 30
            case "edit":
                run = self.runs[int(fault.amount * len(self.runs))]
                loops = machine.disk.root.names["project"].names[".loops"]
                for suffix in (".yaml", ".sexp"):
                    node = Node(stat.S_IFREG, 0o644, machine.wall)
                    node.data[:] = b"(this is no program any more"
                    machine.disk.change((loops, run.name + suffix, node))
            case "upgrade":
                set_format(checkpoints.FORMAT + 1)

    def _fail(self, call: str) -> int | None:
        process = self.scheduler.process
        if self._failing is None or process is None or not process.is_llc:
            return None
        kind, until, before = self._failing
        if self.scheduler.calls > until:
            self._failing = None
            return None
        if call not in _FAILING[kind]:
            return None
        if before is not None:
            self._failing = (kind, until, before - 1) if before else None
        return None if before else ERRORS[kind]

    # --- oracles --------------------------------------------------------------------------------------

    def _fails(self, text: str) -> Violation:
        self._problem = self._problem or Violation(text)
        return Violation(text)

    def _tell(self, text: str) -> None:
        self.trace.append(f"{self.scheduler.now - 1000:10.3f} s, call {self.scheduler.calls:5}: {text}")

    def _run_folders(self) -> dict[str, Node]:
        loops = self.machine.disk.root.names["project"].names.get(".loops")
        running = None if loops is None else loops.names.get(".running")
        return {} if running is None else {n: node for n, node in running.names.items() if node.is_folder}

    def _journal(self, folder: Node) -> Node | None:
        return next((node for name, node in folder.names.items() if name.endswith(".events.jsonl")), None)

    def _check_spawn(self, process: Process) -> None:
        """What is started is on disk: its start, all results before it, and the names that lead there."""
        effect = process.env.get(b"LLC_EFFECT_ID", b"").decode()
        run_id, _, seq = effect.rpartition("/")
        folder = self.machine.disk.root
        for name in ("project", ".loops", ".running", run_id):
            found = folder.durable_names.get(name)
            if found is None:
                raise self._fails(
                    f"effect {effect} starts, and the folder `{name}` of its run is not on disk"
                )
            folder = found
        journal = next((n for k, n in folder.durable_names.items() if k.endswith(".events.jsonl")), None)
        if journal is None:
            raise self._fails(f"effect {effect} starts, and its journal is not on disk")
        lines = self._lines_of(run_id, journal.synced)
        if None in lines:
            raise self._fails(f"the journal of {run_id} is damaged on disk when effect {effect} starts")
        kinds = [line[:2] for line in lines if line is not None]
        if ("action_start", int(seq)) not in kinds:
            raise self._fails(f"effect {effect} starts, and its start is not on disk")
        # A result that came after it was begun is of an action beside it, which it does not depend on.
        begun = [line[:2] for line in self._lines_of(run_id, bytes(journal.data)) if line is not None]
        own = len(begun) - 1 - begun[::-1].index(("action_start", int(seq)))
        done = {number for kind, number in begun[:own] if kind == "action_complete"}
        missing = done - {number for kind, number in kinds if kind == "action_complete"}
        if missing:
            raise self._fails(f"effect {effect} starts, and the results of {missing} are not on disk")
        outputs = folder.durable_names.get("outputs", self.machine.null).durable_names
        for kind, number, names in filter(None, lines):
            for name in names if kind == "action_complete" and number in done else ():
                output = outputs.get(name)
                if output is None or output.pending:
                    raise self._fails(f"effect {effect} starts, and an output of {number} is not on disk")
        if int(seq) in done:
            raise self._fails(f"effect {effect} starts, and its result is in the journal")

    def _lines_of(self, run_id: str, data: bytes) -> list[tuple[str, Any, list[str]] | None]:
        """Of each line of a journal: the event, the number of the effect, its outputs; None if damaged."""
        known, lines = self._read.get(run_id, (b"", []))
        if not data.startswith(known):
            known, lines = b"", []
        *added, _ = data[len(known) :].split(b"\n")
        lines = lines + [
            event and (event["event"], event.get("seq"), [name.decode() for name in _OUTPUT.findall(line)])
            for line, event in zip(added, map(unseal, added), strict=True)
        ]
        self._read[run_id] = data[: data.rindex(b"\n") + 1] if lines else b"", lines
        return lines

    def _check_write(self, process: Process | None, node: Node) -> None:
        """Only the owner writes into the folder of a run, and what was on disk of the journal stays."""
        if process is None or not process.is_llc:
            return
        for name, folder in self._run_folders().items():
            if node not in folder.names.values():
                continue
            lock = folder.names.get("lock")
            owner = None if lock is None else lock.exclusive
            if node is not lock and (owner is None or owner not in process.handles.values()):
                raise self._fails(f"{process.name} writes into {name} without its lock")
            journal = self._journal(folder)
            if node is journal:
                run = next(run for run in self.runs if name.startswith(run.name))
                kept = run.durable.get(name, b"")
                if not node.data.startswith(kept):
                    raise self._fails(f"{process.name} changes what was on disk of the journal of {name}")

    def _check_names(self, process: Process | None, changes: Sequence[Change]) -> None:
        """Only the owner removes, moves and adds files of a run; a start without a record may be removed."""
        if process is None or not process.is_llc:
            return
        for name, folder in self._run_folders().items():
            lock = self._locks[name] = folder.names.get("lock") or self._locks.get(name, self.machine.null)
            of_run = [
                what
                for place, what, node in changes
                if (place is folder and (what, node is None) != ("lock", False))
                or place.names.get(what) is folder
            ]
            if not of_run:
                continue
            journal = self._journal(folder)
            # A resume does not read them. A loss of power that takes a part of them, and leaves their end and
            # the checkpoint, is so rare that no number of histories shows it.
            if (
                journal is not None
                and journal.pending
                and any(what.startswith("checkpoint-") for what in of_run)
            ):
                raise self._fails(f"a checkpoint of {name} replaces events that are not on disk")
            is_recorded = journal is not None and b"\n" in journal.data
            if is_recorded and (lock.exclusive is None or lock.exclusive not in process.handles.values()):
                raise self._fails(f"{process.name} changes {of_run[0]} in {name} without its lock")

    def _note_sync(self, node: Node) -> None:
        """What is synced of a journal stays, but a line whose output was lost before may be set aside."""
        for name, folder in self._run_folders().items():
            if node is self._journal(folder):
                run = next(run for run in self.runs if name.startswith(run.name))
                kept = run.durable.get(name, b"")
                outputs = folder.names["outputs"].names if "outputs" in folder.names else {}
                if node.synced.startswith(kept):
                    run.durable[name] = kept + _lines(node.synced[len(kept) :], outputs)

    def _check_told(self, run: Wanted) -> None:
        """The end that a user is told is on disk."""
        path = _place_of(self.machine, run)
        folder = self.machine.disk.find(path, PROJECT)
        journal = self._journal(folder)
        if journal is None or b'{"event":"run_end"' not in journal.synced:
            raise self._fails(f"{run.name} has ended, and that is not on disk")

    def _check_disk(self) -> None:
        """After a loss of power: what was on disk of the journals is there."""
        for name, folder in self._run_folders().items():
            journal = self._journal(folder)
            run = next(run for run in self.runs if name.startswith(run.name))
            if journal is not None and not journal.data.startswith(run.durable.get(name, b"")):
                self._fails(f"the disk has lost a part of the journal of {name}")

    def _check_end(self) -> None:
        """Every run has ended as without faults, and no file has a secret."""
        for path, node in self.machine.disk.files():
            if SECRET.encode() in node.data:
                raise Violation(f"{path} contains a secret")
        if self._is_disturbed:
            return
        for run in self.runs:
            found = record_of(self.machine, run)
            expected = reference(run.program)
            for name, value in expected.items():
                if found[name] != value:
                    raise Violation(
                        f"{run.name}: {name} is {_short(found[name])}, and {_short(value)} without faults"
                    )


def set_format(number: int) -> None:
    """Let llc be a version that reads and writes other checkpoints."""
    checkpoints.FORMAT = checkpoint_reader.FORMAT = number


@lru_cache(4096)
def unsealed(line: bytes) -> dict[str, Any] | None:
    """As `unseal`, for oracles that look at the same lines again and again."""
    return unseal(line)


def _lines(data: bytes, outputs: Container[str]) -> bytes:
    """The whole lines before the first that is damaged, or that names an output that there is not."""
    end = 0
    for line in data.split(b"\n")[:-1]:
        if unsealed(line) is None or any(name.decode() not in outputs for name in _OUTPUT.findall(line)):
            break
        end += len(line) + 1
    return data[:end]


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 300 else text[:300] + "…"


def _place_of(machine: Machine, run: Wanted) -> str:
    """The folder of a run."""
    found = []
    for place in (".loops/.history", ".loops/.running"):
        with suppress(FileNotFoundError):
            names = machine.disk.find(place, PROJECT).names
            found += [
                f"{place}/{name}"
                for name, folder in names.items()
                if name.startswith(run.name)
                and any(file.endswith(JOURNAL_SUFFIX) and node.data for file, node in folder.names.items())
            ]
    if len(found) != 1:
        raise Violation(f"{run.name} is there {len(found)} times")
    return found[0]


def record_of(machine: Machine, run: Wanted) -> dict[str, Any]:
    """What the journal of an ended run says, without times and numbers that depend on chance."""
    folder = RunFolder("", _place_of(machine, run))
    results: dict[str, Any] = {}
    commands: dict[int, str] = {}
    last: dict[str, Any] = {}
    notes: list[Any] = []
    for event in read(folder.journal):
        if isinstance(event, Damage):
            raise Violation(f"the journal of {run.name}, which has ended, is damaged: {event}")
        fields = unpack(event.wire, Blobs(folder.outputs).fetch)
        kind = event.name
        if kind == "action_start":
            commands[fields["seq"]] = str(fields.get("command") or fields.get("args"))
        elif kind == "action_complete":
            result = fields.get("result") or fields
            results[commands.get(fields["seq"], "?")] = _timeless(result)
        elif isinstance(event, NoteEvent):
            notes.append((kind, _timeless(fields), fields.get("loop") == run.name))
        last = fields
    end = {
        name: last.get(name)
        for name in ("status", "terminated_by", "final_state", "iterations", "steps", "value")
    }
    return {"end": end, "results": results, "notes": notes}


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _timeless(item)
            for name, item in value.items()
            if name not in ("duration_ms", "elapsed_ms", "ts", "seq", "crc", "event", "active_ms", "loop")
        }
    # Where all of a long output is, or that the disk had no place for it.
    return _COPY.sub(r"[\1]", value) if isinstance(value, str) else value


@cache
def reference(program: str) -> dict[str, Any]:
    """What the record of a program says when nothing happens."""
    outer = getattr(host, "machine", None)
    try:
        simulation = Simulation(0, without_faults=program)
        host.machine = simulation.machine
        run = simulation.runs[0]
        simulation.scheduler.after(0.0, simulation._operate)
        simulation.scheduler.run(simulation._is_over)
        if simulation._problem is not None:
            raise simulation._problem
        return record_of(simulation.machine, run)
    finally:
        host.machine = outer  # type: ignore[assignment]


host = SimulatedHost()


def simulate(seed: int, kept: Sequence[int] | None = None) -> Simulation:
    """One simulated history, which has ended."""
    return perform(Simulation(seed, kept))


def perform(simulation: Simulation) -> Simulation:
    """Let a history happen. What its processes leave in memory is removed without an effect."""
    host.machine = simulation.machine
    try:
        simulation.run()
    except (Exception, Killed) as error:
        simulation.error = error
    finally:
        with simulation.scheduler.as_dead():
            simulation.scheduler.forget()
            if simulation.seed % simulation.kept_histories == 0:
                gc.collect()
    return simulation


@contextmanager
def installed() -> Iterator[None]:
    """Inside, llc runs on the simulated host. Programs are compiled before, on the real one."""
    for name in programs.TEXTS:
        for copy in range(3):
            programs.image_of(name, copy)
    gc.collect()
    gc.freeze()
    gc.disable()  # what is removed then might call the host
    before, sys.unraisablehook = sys.unraisablehook, _ignore_killed
    was_possible, space, check = keeper._is_possible, checkpoints.SPACE, verify.verify_image
    keeper._is_possible = False  # actions that survive are tested with real processes
    checkpoints.SPACE = SPACE
    verify.verify_image = _verified_once(check)  # the programs of all histories are the same
    try:
        with protocol.installed(host):
            yield
    finally:
        keeper._is_possible, checkpoints.SPACE, verify.verify_image = was_possible, space, check
        set_format(FORMAT)
        with Scheduler(Random(0)).as_dead() as scheduler:
            host.machine = Machine(scheduler)
            gc.collect()
        sys.unraisablehook = before
        gc.unfreeze()
        gc.enable()


def _verified_once(check: Callable[[Image], None]) -> Callable[[Image], None]:
    sound: set[str] = set()

    def verify_image(image: Image) -> None:
        if image.program_hash not in sound:
            check(image)
            sound.add(image.program_hash)

    return verify_image


def _ignore_killed(problem: sys.UnraisableHookArgs) -> None:
    if problem.exc_type is not Killed:
        sys.__unraisablehook__(problem)
