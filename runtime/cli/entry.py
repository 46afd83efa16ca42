"""The programs `llc` and `ll-loop`.

Owns what surrounds a command: signals before it starts, the exit code of the process, and the report of an
internal error, in one line with its traceback in a file.
"""

from __future__ import annotations

import gc
import sys

from ...ir.python_internals import suppress
from ..host import signals
from ..host.errors import (
    EXIT_FAILURE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_PIPE,
    reason,
)
from ..host.screen import flush_standard_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# The subcommands that start or resume a run.
DRIVING = ("run", "resume", "fork", "batch")


def main() -> int:
    """The program `llc`; the exit code."""
    return guarded(lambda: _start("llc"))


def main_ll_loop() -> int:
    """The program `ll-loop`: `ll-loop NAME …` is `llc run NAME …`; other subcommands are those of llc."""
    return guarded(lambda: _start("ll-loop"))


def _start(program: str) -> int:
    words = sys.argv[1:]
    if words and words[0] in DRIVING:
        from ..launch import early_signals  # `--help` and `status` do without it

        early_signals.install()
    elif signals.getsignal(signals.SIGINT) == signals.SIG_DFL:  # by `__main__`
        signals.signal(signals.SIGINT, signals.default_int_handler)
    from . import dispatch  # after the signals are handled

    return dispatch.start(program, words)


def guarded(action: Callable[[], int]) -> int:
    """The exit code of the process, whatever `action` raises."""
    # What is imported, compiled or verified is never garbage, and collecting takes longer than making it
    # (`benchmarks/`). The collector is on while a run is active: `launch`.
    gc.disable()
    try:
        code = action()
        if sys.stdout is not None:
            sys.stdout.flush()
        _leave_signals()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_PIPE
    except Exception as error:
        code = _fail(error)
    _leave_signals()
    flush_standard_streams()
    gc.freeze()  # no collection at exit
    gc.enable()
    return code


def _leave_signals() -> None:
    """Let Ctrl-C end the process without a word: Python's own end would show an exception."""
    if signals.getsignal(signals.SIGINT) is signals.default_int_handler:
        signals.signal(signals.SIGINT, signals.SIG_DFL)


def _fail(error: Exception) -> int:
    """Report an error that nothing handled; the exit code."""
    from ..launch import failures

    code = failures.exit_code(error)
    if code == EXIT_FAILURE and isinstance(error, OSError):
        return _complain(error)
    if code != EXIT_INTERNAL:
        return code
    return _report(error)


def _complain(error: OSError) -> int:
    """Report that standard output could not be written."""
    with suppress(OSError, UnicodeError, AttributeError):
        sys.stderr.write(f"error[cannot-write]: cannot write to standard output: {reason(error)}\n")
    return EXIT_FAILURE


def _report(error: Exception) -> int:
    """Report an internal error, and where its traceback is."""
    from ..host import crash_report

    message, help = crash_report.keep_report(error)
    text = f"error[internal]: {message}\n = help: {help}\n"
    with suppress(OSError, UnicodeError, AttributeError):
        sys.stderr.write(text)
    return EXIT_INTERNAL
