"""Signals of this process: handlers, masks, timers and the numbers.

All but `Signals` come from the module in C that `signal` wraps: it is there without being loaded, and gives
numbers as plain integers.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import (
        ITIMER_REAL,
        SIG_BLOCK,
        SIG_DFL,
        SIG_IGN,
        SIG_SETMASK,
        SIGCHLD,
        SIGCONT,
        SIGHUP,
        SIGINT,
        SIGKILL,
        SIGPIPE,
        SIGTERM,
        SIGTSTP,
        SIGTTOU,
        SIGWINCH,
        SIGXFSZ,
        Signals,
        default_int_handler,
        getsignal,
        pthread_sigmask,
        setitimer,
        signal,
    )
    from typing import Any
else:
    from _signal import (
        ITIMER_REAL,
        SIG_BLOCK,
        SIG_DFL,
        SIG_IGN,
        SIG_SETMASK,
        SIGCHLD,
        SIGCONT,
        SIGHUP,
        SIGINT,
        SIGKILL,
        SIGPIPE,
        SIGTERM,
        SIGTSTP,
        SIGTTOU,
        SIGWINCH,
        SIGXFSZ,
        default_int_handler,
        getsignal,
        pthread_sigmask,
        setitimer,
        signal,
    )

    from .deferred import load

    def __getattr__(name: str) -> Any:
        return load(globals(), {"signal": ("Signals",)}, name)


__all__ = [
    "ITIMER_REAL",
    "SIGCHLD",
    "SIGCONT",
    "SIGHUP",
    "SIGINT",
    "SIGKILL",
    "SIGPIPE",
    "SIGTERM",
    "SIGTSTP",
    "SIGTTOU",
    "SIGWINCH",
    "SIGXFSZ",
    "SIG_BLOCK",
    "SIG_DFL",
    "SIG_IGN",
    "SIG_SETMASK",
    "Signals",
    "default_int_handler",
    "getsignal",
    "pthread_sigmask",
    "setitimer",
    "signal",
]
