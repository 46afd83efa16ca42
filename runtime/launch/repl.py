"""`llc repl`: an interactive console on a terminal, else evaluation of a stream of forms (`spec/repl.md`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ...frontend.sexp.completeness import Pending
from ..execution import tier_choice
from ..host.effect_context import Exited
from ..host.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, UserError
from ..host.screen import Screen, is_attended
from ..project.limits import Bounds
from ..project.load import compile_options
from ..project.options import Values
from ..terminal.console import Console, Leave, is_complete
from ..terminal.progress import ProgressDisplay
from ..terminal.session import Session

# Limit of characters for a value shown on a terminal.
_MAX_VALUE_CHARS = 20_000


def run(values: Values) -> int:
    """Execute `llc repl`; return the exit code."""
    bounds = Bounds.of_options(values)
    bounds.apply()
    tier = tier_choice.requested_tier(values.tier)
    is_terminal = is_attended()
    out, errors = Screen(sys.stdout), Screen(sys.stderr)
    session = Session(
        display=ProgressDisplay(out if is_terminal else errors, {}),
        options=compile_options(),
        fuel=bounds.fuel,
        longest=_MAX_VALUE_CHARS if is_terminal else None,
        tier=tier,
    )
    console = Console(session, out, out if is_terminal else errors, is_terminal)
    try:
        if is_terminal:
            from ..terminal.line_editor import converse  # prompt_toolkit takes 0.1 s to import

            console.greet()
            converse(console)
            return EXIT_OK
        return _read_all(console, sys.stdin if sys.stdin is not None else ())
    except Exited as exited:
        return exited.code
    finally:
        session.close()


def _read_all(console: Console, stream: Iterable[str]) -> int:
    """Evaluate the forms of a stream, each as soon as it is complete; return the exit code."""
    lines: list[str] = []
    pending = Pending()
    try:
        for line in stream:
            lines.append(line)
            pending.feed(line)
            if not pending.is_blank and is_complete("".join(lines), pending):
                console.enter("".join(lines))
                if console.was_interrupted:
                    return EXIT_INTERRUPTED
                lines.clear()
                pending = Pending()
        if not pending.is_blank:
            console.enter("".join(lines))
    except Leave:
        return EXIT_OK
    except UnicodeDecodeError as error:
        raise UserError("unreadable-file", f"standard input is not UTF-8: {error.reason}") from None
    return EXIT_FAILURE if console.has_failed else EXIT_OK
