"""End processes that an earlier run left behind: TERM, time to clean up, KILL."""

from __future__ import annotations

import contextlib

from . import clock, processes, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Seconds between TERM and KILL, and between two checks of what is left.
GRACE = 2.0
POLL_EXIT = 0.01


def end_leftover(pid: int, started: str, effect_id: str) -> bool:
    """Terminate the rest of a process group that an earlier run started for an effect.

    pid, started: as passed to `Context.on_process`. The leader must have that start time; without a leader,
    members of its group or session count that have the effect's id in their environment. So a reused pid
    is never signalled. Returns whether anything was running.
    """
    if not started or started.partition(":")[0] != processes.boot_id():
        return False
    if processes.start_time(pid) not in ("", started):
        return False  # a reused pid: then our group does not exist any more
    found = members = processes.group_members(pid, effect_id)
    number = signals.SIGTERM
    end = clock.monotonic() + GRACE
    while members:
        for member in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                processes.kill(member, number)
        clock.sleep(POLL_EXIT)
        members = processes.group_members(pid, effect_id)
        if clock.monotonic() >= end:
            if number == signals.SIGKILL:
                break
            number = signals.SIGKILL
            end = clock.monotonic() + GRACE
    return bool(found)


def end_effect(effect_id: str, known: Iterable[tuple[int, str]]) -> list[int]:
    """Terminate what is left of an effect; the pids of the leaders that were running.

    known: the processes on record for it. Where none is, the run may have crashed between the start of one
    and the record of it: then the session leaders that carry the effect's id.
    """
    known = list(known) or processes.find_leaders(effect_id)
    return [pid for pid, started in known if end_leftover(pid, started, effect_id)]
