"""What the verbs answer: on standard output without secrets, errors as diagnostics on standard error."""

from __future__ import annotations

import sys

from ..host import secrets
from ..host.errors import EXIT_FAILURE, EXIT_USAGE, UserError
from ..host.screen import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ...ir.diagnostics import Diagnostic


def show(diagnostics: Iterable[Diagnostic], sources: Iterable[Any] = ()) -> None:
    from ...ir.diagnostics import render_all

    screen = Screen(sys.stderr)
    screen.write(render_all(diagnostics, sources, screen.color) + "\n")


def write(text: str) -> None:
    """To stdout, encoded as it can be, without secrets; a reader that went away ends the command quietly.

    UserError where it cannot be written.
    """
    write_data(secrets.masked(text))


def write_data(text: str) -> None:
    """As `write`, the author's own text: it is what it is."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    Screen(sys.stdout).deliver(text.encode(encoding, "backslashreplace"))


def warn(text: str) -> None:
    Screen(sys.stderr).write(text + "\n\n")


def write_json(value: Any) -> None:
    import json

    write(json.dumps(secrets.known.mask_all(value), indent=2, ensure_ascii=False, default=str) + "\n")


# --- errors -------------------------------------------------------------------------------------


def attempt(words: list[str], action: Callable[[], int]) -> int:
    """The exit code of a verb, which is told what is wrong with it. words: all of the command's."""
    try:
        return action()
    except UserError as error:
        return refuse(error, words)
    except Exception as error:
        from ...ir.diagnostics import CompileError
        from ..journal.journal import JournalError

        if isinstance(error, JournalError):
            return refuse(UserError(error.id, error.message, exit_code=EXIT_FAILURE), [])
        if not isinstance(error, CompileError):
            raise
        show(error.diagnostics, error.sources)
        return EXIT_USAGE


def refuse(error: UserError, words: list[str]) -> int:
    """Say what was done wrong; the exit code."""
    from ...ir.diagnostics import Diagnostic

    show([Diagnostic(error.id, error.message, help=error.help)])
    if error.exit_code == EXIT_USAGE:
        _answer_usage(words, secrets.masked(error.message))
    return error.exit_code


def _answer_usage(words: list[str], message: str) -> None:
    """`run`, `resume`, `task` answer in JSON where that was asked for, even if nothing else can be read."""
    own = words[: words.index("--")] if "--" in words else words
    if own[:1] == ["task"] and "--json" in own:
        from ..terminal import task_result

        write(task_result.as_json(task_result.of_refusal(UserError("usage", message))))
    elif own[:1] in (["run"], ["resume"], ["fork"]) and "--json" in own:
        from ..launch import report

        report.write_usage_error(message)


def mask() -> None:
    """Show no secrets, whatever the verb. What it looks at may have been recorded with others."""
    from ..host.paths import ROOT
    from ..project import configuration

    names: tuple[str, ...] = ()
    try:
        names = configuration.load(ROOT).secrets
    except Exception as error:
        from ...ir.diagnostics import CompileError

        if not isinstance(error, CompileError):  # running anything will say what is wrong with it
            raise
    secrets.begin(names, is_lenient=True)
