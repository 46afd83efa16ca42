"""Signals of this process: handlers, masks, timers and numbers.

All names except `Signals` come from the C module `_signal`, which `signal` wraps: it needs no import time,
and its numbers are plain integers.
"""

from __future__ import annotations

from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signals
    from signal import Signals
    from typing import Any
else:
    import _signal as _signals

    def __getattr__(name: str) -> Any:
        return load(globals(), {"signal": ("Signals",)}, name)


ITIMER_REAL = _signals.ITIMER_REAL
SIG_BLOCK = _signals.SIG_BLOCK
SIG_DFL = _signals.SIG_DFL
SIG_IGN = _signals.SIG_IGN
SIG_SETMASK = _signals.SIG_SETMASK
SIGALRM = _signals.SIGALRM
SIGCHLD = _signals.SIGCHLD
SIGCONT = _signals.SIGCONT
SIGHUP = _signals.SIGHUP
SIGINT = _signals.SIGINT
SIGKILL = _signals.SIGKILL
SIGPIPE = _signals.SIGPIPE
SIGQUIT = _signals.SIGQUIT
SIGTERM = _signals.SIGTERM
SIGTSTP = _signals.SIGTSTP
SIGTTOU = _signals.SIGTTOU
SIGUSR1 = _signals.SIGUSR1
SIGUSR2 = _signals.SIGUSR2
SIGWINCH = _signals.SIGWINCH
SIGXFSZ = _signals.SIGXFSZ
default_int_handler = _signals.default_int_handler
getsignal = _signals.getsignal
pthread_sigmask = _signals.pthread_sigmask
set_wakeup_fd = _signals.set_wakeup_fd
setitimer = _signals.setitimer
signal = _signals.signal


def name_of(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL` for 9; `SIG40` for a number without a name."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def number_of(name: str) -> int:
    """Return the number of a signal, such as 9 for `SIGKILL`; 0 for an unknown name."""
    import signal

    number = getattr(signal.Signals, name, None)
    return 0 if number is None else int(number)
