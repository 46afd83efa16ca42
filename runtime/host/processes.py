"""Processes of an earlier run: told from later ones that got their pid, and ended.

Reads /proc; where there is none, nothing can be known and nothing is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Seconds between TERM and KILL, and between two looks at who is left.
GRACE = 2.0
POLL_EXIT = 0.01

_boot: str | None = None
# Whether a new process's start tick can be told by the clock; None until one was looked at.
_is_clock_right: bool | None = None
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


def start_time(pid: int) -> str:
    """What tells a process from a later one with its pid: boot and start tick; "" where unknown."""
    fields = _stat(pid)
    return "" if fields is None else f"{_boot_id()}:{fields[19].decode()}"


def tick_now() -> int:
    """The tick it is, by the clock that start times go by; -1 where the system has none."""
    try:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK_NS
    except (AttributeError, OSError):
        return -1


def new_start_time(pid: int, since: int) -> str:
    """`start_time` of a process that was started since tick `since`.

    To look at it in /proc costs a twentieth of a short process, as often as not while that runs.
    """
    global _is_clock_right
    if _is_clock_right is False or since != tick_now():
        return start_time(pid)
    told = f"{_boot_id()}:{since}"
    if _is_clock_right is None:
        seen = start_time(pid)
        _is_clock_right = seen == told
        return seen
    return told


def is_alive(pid: int, started: str) -> bool:
    """Whether the process that began then is still there, and more than a zombie."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in (b"Z", b"X") and start_time(pid) == started


def end_leftover(pid: int, started: str, effect_id: str) -> bool:
    """End what is left of the group of an effect that an earlier run had started.

    `pid` and `started` as `Context.on_process` got them. The leader must have that start time; where
    it is gone, members of its group or session count that carry the effect's id in their
    environment. So a pid that was used again is never signalled. Whether anything was running.
    """
    if not started or started.partition(":")[0] != _boot_id():
        return False
    leader = _stat(pid)
    if leader is not None and start_time(pid) != started:
        return False  # the pid belongs to somebody else, and with it no group of ours can exist
    found = members = _members(pid, effect_id)
    number = signal.SIGTERM
    end = time.monotonic() + GRACE
    while members:
        for member in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, number)
        time.sleep(POLL_EXIT)
        members = _members(pid, effect_id)
        if time.monotonic() >= end:
            if number == signal.SIGKILL:
                break
            number = signal.SIGKILL
            end = time.monotonic() + GRACE
    return bool(found)


def end_effect(effect_id: str, processes: Iterable[tuple[int, str]]) -> list[int]:
    """End what is left of an effect, by the processes on record for it; the pids of those that led it.

    Where none is on record it may have been cut off before: then by whoever carries its id.
    """
    known = list(processes) or find_leaders(effect_id)
    return [pid for pid, started in known if end_leftover(pid, started, effect_id)]


def find_leaders(effect_id: str) -> list[tuple[int, str]]:
    """The (pid, start time) of each session leader that carries an effect's id.

    For an effect that was cut off between the start of its process and the record of it.
    """
    try:
        living = [(pid, fields) for pid, fields in _living() if fields[3] == b"%d" % pid]
    except OSError:
        return []
    return [(pid, start_time(pid)) for pid, _ in living if _is_marked(pid, effect_id)]


def has_living(group: int) -> bool:
    """Whether somebody in a process group is more than a zombie that nobody has reaped."""
    try:
        return any(fields[2] == b"%d" % group for _, fields in _living())
    except OSError:
        return True  # no /proc: the caller knows that the group exists


def _members(group: int, effect_id: str) -> list[int]:
    """The living processes of a group or session that carry an effect's id."""
    number = b"%d" % group
    # The leader's own identity is settled by its start time; it may have wiped its environment.
    return [
        pid
        for pid, fields in _living()
        if number in fields[2:4] and (pid == group or _is_marked(pid, effect_id))
    ]


def _is_marked(pid: int, effect_id: str) -> bool:
    """Whether a process carries an effect's id in its environment."""
    mark = b"LLC_EFFECT_ID=" + effect_id.encode("utf-8", "replace")
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def _living() -> Iterator[tuple[int, list[bytes]]]:
    """Every process that is no zombie, with its `_stat`."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields is not None and fields[0] not in (b"Z", b"X"):
                yield int(name), fields


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat from the state on (the third) as the kernel gives them."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    # The second field is the program's name in parentheses and may hold anything.
    return data[data.rindex(b")") + 2 :].split()


def _boot_id() -> str:
    global _boot
    if _boot is None:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot = file.read().strip()
        except OSError:
            _boot = ""
    return _boot
