"""Stopping runs from another process: request, wait, insist, kill; and the result for each run.

The target is the process that holds the run's lock, identified by pid *and* start time. A process that
executes several runs is not signalled: it gets the id of the run through its control channel. The first
request lets it end its action and complete its journal, as Ctrl-C does. The second request kills the action.
After that the process is killed, and its remaining processes are ended. In each case the run can be resumed.
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
from ..runs.follower import load_history
from ..runs.lookup import find_run_folder, is_run_of
from ..runs.run_lock import is_live
from ..runs.runs import runs_in

# Seconds to wait after the second request, and after a kill.
INSIST_SECONDS = 3.0
_KILL_SECONDS = 5.0
# Seconds to wait for the identity of the new owner during a take-over of a run.
_TAKE_OVER_SECONDS = 1.0
_POLL_INTERVAL = 0.01


class Holder(LightRecord):
    """The process that executes a run. `close` releases the handle (pidfd) that identifies it.

    host: the control channel of a process that may execute several runs; None for others. is_keeper: a keeper
    that holds the actions of a run whose process has died, and possibly those of other runs.
    """

    run: RunFolder
    pid: int
    _descriptor: int
    host: str | None = None
    is_keeper: bool = False

    @classmethod
    def find(cls, run: RunFolder) -> Holder | None:
        """The holder of a run; None without one. Raises UserError if it cannot be identified."""
        end = clock.monotonic() + _TAKE_OVER_SECONDS
        while is_live(run):
            about = run.about()
            pid, start_time = about.get("pid"), about.get("start_time")
            if isinstance(pid, int) and pid > 0:
                descriptor = processes.exit_handle(pid)
                # Checked after the pidfd was opened: from then on the pid cannot be reused.
                if processes.start_time(pid) == start_time and is_live(run):
                    host = about.get("host")
                    host = host if isinstance(host, str) else None
                    return cls(run, pid, descriptor, host, bool(about.get("kept")))
                if descriptor >= 0:
                    files.close(descriptor)
            if clock.monotonic() >= end:
                raise Failure(
                    "unknown-holder",
                    f"{run.id} is locked by a process that cannot be found here (pid {pid})",
                    "the process may be in another container or on another machine; stop the run there",
                )
            clock.sleep(_POLL_INTERVAL)
        return None

    def send(self, number: int) -> None:
        """Send a signal. Raises UserError if the process belongs to another user."""
        try:
            if self._descriptor >= 0:
                processes.pidfd_send_signal(self._descriptor, number)
            elif is_live(self.run):
                processes.kill(self.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            raise Failure(
                "not-permitted", f"the process of {self.run.id} (pid {self.pid}) belongs to another user"
            ) from None

    def wait(self, seconds: float) -> bool:
        """Wait until the process ends or releases the run; returns whether it did within `seconds`."""
        if self._descriptor >= 0 and self.host is None and not self.is_keeper:
            poller = pipes.poll()
            poller.register(self._descriptor, pipes.POLLIN)
            return bool(poller.poll(min(max(0, int(seconds * 1000)), 2**31 - 1)))
        end = clock.monotonic() + seconds
        while is_live(self.run):
            if clock.monotonic() >= end:
                return False
            clock.sleep(_POLL_INTERVAL)
        return True

    def ask(self) -> None:
        """Send the first stop request. Raises UserError."""
        if self.is_keeper:
            self.send(signals.SIGCONT)  # a suspended keeper cannot answer
        self.insist()
        # A suspended process (Ctrl-Z) handles the request when it continues.
        self.send(signals.SIGCONT)

    def insist(self) -> None:
        """Send a stop request, the first or a further one. Raises UserError."""
        if self.host is None:
            if not (self.is_keeper and keeper.stop(self.run.path)):
                self.send(signals.SIGTERM)
            return
        try:
            control_channel.ask(self.host, self.run.id)
        except OSError as error:
            raise Failure(
                "not-permitted",
                f"{self.run.id} (pid {self.pid}) cannot be reached at {self.host}: {reason(error)}",
            ) from None

    def close(self) -> None:
        if self._descriptor >= 0:
            files.close(self._descriptor)
            self._descriptor = -1


class StopResult(LightRecord):
    """Result of stopping one run.

    how: "stopped" (the journal records the stop), "left" (it left the queue; there is nothing to resume),
    "ended" (the run ended by itself), "killed", "failed".
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
        resume_hint = f"\nResume with: llc resume {self.run}"
        match self.how:
            case "stopped":
                return f"Stopped {self.run}{where} (after {self.seconds:.1f}s){resume_hint}"
            case "left":
                return f"Removed {self.run} from the queue; it had not started"
            case "ended":
                return f"{self.run} has ended by itself: {self.status}"
            case "killed":
                return f"Killed {self.run}{where}: it did not stop within {self.seconds:.1f}s{resume_hint}"
        return f"{self.run} was not stopped: {self.message}"


