"""Leftover processes of an earlier run: end them by a signal, time to clean up, then KILL."""

from __future__ import annotations

from ...ir.python_internals import suppress
from . import clock, processes, signals
from .keeper import Kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Seconds between two signals, and between two checks for remaining processes.
GRACE = 2.0
POLL_EXIT = 0.01


# Signals that end an agent: after TERM alone, some agents send another request to their model.
AGENT_SIGNALS = (signals.SIGINT, signals.SIGTERM)


def end_leftover(pid: int, started: str, effect_id: str, numbers: Sequence[int] = (signals.SIGTERM,)) -> bool:
    """Terminate the remaining processes of a group that an earlier run started for an effect.

    Only the leader with this start time and members of its group or session with the effect's id in their
    environment are signalled, so a process with a reused pid never is. Returns whether any process was
    running.

    pid, started: as passed to `Context.on_process`. numbers: the signals before KILL.
    """
    if not started or started.partition(":")[0] != processes.boot_id():
        return False
    if processes.start_time(pid) not in ("", started):
        return False  # the pid was reused, so the group no longer exists
    return bool(_end(lambda: processes.group_members(pid, effect_id), numbers))


def end_kept(action: Kept) -> None:
    """End an unneeded action that has survived its driver, even if its keeper has died."""
    if not action.release():
        end_leftover(action.pid, action.began, action.facts["effect"])


def end_effect(
    effect_id: str, known: Iterable[tuple[int, str]], numbers: Sequence[int] = (signals.SIGTERM,)
) -> list[int]:
    """Terminate all remaining processes of an effect; return their pids.

    known: recorded processes of the effect. All processes with the effect's id in their environment count
    too: tools of agents run in separate sessions, and a run may have crashed between starting and recording a
    process.
    """
    found = [pid for pid, started in known if end_leftover(pid, started, effect_id, numbers)]
    return found + _end(lambda: processes.find_marked(effect_id), numbers)


def _end(members: Callable[[], list[int]], numbers: Sequence[int]) -> list[int]:
    """Signal processes until none remains; return the pids found at first, without this process."""
    own = processes.getpid()
    found = living = [pid for pid in members() if pid != own]
    for number in (*numbers, signals.SIGKILL):
        deadline = clock.monotonic() + GRACE
        signalled: set[int] = set()
        while living and clock.monotonic() < deadline:
            for pid in living:
                if pid not in signalled:
                    signalled.add(pid)
                    with suppress(ProcessLookupError, PermissionError):
                        processes.kill(pid, number)
            clock.sleep(POLL_EXIT)
            living = [pid for pid in members() if pid != own]
    return found
