"""End processes that an earlier run left behind: a signal, time to clean up, KILL."""

from __future__ import annotations

from ...ir.python_internals import suppress
from . import clock, processes, signals
from .keeper import Kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Seconds between two signals, and between two checks of what is left.
GRACE = 2.0
POLL_EXIT = 0.01


# What an agent is ended with: TERM alone makes some of them ask their model again.
AGENT_SIGNALS = (signals.SIGINT, signals.SIGTERM)


def end_leftover(pid: int, started: str, effect_id: str, numbers: Sequence[int] = (signals.SIGTERM,)) -> bool:
    """Terminate the rest of a process group that an earlier run started for an effect.

    pid, started: as passed to `Context.on_process`. The leader must have that start time; without a leader,
    members of its group or session count that have the effect's id in their environment. So a reused pid
    is never signalled. numbers: the signals before KILL. Returns whether anything was running.
    """
    if not started or started.partition(":")[0] != processes.boot_id():
        return False
    if processes.start_time(pid) not in ("", started):
        return False  # a reused pid: then our group does not exist any more
    return bool(_end(lambda: processes.group_members(pid, effect_id), numbers))


def end_kept(action: Kept) -> None:
    """End an action that has survived its driver and that nothing waits for, also if its keeper has died."""
    if not action.release():
        end_leftover(action.pid, action.began, action.facts["effect"])


def end_effect(
    effect_id: str, known: Iterable[tuple[int, str]], numbers: Sequence[int] = (signals.SIGTERM,)
) -> list[int]:
    """Terminate what is left of an effect; the pids that were found.

    known: the processes on record for it. Tools of agents run in sessions of their own, and a run may have
    crashed between the start of a process and its record, so all processes that carry the effect's id count.
    """
    found = [pid for pid, started in known if end_leftover(pid, started, effect_id, numbers)]
    return found + _end(lambda: processes.find_marked(effect_id), numbers)


def _end(members: Callable[[], list[int]], numbers: Sequence[int]) -> list[int]:
    """Signal processes until none is left; the pids of the first look, without our own."""
    stages = [*numbers, signals.SIGKILL]
    own = processes.getpid()
    found = living = [pid for pid in members() if pid != own]
    for number in stages:
        end = clock.monotonic() + GRACE
        told: set[int] = set()
        while living and clock.monotonic() < end:
            for pid in living:
                if pid not in told:
                    told.add(pid)
                    with suppress(ProcessLookupError, PermissionError):
                        processes.kill(pid, number)
            clock.sleep(POLL_EXIT)
            living = [pid for pid in members() if pid != own]
    return found
