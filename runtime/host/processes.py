"""Processes: start, wait for, signal and identify them.

Pid and start time (`start_time`) identify a process: a later process with the same pid has another start
time. The start time is read from /proc; without /proc it is unknown.
"""

from __future__ import annotations

import os
import time
from os import (
    POSIX_SPAWN_DUP2,
    WIFSTOPPED,
    WNOHANG,
    WUNTRACED,
    fork,
    getpgrp,
    getpid,
    kill,
    killpg,
    posix_spawn,
    posix_spawnp,
    setsid,
    waitpid,
    waitstatus_to_exitcode,
)
from os import _exit as exit_now

from . import files, load, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import pidfd_open
    from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_CORE, RLIMIT_NOFILE, getrlimit, setrlimit
    from signal import pidfd_send_signal
    from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
    from typing import Any
else:
    # Linux only: elsewhere the caller sees AttributeError.
    if hasattr(os, "pidfd_open"):
        from os import pidfd_open

    def __getattr__(name: str) -> Any:
        return load(globals(), _DEFERRED, name)


_DEFERRED = {
    "resource": ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_NOFILE", "RLIM_INFINITY", "getrlimit", "setrlimit"),
    "_signal": ("pidfd_send_signal",),
    "subprocess": ("DEVNULL", "PIPE", "Popen", "TimeoutExpired"),
}


# Signals whose handling is reset to the default in started programs.
_DEFAULT_SIGNALS = (signals.SIGPIPE, signals.SIGXFSZ, signals.SIGCHLD)
_boot: str | None = None
# Whether the clock gives the start tick of a new process; None before the first comparison.
_is_clock_right: bool | None = None
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


def start(
    path: str, argv: list[bytes], env: Mapping[bytes, bytes], source: int, output: int, errors: int
) -> int:
    """Start a program in a new session with these handles as standard streams; return its pid.

    A path without a slash is searched in PATH. Raises OSError and ValueError.
    """
    return posix_spawnp(
        path.encode("utf-8", "surrogateescape"),
        argv,
        env,
        file_actions=(
            (POSIX_SPAWN_DUP2, source, 0),
            (POSIX_SPAWN_DUP2, output, 1),
            (POSIX_SPAWN_DUP2, errors, 2),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


def start_time(pid: int) -> str:
    """Return boot id and start tick of a process, which identify it together with its pid; "" if unknown."""
    try:
        fields = _stat(pid)
        return "" if fields is None else f"{boot_id()}:{fields[19].decode()}"
    except OSError:
        return ""


def tick_now() -> int:
    """Return the current tick of the clock for start times; -1 if the system does not have it."""
    try:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK_NS
    except (AttributeError, OSError):
        return -1


def new_start_time(pid: int, since: int) -> str:
    """Return `start_time` of a process that was started since the tick `since`.

    Usually the clock gives it; reading /proc takes 5 % of the time of a short process.
    """
    global _is_clock_right
    if _is_clock_right is False or since != tick_now():
        return start_time(pid)
    expected = f"{boot_id()}:{since}"
    if _is_clock_right is None:
        actual = start_time(pid)
        _is_clock_right = actual == expected
        return actual
    return expected


def is_alive(pid: int, started: str) -> bool:
    """Whether the process with this start time exists and is not a zombie."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in (b"Z", b"X") and start_time(pid) == started


def find_marked(effect_id: str) -> list[int]:
    """Find living processes with an effect's id in their environment, in all groups and sessions.

    Raises OSError.
    """
    try:
        return [pid for pid, _ in _living() if _is_marked(pid, effect_id)]
    except FileNotFoundError:  # no /proc
        return []


def has_living(group: int) -> bool:
    """Whether a process group has a member that is not a zombie."""
    try:
        return any(fields[2] == b"%d" % group for _, fields in _living())
    except OSError:
        return True  # no /proc; the caller knows that the group exists


def group_members(group: int, effect_id: str) -> list[int]:
    """Find living processes of a group or session with an effect's id in their environment."""
    number = b"%d" % group
    # The leader counts without the id, because it may have cleared its environment; its start time identifies
    # it.
    return [
        pid
        for pid, fields in _living()
        if number in fields[2:4] and (pid == group or _is_marked(pid, effect_id))
    ]


def _is_marked(pid: int, effect_id: str) -> bool:
    """Whether a process has an effect's id in its environment."""
    mark = b"LLC_EFFECT_ID=" + effect_id.encode("utf-8", "replace")
    try:
        with files.open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError as error:
        if error.errno in files.TRANSIENT:
            raise
        return False


def _living() -> Iterator[tuple[int, list[bytes]]]:
    """Yield pid and `_stat` of every process that is not a zombie."""
    for name in files.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields is not None and fields[0] not in (b"Z", b"X"):
                yield int(name), fields


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/<pid>/stat from the third (state) on; None without the process."""
    try:
        descriptor = files.open_handle(f"/proc/{pid}/stat", files.O_RDONLY)
    except OSError as error:
        if error.errno in files.TRANSIENT:
            raise
        return None
    try:
        data = files.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        files.close(descriptor)
    # The second field is the name of the program in parentheses, which may contain any characters.
    return data[data.rindex(b")") + 2 :].split()


def boot_id() -> str:
    """Return the id of the current boot; "" if unknown. Raises OSError."""
    global _boot
    if _boot is None:
        try:
            with files.open("/proc/sys/kernel/random/boot_id") as file:
                _boot = file.read().strip()
        except FileNotFoundError:
            _boot = ""
    return _boot


def exit_handle(pid: int) -> int:
    """A handle that becomes readable when the process ends; -1 if it has ended or the system has no pidfd."""
    try:
        return pidfd_open(pid)
    except (AttributeError, NameError, OSError):
        return -1
