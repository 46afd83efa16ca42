"""Host protocol: the functions of the operating system that llc uses, and their replacement by a simulation.

A host has one part for each module: `files`, `pipes`, `clock` and so on. The modules themselves are the real
implementation; functions have the same parameters, results and meaning as in the standard library, and each
module documents its differences. A simulation implements the same parts with simulated disks, clock and
processes. It is installed once for all simulated processes and determines the calling process itself.

Handles are opaque. Written data is durable after `fdatasync` of the handle, a file name after `fsync` of its
folder. Paths are relative to the working directory of the calling process.

Not part of a host: constants and pure functions of the modules (`files.O_CREAT`, `clock.strftime`), functions
that the modules build from other parts (`leftovers`), and code that runs only in separate programs, which a
simulation replaces completely (SQLite of the search index, helper processes).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from . import clock, environment, files, pipes, processes, signals, terminal, threads

MODULES: dict[str, ModuleType] = {
    "files": files,
    "pipes": pipes,
    "clock": clock,
    "processes": processes,
    "signals": signals,
    "threads": threads,
    "environment": environment,
    "terminal": terminal,
}
# The functions of each part, and variables of the calling process.
PARTS: dict[str, tuple[str, ...]] = {
    part: tuple(names.split())
    for part, names in {
        # Handles, queries, and changes of names.
        "files": (
            "open open_handle read write pwrite close fstat fsync fdatasync ftruncate fchmod flock "
            "get_inheritable set_inheritable TemporaryFile mkstemp "
            "access stat lstat exists lexists isfile isdir islink getsize getmtime samefile realpath "
            "readlink listdir scandir walk "
            "chmod mkdir makedirs rmdir rmtree unlink link rename symlink replace copy2 copyfile"
        ),
        "pipes": "pipe mkfifo dup dup2 set_blocking poll select create_server",
        "clock": "time time_ns monotonic monotonic_ns perf_counter mktime sleep",
        # Starting, ending and identifying processes.
        "processes": (
            "posix_spawn posix_spawnp Popen fork setsid exit_now waitpid kill killpg pidfd_open "
            "pidfd_send_signal getpid getpgrp getrlimit setrlimit "
            "boot_id start_time new_start_time tick_now has_living group_members find_marked"
        ),
        "signals": "signal getsignal pthread_sigmask set_wakeup_fd setitimer",
        "threads": "Thread Lock Semaphore SimpleQueue current_thread",
        "environment": "environ environb chdir getcwd getcwdb geteuid urandom which",
        "terminal": "isatty get_terminal_size tcsetpgrp tcgetattr tcsetattr tcflush setcbreak",
    }.items()
}


@contextlib.contextmanager
def installed(host: Any) -> Iterator[None]:
    """Make all modules of this process use `host`, an object with the parts, within the context.

    Not reentrant; for one thread at a time.
    """
    replaced: list[tuple[ModuleType, str, Any]] = []
    try:
        for part, names in PARTS.items():
            module, replacement = MODULES[part], getattr(host, part)
            for name in names:
                if hasattr(module, name):  # macOS lacks some functions
                    replaced.append((module, name, getattr(module, name)))
                    setattr(module, name, getattr(replacement, name))
        yield
    finally:
        for module, name, real in reversed(replaced):
            setattr(module, name, real)
