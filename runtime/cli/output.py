"""Output of subcommands: standard output with masked secrets, diagnostics on standard error."""

from __future__ import annotations

import sys

from ..host import secrets
from ..host.errors import UserError
from ..host.paths import ROOT
from ..host.screen import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...ir.diagnostics import Diagnostic


def show(diagnostics: Iterable[Diagnostic], sources: Iterable[Any] = ()) -> None:
    from ...ir.diagnostics import render_all

    screen = Screen(sys.stderr)
    screen.write(render_all(diagnostics, sources, screen.color) + "\n")


def write(text: str) -> None:
    """Write to stdout with secrets masked; a closed pipe ends the command silently. Raises UserError."""
    write_data(secrets.masked(text))


def write_data(text: str) -> None:
    """Write text to stdout without masking, such as the author's own source."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    Screen(sys.stdout).deliver(text.encode(encoding, "backslashreplace"))


def warn(text: str) -> None:
    Screen(sys.stderr).write(text + "\n\n")


def note(text: str) -> None:
    """Write a line to stderr if stderr is a terminal."""
    screen = Screen(sys.stderr)
    if screen.is_live:
        screen.write(text + "\n")


def write_json(value: Any) -> None:
    from ..journal.codec import json_text

    write(json_text(secrets.known.mask_all(value), indent=2) + "\n")


# --- errors -------------------------------------------------------------------------------------


def answer_usage(words: list[str], message: str) -> None:
    """Write the JSON object of a usage error if the command line is `run`, `resume`, `fork` or `task --json`.

    words: the command line, which may be invalid.
    """
    message = secrets.masked(message)
    own = words[: words.index("--")] if "--" in words else words
    if own[:1] == ["task"] and "--json" in own:
        from ..terminal import task_result

        write(task_result.as_json(task_result.of_refusal(UserError("usage", message))))
    elif own[:1] in (["run"], ["resume"], ["fork"]) and "--json" in own:
        from ..launch import report

        report.write_usage_error(message)


def mask() -> None:
    """Start masking secrets in all output: secrets of the environment and of the configuration."""
    from ..project import configuration

    names: tuple[str, ...] = ()
    try:
        names = configuration.load(ROOT).secrets
    except Exception as error:
        from ...ir.diagnostics import CompileError

        if not isinstance(error, CompileError):  # reported when a program runs
            raise
    secrets.begin(names, is_lenient=True)
