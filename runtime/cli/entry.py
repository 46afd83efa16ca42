"""Entry points of the programs `llc` and `ll-loop`.

Owns the signal handlers before a command starts, the exit code of the process, and the report of an internal
error: one line, with the traceback in a file.
"""

from __future__ import annotations

import gc
import sys

from ...ir.python_internals import suppress
from ..host import signals
from ..host.errors import EXIT_FAILURE, EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_PIPE, reason
from ..host.screen import flush_standard_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Subcommands that start or resume a run.
_DRIVING = ("run", "resume", "fork", "batch")


def main() -> int:
    """Run the program `llc`; return the exit code."""
    return guarded(lambda: _start("llc"))


def main_ll_loop() -> int:
    """Run the program `ll-loop`; return the exit code.

    `ll-loop NAME …` is `llc run NAME …`; the other subcommands are those of llc.
    """
    return guarded(lambda: _start("ll-loop"))


def _start(program: str) -> int:
    words = sys.argv[1:]
    if words and words[0] in _DRIVING:
        from ..launch import early_signals  # start-up time: not imported for `--help` and `status`

        early_signals.install()
    elif signals.getsignal(signals.SIGINT) == signals.SIG_DFL:  # set by `__main__`
        signals.signal(signals.SIGINT, signals.default_int_handler)
    from . import dispatch  # must follow the installation of the handlers

    return dispatch.start(program, words)


def guarded(action: Callable[[], int]) -> int:
    """Call `action` and convert every exception to an exit code of the process."""
    # Objects created by imports, compilation and verification live until the end, and collections would take
    # longer than their creation (`benchmarks/`). `launch` enables the collector while a run is active.
    gc.disable()
    try:
        code = action()
        if sys.stdout is not None:
            sys.stdout.flush()
        _silence_interrupts()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_PIPE
    except Exception as error:
        code = _fail(error)
    _silence_interrupts()
    flush_standard_streams()
    gc.freeze()  # no collection at exit
    gc.enable()
    return code


def _silence_interrupts() -> None:
    """Let Ctrl-C end the process silently: during its shutdown, Python would print an exception."""
    if signals.getsignal(signals.SIGINT) is signals.default_int_handler:
        signals.signal(signals.SIGINT, signals.SIG_DFL)


def _fail(error: Exception) -> int:
    """Report an unhandled error; return the exit code."""
    from ..launch import failures

    code = failures.exit_code(error)
    if code == EXIT_FAILURE and isinstance(error, OSError):
        _write(f"error[cannot-write]: cannot write to standard output: {reason(error)}\n")
    elif code == EXIT_INTERNAL:
        from ..host import crash_report

        message, help = crash_report.keep_report(error)
        _write(f"error[internal]: {message}\n = help: {help}\n")
    return code


def _write(text: str) -> None:
    with suppress(OSError, UnicodeError, AttributeError):
        sys.stderr.write(text)
