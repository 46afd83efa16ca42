"""Terminal of this process: its presence, size, mode and foreground process group."""

from __future__ import annotations

from os import get_terminal_size, isatty, tcsetpgrp

from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from termios import TCIFLUSH, TCSADRAIN, tcflush, tcgetattr, tcsetattr
    from termios import error as TerminalError
    from tty import setcbreak
    from typing import Any
else:

    def __getattr__(name: str) -> Any:
        if name == "TerminalError":
            from termios import error

            return error
        return load(globals(), _DEFERRED, name)


_DEFERRED = {"termios": ("TCIFLUSH", "TCSADRAIN", "tcflush", "tcgetattr", "tcsetattr"), "tty": ("setcbreak",)}
