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


def name_of(number: int) -> str:
    """`SIGKILL` for 9; `SIG40` for a number without a name."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def number_of(name: str) -> int:
    """9 for `SIGKILL`; 0 for a name that no signal has."""
    import signal

    number = getattr(signal.Signals, name, None)
    return 0 if number is None else int(number)
