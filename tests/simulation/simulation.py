"""One simulated history: runs, operators, faults, and oracles that check continuously.

`Simulation(seed).run()` builds a machine, starts runs, injects the faults of its plan and resumes unfinished
runs until every run has ended. It raises Violation if a promise of `spec/promises.md` is broken. The seed
determines the plan; `enabled_faults` selects faults of it, which is used to shrink a failure.
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
# Virtual seconds within which a run must end after the last fault.
PATIENCE_S = 900.0
# Probability of an inspection command at each step of the operator.
INSPECTION_RATE = 0.15
# Bytes of journal between two checkpoints, small enough for checkpoints in a short run.
SPACE = 4096
# Faults happen before this number of host calls; a short run has about a thousand.
MAX_FAULT_CALL = 4000
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
# The share of histories in which a program is edited, or llc is replaced by another version.
CHANGES = 0.15
FORMAT = checkpoints.FORMAT
ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO, "handles": errno.EMFILE}
# Some faults follow a moment, one of the first of its kind in a history, within this number of host calls.
MOMENTS = ("llc starts", "a run changes hands", "an action begins", "an action ends")
MAX_OCCURRENCES = 8
MAX_DELAY_CALLS = 80
# Calls that fail, by kind of error.
_FAILING = {
    "full": ("write", "name"),
    "broken": ("write", "sync", "truncate"),
    "handles": ("open",),
}


class Violation(Exception):
    """A promise is broken."""


class Fault:
    """at: the host call at which it happens; earlier if it is `delay` calls after a moment."""

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
    """An action as observed from outside."""

    def __init__(self, effect: str, key: str, process: Process) -> None:
        self.effect = effect
        self.key = key
        self.process = process
        self.has_ended = False


class RequestedRun:
    """A run that the operator wants to end. used: the actions whose results it has used."""

    def __init__(self, program: str, copy: int) -> None:
        self.program = program
        self.name = f"{program}-{copy}"
        self.image = programs.image_of(program, copy)
        self.actions: list[Action] = []
        self.used: set[str] = set()
        self.is_over = False
        self.attempts = 0
        # The longest durable part of its journal, by folder; a start without an action may be lost.
        self.durable: dict[str, bytes] = {}


class Simulation:
    """seed: of all choices. enabled_faults: numbers of the faults of the plan that happen, None for all.

    error: the violation or exception at the end; None for success.
    """

    error: BaseException | None = None
    kinds, moments = KINDS, MOMENTS
    # Number of histories in memory before their remains are removed.
    histories_in_memory = 16

    def __init__(
        self, seed: int, enabled_faults: Sequence[int] | None = None, reference_program: str = ""
    ) -> None:
        self.seed = seed
        random = Random(seed)
        set_format(FORMAT)
        self.scheduler = Scheduler(Random(random.random()))
        self.machine = Machine(self.scheduler)
        self.machine.disk.is_ordered = random.random() < 0.5
        self.trace: list[str] = []
        names = list(programs.TEXTS)
        chosen = [random.choice(names) for _ in range(random.choice((1, 1, 1, 1, 1, 2, 2, 3)))]
        if reference_program:
            chosen = [reference_program]
        self.runs = [RequestedRun(name, copy) for copy, name in enumerate(chosen)]
        self.plan = [] if reference_program else self._plan(random)
        wanted = range(len(self.plan)) if enabled_faults is None else enabled_faults
        self.faults = [self.plan[number] for number in wanted]
        self.injected = 0
        self._moments = dict.fromkeys(MOMENTS, 0)
        # Kind of the error, the call at which it ends, and for a single error the number of calls before it.
        self._failing: tuple[str, int, int | None] | None = None
        # The locks of runs; a folder that is being removed may have lost its lock.
        self._locks: dict[str, Node] = {}
        # The last read content of each journal, and its lines.
        self._read: dict[str, tuple[bytes, list[Any]]] = {}
        self._quiet_since = 0.0
        # Whether an action has another result than without faults.
        self._is_disturbed = False
        self._problem: BaseException | None = None
        self._prepare()

    def _plan(self, random: Random) -> list[Fault]:
        count = random.choice((1, 2, 3, 5, 8, 13, 21))
        span = random.choice((100, 300, 1000, MAX_FAULT_CALL))
        share = random.choice((0.0, 0.3, 0.7))
        plan = []
        for _ in range(count):
            fault = Fault(random.randrange(1, span), random.choice(self.kinds), random.random())
            if random.random() < share:
                fault.moment = random.choice(self.moments), random.randrange(MAX_OCCURRENCES)
                fault.delay = int(MAX_DELAY_CALLS * random.random() ** 2)
            plan.append(fault)
        # Changes of files are chosen separately, so that the other faults of a seed stay the same.
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
        machine.on_lock = lambda: self._reach_moment("a run changes hands")
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

    # --- history ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the history. Raises Violation."""
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
        """Periodically start and resume runs without a driver; fail for runs that take too long."""
        if not self.faults:
            if not self._quiet_since:
                self._quiet_since = self.scheduler.now
            if self.scheduler.now - self._quiet_since > PATIENCE_S:
                waiting = ", ".join(run.name for run in self.runs if not run.is_over)
                self._fails(f"{waiting} did not end within {PATIENCE_S:g} s without faults")
        for run in self.runs:
            if not run.is_over:
                self._advance(run)
        self._supervise()
        self.scheduler.after(self.scheduler.random.choice((0.05, 0.5, 5.0)), self._operate)

    def _advance(self, run: RequestedRun) -> None:
        """Start or resume a run without a driver."""
        if not any(process.about.get("run") is run for process in self.scheduler.living()):
            self._start(run)

    def _supervise(self) -> None:
        """Other periodic commands."""
        for name, action in (("llc status", self._check_status), ("llc batch", self._clean_up)):
            if self.scheduler.random.random() < INSPECTION_RATE:
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

    def _check_status(self) -> int:
        """The result of `llc status` for each run agrees with the owner of its lock."""
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
                continue  # the owner changed in between
            if holder is not None and word in ("crashed", "interrupted"):
                raise self._fails(f"status says that {folder.id} is {word}, and {holder.name} drives it")
            if holder is None and word in ("running", "queued"):
                raise self._fails(f"status says that {folder.id} is {word}, and it has no driver")
        return 0

    def _clean_up(self) -> int:
        """Remove the remains of killed starts, as a batch does before it starts runs."""
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
        """The process that holds a lock."""
        for process in self.scheduler.living() if lock.exclusive is not None else ():
            if lock.exclusive in process.handles.values():
                return process
        return None

    def _start(self, run: RequestedRun, is_second: bool = False) -> None:
        """Start a process that drives the run; a second one only resumes it."""
        run.attempts += 1
        process = self._new_process(f"llc {run.name} #{run.attempts}")
        process.about |= {"run": run, "is_second": is_second}
        self._log(f"start {process.name} (pid {process.pid})")
        self._reach_moment("llc starts")
        self.scheduler.start(process, lambda: self._drive(process, run))

    def _null(self) -> OpenFile:
        return OpenFile(self.machine, self.machine.null, 2)

    def _drive(self, process: Process, run: RequestedRun) -> int:
        """The main program of llc: start a run, or resume the existing one."""
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
        self._log(f"{process.name} ended: {ended.status}")
        if ended.status != "interrupted":
            # Its end has been reported to the user: from now on no action of it may be performed again.
            self._check_reported(run)
            run.used |= {action.key for action in run.actions}
            run.is_over = not self.faults or self.scheduler.random.random() < 0.5
            if not run.is_over:
                self.faults.insert(0, Fault(0, "power", 0.0))
        return 0

    def _failed(self, process: Process, run: RequestedRun, command: Command, error: BaseException) -> int:
        shown = failures.of_run(error, command.folder) if isinstance(error, Exception) else error
        self._log(f"{process.name} failed: {type(shown).__name__}: {shown}")
        if failures.is_internal(shown):
            error.add_note(f"in {process.name}")
            self._problem = error
        return 1

    def _folder(self, run: RequestedRun) -> Any:
        """Folder of the run, "ended" if it is in the history, None if there is none."""
        for _ in range(2):  # it may end between the two checks
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
        """The effect of an action on the world, as observed from outside."""
        _, key, seconds, code, size, *after = words
        effect = process.env[b"LLC_EFFECT_ID"].decode()
        run = next(run for run in self.runs if effect.startswith(run.name))
        again = [action for action in run.actions if action.key == key]
        self._log(f"act {key} (effect {effect}, pid {process.pid}){' again' if again else ''}")
        if key in run.used and not self._may_repeat(process, run):
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
        self._reach_moment("an action begins")
        # Actions of one kind have the same output.
        half = f"{key.partition('-')[0]}: {SECRET}\n".encode() + b"x" * (int(size) // 2)
        self._write(half + SECRET[:8].encode())
        self.scheduler.wait(lambda: False, float(seconds))
        self._write(SECRET[8:].encode() + half)
        action.has_ended = True
        self._reach_moment("an action ends")
        return int(code)

    @staticmethod
    def _write(data: bytes) -> None:
        """Write output; a pipe accepts a part at a time."""
        while data:
            data = data[host.files.write(1, data) :]

    def _may_repeat(self, process: Process, run: RequestedRun) -> bool:
        """Whether an action may be performed although its result was used."""
        return False

    @staticmethod
    def _is_alone(action: Action) -> bool:
        """Whether an action must not be repeated now."""
        return action.process.is_alive

    @staticmethod
    def _is_driven(action: Action) -> bool:
        """Whether it is running and the process that started it is alive, so its run holds its paths."""
        return action.process.is_alive and action.process.parent is not None

    # --- faults ---------------------------------------------------------------------------------------

    def _on_call(self) -> None:
        if self._problem is not None:
            raise Killed
        while self.faults and self.faults[0].at <= self.scheduler.calls:
            self._inject(self.faults.pop(0))

    def _reach_moment(self, kind: str) -> None:
        """A moment that faults may follow: the latest change is not yet durable or visible."""
        soon = [fault for fault in self.faults if fault.moment == (kind, self._moments[kind])]
        self._moments[kind] += 1
        for fault in soon:
            fault.at = min(fault.at, self.scheduler.calls + fault.delay)
        if soon:
            self.faults.sort(key=lambda fault: fault.at)

    @staticmethod
    def drives(process: Process) -> bool:
        """Whether a process is a target of faults."""
        return "run" in process.about

    def _inject(self, fault: Fault) -> None:
        scheduler, machine = self.scheduler, self.machine
        self.injected += 1
        drivers = [process for process in scheduler.living() if self.drives(process)]
        target = drivers[int(fault.amount * len(drivers))] if drivers else None
        self._log(f"fault: {fault}{'' if target is None else f', {target.name}'}")
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
                # SIGTERM, or its terminal was closed.
                machine.send(target, (signal.SIGTERM, signal.SIGHUP)[fault.at % 2])
            case "second" if target is not None:
                self._start(target.about["run"], is_second=True)
            case "full" | "broken" | "handles":
                # A failure to start an action is a result, too.
                self._is_disturbed = self._is_disturbed or fault.kind == "handles"
                share = 2 * fault.amount
                span, before = (
                    (MAX_DELAY_CALLS, int(share * MAX_DELAY_CALLS / 5))
                    if share < 1
                    else (int((share - 1) ** 3 * 200), None)
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

    def _log(self, text: str) -> None:
        self.trace.append(f"{self.scheduler.now - 1000:10.3f} s, call {self.scheduler.calls:5}: {text}")

    def _run_folders(self) -> dict[str, Node]:
        loops = self.machine.disk.root.names["project"].names.get(".loops")
        running = None if loops is None else loops.names.get(".running")
        return {} if running is None else {n: node for n, node in running.names.items() if node.is_folder}

    def _journal(self, folder: Node) -> Node | None:
        return next((node for name, node in folder.names.items() if name.endswith(".events.jsonl")), None)

    def _check_spawn(self, process: Process) -> None:
        """The start of the action, all earlier results and their names are durable."""
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
        # A result recorded after the start belongs to a concurrent action, on which this one does not depend.
        events = [line[:2] for line in self._lines_of(run_id, bytes(journal.data)) if line is not None]
        own = len(events) - 1 - events[::-1].index(("action_start", int(seq)))
        done = {number for kind, number in events[:own] if kind == "action_complete"}
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
        """For each line of a journal: event, number of the effect, and outputs; None if damaged."""
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
        """Only the owner writes to the folder of a run, and the durable part of its journal does not
        change.
        """
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
                durable = run.durable.get(name, b"")
                if not node.data.startswith(durable):
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
            # A resume does not read them. A loss of power that takes a part of them and leaves their end and
            # the checkpoint is too rare to be simulated.
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
        """The synced part of a journal is durable; a line whose output was lost before may be set aside."""
        for name, folder in self._run_folders().items():
            if node is self._journal(folder):
                run = next(run for run in self.runs if name.startswith(run.name))
                durable = run.durable.get(name, b"")
                outputs = folder.names["outputs"].names if "outputs" in folder.names else {}
                if node.synced.startswith(durable):
                    run.durable[name] = durable + _lines(node.synced[len(durable) :], outputs)

    def _check_reported(self, run: RequestedRun) -> None:
        """A reported end is durable."""
        path = _folder_of(self.machine, run)
        folder = self.machine.disk.find(path, PROJECT)
        journal = self._journal(folder)
        if journal is None or b'{"event":"run_end"' not in journal.synced:
            raise self._fails(f"{run.name} has ended, and that is not on disk")

    def _check_disk(self) -> None:
        """After a loss of power the durable parts of the journals exist."""
        for name, folder in self._run_folders().items():
            journal = self._journal(folder)
            run = next(run for run in self.runs if name.startswith(run.name))
            if journal is not None and not journal.data.startswith(run.durable.get(name, b"")):
                self._fails(f"the disk has lost a part of the journal of {name}")

    def _check_end(self) -> None:
        """Every run has ended as without faults, and no file contains a secret."""
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
    """Simulate a version of llc with another checkpoint format."""
    checkpoints.FORMAT = checkpoint_reader.FORMAT = number


@lru_cache(4096)
def cached_unseal(line: bytes) -> dict[str, Any] | None:
    """Cached `unseal`, for oracles that check the same lines repeatedly."""
    return unseal(line)


def _lines(data: bytes, outputs: Container[str]) -> bytes:
    """The complete lines before the first one that is damaged or names a missing output."""
    end = 0
    for line in data.split(b"\n")[:-1]:
        if cached_unseal(line) is None or any(name.decode() not in outputs for name in _OUTPUT.findall(line)):
            break
        end += len(line) + 1
    return data[:end]


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 300 else text[:300] + "…"


def _folder_of(machine: Machine, run: RequestedRun) -> str:
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
        raise Violation(f"{run.name} exists {len(found)} times")
    return found[0]


def record_of(machine: Machine, run: RequestedRun) -> dict[str, Any]:
    """The journal of an ended run, without times and numbers that depend on chance."""
    folder = RunFolder("", _folder_of(machine, run))
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
    # The position of the complete output, or the note that the disk was full.
    return _COPY.sub(r"[\1]", value) if isinstance(value, str) else value


@cache
def reference(program: str) -> dict[str, Any]:
    """The record of a program without faults."""
    outer = getattr(host, "machine", None)
    try:
        simulation = Simulation(0, reference_program=program)
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


def simulate(seed: int, enabled_faults: Sequence[int] | None = None) -> Simulation:
    """Run the history of a seed to its end."""
    return perform(Simulation(seed, enabled_faults))


def perform(simulation: Simulation) -> Simulation:
    """Run a history. Objects that its processes leave in memory are removed without effects."""
    host.machine = simulation.machine
    try:
        simulation.run()
    except (Exception, Killed) as error:
        simulation.error = error
    finally:
        with simulation.scheduler.as_dead():
            simulation.scheduler.forget()
            if simulation.seed % simulation.histories_in_memory == 0:
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
    gc.disable()  # finalizers might call the host
    before, sys.unraisablehook = sys.unraisablehook, _ignore_killed
    was_possible, space, check = keeper._is_possible, checkpoints.SPACE, verify.verify_image
    keeper._is_possible = False  # real processes test surviving actions
    checkpoints.SPACE = SPACE
    verify.verify_image = _verified_once(check)  # all histories have the same programs
    try:
        with protocol.installed(host):
            try:
                yield
            finally:
                # Runs that have not ended are finalized here, on a simulated host that kills them.
                with Scheduler(Random(0)).as_dead() as scheduler:
                    host.machine = Machine(scheduler)
                    gc.collect()
    finally:
        keeper._is_possible, checkpoints.SPACE, verify.verify_image = was_possible, space, check
        set_format(FORMAT)
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
