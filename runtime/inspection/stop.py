"""Stopping runs from outside: ask, wait, insist; and say what came of it.

The process that is signalled is the one that holds the run's lock, by its pid *and* start time; one that
runs others too gets the id of the run. The
first request lets it finish its journal and end its action, as Ctrl-C does; the second is not patient
with the action; after that it is killed, and what it had started is ended for it. All leave a run that
can be resumed.
"""

from __future__ import annotations

import contextlib
import os.path
from typing import Any

from ...ir.light_records import LightRecord
from ..execution import control_channel
from ..host import clock, files, keeper, leftovers, pipes, processes, signals
from ..host.errors import Failure, UserError, reason
from ..host.paths import HISTORY, ROOT
from ..journal.events import RunEnd, RunInterrupted
from ..journal.run_folder import RunFolder, has_ended
from ..journal.run_history import CRASHED, INTERRUPTED
from ..runs.follower import history_of
from ..runs.locks import is_live
from ..runs.lookup import find_run_folder, is_run_of
from ..runs.runs import runs_in

# Seconds that a second request gets, and a kill.
INSISTING = 3.0
_LAST = 5.0
# Seconds until a run that is just being taken over has said by whom.
_SETTLING = 1.0
_POLL = 0.01


class Holder:
    """The process that runs a run; closing lets go of what tells it from a later one.

    host: where it takes requests, if it may run others too. is_keeper: it has the actions of a run whose
    process has died, and perhaps those of others.
    """

    def __init__(
        self, run: RunFolder, pid: int, descriptor: int, host: str | None = None, is_keeper: bool = False
    ) -> None:
        self.run = run
        self.pid = pid
        self.host = host
        self.is_keeper = is_keeper
        self._descriptor = descriptor

    @classmethod
    def find(cls, run: RunFolder) -> Holder | None:
        """The holder of a run, None without one. Raises UserError where it cannot be identified."""
        end = clock.monotonic() + _SETTLING
        while is_live(run):
            about = run.about()
            pid, begun = about.get("pid"), about.get("start_time")
            if isinstance(pid, int) and pid > 0:
                descriptor = _open(pid)
                # Asked after the process was pinned down: it cannot become another one any more.
                if processes.start_time(pid) == begun and is_live(run):
                    host = about.get("host")
                    host = host if isinstance(host, str) else None
                    return cls(run, pid, descriptor, host, bool(about.get("kept")))
                if descriptor >= 0:
                    files.close(descriptor)
            if clock.monotonic() >= end:
                raise Failure(
                    "unknown-holder",
                    f"{run.id} is held by a process that cannot be found here (pid {pid})",
                    "it may run in another container or on another machine; stop it there",
                )
            clock.sleep(_POLL)
        return None

    def send(self, number: int) -> None:
        """Raises UserError where the process is not ours to signal."""
        try:
            if self._descriptor >= 0:
                processes.pidfd_send_signal(self._descriptor, number)
            elif is_live(self.run):
                processes.kill(self.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            raise Failure(
                "not-permitted", f"{self.run.id} (pid {self.pid}) is another user's process"
            ) from None

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time, or has let go of the run."""
        if self._descriptor >= 0 and self.host is None and not self.is_keeper:
            poller = pipes.poll()
            poller.register(self._descriptor, pipes.POLLIN)
            return bool(poller.poll(min(max(0, int(seconds * 1000)), 2**31 - 1)))
        end = clock.monotonic() + seconds
        while is_live(self.run):
            if clock.monotonic() >= end:
                return False
            clock.sleep(_POLL)
        return True

    def ask(self) -> None:
        """Ask it to stop. Raises UserError."""
        if self.is_keeper:
            self.send(signals.SIGCONT)  # it has to answer
        self.insist()
        # A suspended process (Ctrl-Z) handles the request when it continues.
        self.send(signals.SIGCONT)

    def insist(self) -> None:
        """Ask it once, or once more. Raises UserError."""
        if self.host is None:
            if not (self.is_keeper and keeper.stop(self.run.path)):
                self.send(signals.SIGTERM)
            return
        try:
            control_channel.ask(self.host, self.run.id)
        except OSError as error:
            raise Failure(
                "not-permitted",
                f"{self.run.id} (pid {self.pid}) cannot be asked by {self.host}: {reason(error)}",
            ) from None

    def close(self) -> None:
        if self._descriptor >= 0:
            files.close(self._descriptor)
            self._descriptor = -1


def _open(pid: int) -> int:
    try:
        return processes.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


class Stopped(LightRecord):
    """What came of it for one run.

    how: "stopped" (it left a record of it), "left" (the queue; there is nothing to resume), "ended" (by
    itself), "killed", "failed".
    """

    run: str
    how: str
    seconds: float = 0.0
    message: str = ""
    status: str | None = None
    state: str | None = None
    iteration: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "how": self.how,
            "status": self.status,
            "state": self.state,
            "iteration": self.iteration,
            "duration_ms": round(self.seconds * 1000),
            "message": self.message or None,
        }

    def as_text(self) -> str:
        where = f" in {self.state}, iteration {self.iteration}" if self.state is not None else ""
        again = f"\nResume with: llc resume {self.run}"
        match self.how:
            case "stopped":
                return f"Stopped {self.run}{where} (after {self.seconds:.1f}s){again}"
            case "left":
                return f"{self.run} has left the queue; it had not begun"
            case "ended":
                return f"{self.run} has ended by itself: {self.status}"
            case "killed":
                return f"Killed {self.run}{where}: it did not stop within {self.seconds:.1f}s{again}"
        return f"{self.run} was not stopped: {self.message}"


def live_runs(target: str | None) -> list[RunFolder]:
    """The runs that live now: all, or those that `target` means."""
    return [
        run
        for run in runs_in(ROOT)
        if (target is None or run.id == target or is_run_of(run, target)) and is_live(run)
    ]


def not_running(run: RunFolder) -> UserError:
    """The error for a run that can be neither stopped nor attached to."""
    last = run.last_event()
    if isinstance(last, RunEnd):
        message = f"{run.id} has ended: {last.status}"
        return Failure("not-running", message, f"what happened: llc logs {run.id}")
    if has_ended(run.journal):
        message = f"{run.id} has ended, but its outcome is lost"
        return Failure("not-running", message, f"what happened: llc logs {run.id}")
    message = f"{how_it_was_left(run)} and is not running"
    return Failure("not-running", message, f"resume it with: llc resume {run.id}")


def how_it_was_left(run: RunFolder) -> str:
    """A clause on an unfinished run that no process executes."""
    is_interrupted = isinstance(run.last_event(), RunInterrupted)
    return f"{run.id} was stopped" if is_interrupted else f"{run.id} crashed"


def chosen(target: str | None, is_all: bool) -> list[RunFolder]:
    """The runs to stop. Raises UserError where there is none, or it is not clear which one."""
    if target is None and not is_all:
        raise UserError("bad-option", "name a run or a loop to stop, or say --all")
    found = live_runs(target)
    if not found:
        if target is None:
            return []
        raise not_running(find_run_folder(target))
    if len(found) > 1 and not is_all:
        names = ", ".join(run.id for run in found)
        raise UserError(
            "several-runs", f"{len(found)} runs of `{target}` are running: {names}", "name one, or say --all"
        )
    return found


def stop(found: list[RunFolder], wait: float) -> list[Stopped]:
    """Stop these runs, all at the same time; each is asked, and after `wait` seconds made to."""
    begun = clock.monotonic()
    results: dict[str, Stopped] = {}
    holders: list[Holder] = []
    for run in found:
        try:
            holder = Holder.find(run)
            if holder is not None:
                holders.append(holder)
                holder.ask()
        except UserError as error:
            results[run.id] = Stopped(run.id, "failed", message=error.message)
    left = holders
    for stage, seconds in ((None, wait), (signals.SIGTERM, INSISTING), (signals.SIGKILL, _LAST)):
        end = clock.monotonic() + seconds
        if stage == signals.SIGKILL:
            left, kept = _apart(left, {run.id for run in found})
            for holder in kept:
                results[holder.run.id] = Stopped(
                    holder.run.id,
                    "failed",
                    message=f"it does not end, and pid {holder.pid}, which has it, runs others too",
                )
        if stage is not None:
            for holder in left:
                with contextlib.suppress(UserError):
                    holder.insist() if stage == signals.SIGTERM else holder.send(stage)
        still = []
        for holder in left:
            if holder.wait(end - clock.monotonic()):
                was_killed = stage == signals.SIGKILL
                results[holder.run.id] = _what_came(holder.run, clock.monotonic() - begun, was_killed)
            else:
                still.append(holder)
        left = still
    for holder in left:
        results[holder.run.id] = Stopped(
            holder.run.id, "failed", message=f"pid {holder.pid} does not end even when it is killed"
        )
    for holder in holders:
        holder.close()
    return [results[run.id] if run.id in results else _what_came(run, 0.0, False) for run in found]


def _apart(holders: list[Holder], wanted: set[str]) -> tuple[list[Holder], list[Holder]]:
    """Those whose processes run nothing but runs that are to be stopped, and the others."""
    others = [run.about() for run in live_runs(None) if run.id not in wanted] if holders else []
    needed = {about.get("pid") for about in others}
    alone = [holder for holder in holders if holder.pid not in needed]
    return alone, [holder for holder in holders if holder not in alone]


def _what_came(run: RunFolder, seconds: float, was_killed: bool) -> Stopped:
    if was_killed:
        with contextlib.suppress(UserError):
            survivor = Holder.find(run)
            if survivor is not None:  # its actions have survived it
                survivor.insist()
                survivor.wait(_LAST)
                survivor.close()
        end_leftovers(run)
    if not files.exists(run.path):
        run = RunFolder(run.root, os.path.join(run.root, HISTORY, run.id))
    if not files.exists(run.path):
        return Stopped(run.id, "left", seconds)
    stopped = Stopped(run.id, "killed" if was_killed else "stopped", seconds)
    with contextlib.suppress(UserError):
        history = history_of(run)
        stopped.state, stopped.iteration = history.state, history.iteration
    match run.last_event():
        case RunEnd(status=status):
            stopped.how, stopped.status = "ended", status
        case RunInterrupted():
            stopped.status = INTERRUPTED
        case _:
            stopped.status = CRASHED
    return stopped


def end_leftovers(run: RunFolder) -> None:
    """End the processes of a run that was killed; otherwise they would run until it is resumed."""
    with contextlib.suppress(UserError):
        for seq, effect in history_of(run).pending.items():
            leftovers.end_effect(f"{run.id}/{seq}", effect.processes)