def live_runs(target: str | None) -> list[RunFolder]:
    """The runs that a process executes now: all, or those of the run or loop `target`."""
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
        return Failure("not-running", message, f"see: llc logs {run.id}")
    if has_ended(run.journal):
        message = f"{run.id} has ended, but its outcome is lost"
        return Failure("not-running", message, f"see: llc logs {run.id}")
    message = f"{describe_unfinished(run)} and is not running"
    return Failure("not-running", message, f"resume it with: llc resume {run.id}")


def describe_unfinished(run: RunFolder) -> str:
    """A clause about an unfinished run that no process executes: it was stopped, or it crashed."""
    is_interrupted = isinstance(run.last_event(), RunInterrupted)
    return f"{run.id} was stopped" if is_interrupted else f"{run.id} crashed"


def select_runs(target: str | None, is_all: bool) -> list[RunFolder]:
    """The runs to stop. Raises UserError if there is none, or if `target` is ambiguous."""
    if target is None and not is_all:
        raise UserError("bad-option", "no run or loop is given", "name one, or use --all")
    found = live_runs(target)
    if not found:
        if target is None:
            return []
        raise not_running(find_run_folder(target))
    if len(found) > 1 and not is_all:
        names = ", ".join(run.id for run in found)
        raise UserError(
            "several-runs", f"{len(found)} runs of `{target}` are running: {names}", "name one, or use --all"
        )
    return found


def stop(runs: list[RunFolder], wait: float) -> list[StopResult]:
    """Stop these runs concurrently: request, insist after `wait` seconds, then kill."""
    started_at = clock.monotonic()
    results: dict[str, StopResult] = {}
    holders: list[Holder] = []
    for run in runs:
        try:
            holder = Holder.find(run)
            if holder is not None:
                holders.append(holder)
                holder.ask()
        except UserError as error:
            results[run.id] = StopResult(run.id, "failed", message=error.message)
    remaining = holders
    for stage, seconds in ((None, wait), (signals.SIGTERM, INSIST_SECONDS), (signals.SIGKILL, _KILL_SECONDS)):
        end = clock.monotonic() + seconds
        if stage == signals.SIGKILL:
            remaining, shared = _split_shared(remaining, {run.id for run in runs})
            for holder in shared:
                results[holder.run.id] = StopResult(
                    holder.run.id,
                    "failed",
                    message=f"it does not end, and its process (pid {holder.pid}) also executes other runs",
                )
        if stage is not None:
            for holder in remaining:
                with contextlib.suppress(UserError):
                    holder.insist() if stage == signals.SIGTERM else holder.send(stage)
        running = []
        for holder in remaining:
            if holder.wait(end - clock.monotonic()):
                was_killed = stage == signals.SIGKILL
                results[holder.run.id] = _result_of(holder.run, clock.monotonic() - started_at, was_killed)
            else:
                running.append(holder)
        remaining = running
    for holder in remaining:
        results[holder.run.id] = StopResult(
            holder.run.id, "failed", message=f"its process (pid {holder.pid}) did not end after it was killed"
        )
    for holder in holders:
        holder.close()
    return [results[run.id] if run.id in results else _result_of(run, 0.0, False) for run in runs]


def _split_shared(holders: list[Holder], stopped: set[str]) -> tuple[list[Holder], list[Holder]]:
    """Split holders by whether their processes also execute runs that are not stopped: exclusive, shared."""
    others = [run.about() for run in live_runs(None) if run.id not in stopped] if holders else []
    needed = {about.get("pid") for about in others}
    exclusive = [holder for holder in holders if holder.pid not in needed]
    return exclusive, [holder for holder in holders if holder not in exclusive]


def _result_of(run: RunFolder, seconds: float, was_killed: bool) -> StopResult:
    if was_killed:
        with contextlib.suppress(UserError):
            survivor = Holder.find(run)
            if survivor is not None:  # a keeper has the actions of the killed process
                survivor.insist()
                survivor.wait(_KILL_SECONDS)
                survivor.close()
        end_leftovers(run)
    if not files.exists(run.path):
        run = RunFolder(run.root, os.path.join(run.root, HISTORY, run.id))
    if not files.exists(run.path):
        return StopResult(run.id, "left", seconds)
    stopped = StopResult(run.id, "killed" if was_killed else "stopped", seconds)
    with contextlib.suppress(UserError):
        history = load_history(run)
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
    """End the processes of a killed run; otherwise they would run until the run is resumed."""
    with contextlib.suppress(UserError):
        for seq, effect in load_history(run).pending.items():
            leftovers.end_effect(f"{run.id}/{seq}", effect.processes)
