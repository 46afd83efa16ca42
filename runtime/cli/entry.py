"""Where `llc` and `ll-loop` begin: what can be done at once is, all else goes to `cli`.

A verb with plainly known options does not wait for the command-line library, nor do help and completion.
Also owns the last resort: an error of ours is reported in one line with its traceback in a file.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from errno import EIO, ENOSPC

from ..host import environment, files
from ..host.errors import (
    EXIT_FAILURE,
    EXIT_HANGUP,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PIPE,
    EXIT_USAGE,
    reason,
)
from ..host.secrets import masked
from ..launch import early_signals
from .verbs import HOMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """The program `llc`; the exit code."""
    return guarded(lambda: _start("llc", sys.argv[1:]))


def main_ll_loop() -> int:
    """The program `ll-loop`: `ll-loop NAME …` is `llc run NAME …`, its other verbs are llc's."""

    def start() -> int:
        words = sys.argv[1:]
        from ..project.options import RUN

        names = {name for option in RUN for name in option.names}
        first = words[0].partition("=")[0] if words else "--help"
        if completion_request("ll-loop") is None:
            from .verbs import VERBS

            if first in names or (not first.startswith("-") and first not in VERBS):
                words = ["run", *words]
        return _start("ll-loop", words)

    return guarded(start)


def _start(program: str, words: list[str]) -> int:
    if words[:1] in (["help"], ["--help"], ["-h"]) and len(words) < 3:
        words = [*words[1:], "--help"]
    if words and words[0] in early_signals.VERBS:
        early_signals.take()
    request = completion_request(program)
    code = _at_once(program, words) if request is None else _complete(request)
    if code is not None:
        return code
    from . import typer_app

    return typer_app.main(program, words)


def _at_once(program: str, words: list[str]) -> int | None:
    """The exit code of what plain words ask for; None where they are not plain."""
    if not words or words == ["--help"]:
        from . import help

        return _show(help.program(program), EXIT_OK if words else EXIT_USAGE)
    if {"--verbose"} != set(words) <= {"--version", "-V", "--verbose"}:
        from .version import version_text

        return _show(version_text("--verbose" in words), EXIT_OK)
    if words[0] not in HOMES:
        return None
    from ..project import options
    from . import declare, output

    verb = declare.find(words[0])
    given = options.parse(verb.options, verb.arguments, words[1:], verb.is_open)
    if given is not None:
        if not verb.masks:
            output.mask()
        return output.attempt(words, lambda: verb.do(given))
    if "--help" in words or "-h" in words:
        from . import help

        if help.asked(words[1:], verb.is_open):
            return _show(help.verb(f"{program} {verb.name}", verb), EXIT_OK)
    return None


def _show(page: str, code: int) -> int:
    from . import output

    def show() -> int:
        output.write(page)
        return code

    return output.attempt([], show)


def _complete(request: str) -> int | None:
    from . import completion

    return completion.answer(request)


def completion_request(program: str) -> str | None:
    """What a shell asks about a line that is being typed, by typer's protocol: `_LLC_COMPLETE`."""
    return environment.environ.get(f"_{program.replace('-', '_').upper()}_COMPLETE")


def guarded(action: Callable[[], int]) -> int:
    """The exit code of `action`, whatever it raises."""
    from ..host.screen import flush_standard_streams

    # What is imported, compiled or verified stays, and looking through it for garbage again and again
    # takes longer than making it (`benchmarks/`). While a run goes on the collector is on: `launch`.
    gc.disable()
    try:
        code = action()
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_PIPE
    except Exception as error:
        code = _fail(error)
    flush_standard_streams()
    gc.freeze()  # nor is it looked through at the end
    gc.enable()
    return code


def _fail(error: Exception) -> int:
    """The exit code for an error that nothing took, which is said."""
    if getattr(error, "filename", None) is None:
        # Without a file's name it is a stream of ours, such as the help's standard output.
        if error.args[:1] == (EIO,):  # of an OSError or a termios.error: the terminal is gone
            return EXIT_HANGUP
        if isinstance(error, OSError) and error.errno == ENOSPC:
            return _complain(error)
    return _report(error)


def _complain(error: OSError) -> int:
    """Say that an answer could not be written."""
    with contextlib.suppress(OSError, UnicodeError, AttributeError):
        sys.stderr.write(f"error[cannot-write]: cannot write to standard output: {reason(error)}\n")
    return EXIT_FAILURE


def _report(error: Exception) -> int:
    """Say that we failed, and where the traceback is."""
    import traceback

    lines = traceback.format_exception(error)
    try:
        fd, path = files.mkstemp(prefix="llc-crash-", suffix=".txt")
        with files.open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(masked(f"{' '.join(sys.argv)}\n\n{''.join(lines)}"))
        where = f"please report it with the file {path}"
    except OSError:
        where = "please report it: " + " | ".join(line.strip() for line in lines[-3:])
    summary = " ".join(traceback.format_exception_only(error)[-1].split())[:300]
    text = masked(f"error[internal]: internal error: {summary}\n = help: {where}\n")
    with contextlib.suppress(OSError, UnicodeError, AttributeError):
        sys.stderr.write(text)
    return EXIT_INTERNAL
