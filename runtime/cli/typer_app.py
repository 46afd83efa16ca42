"""The command line: reads the words of a command and does it; `spec/cli.md`.

The verbs stand in `commands`, a module for each group.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from ...ir.diagnostics import CompileError
from ..host.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from ..journal.journal import JournalError
from . import output, usage_errors
from .entry import completion_request
from .output import write
from .typer_commands import app, build
from .version import version_text

# What typer raises for words that it cannot read; it exports only a kind of it.
_UsageError: Any = typer.BadParameter.__base__


def main(program: str, words: list[str]) -> int:
    """Read a command and do it; the exit code."""
    build()
    command = typer.main.get_command(app)
    output.mask()
    if completion_request(program) is not None:
        # A line that is being typed is no place to say what is wrong.
        with contextlib.suppress(UserError, CompileError, JournalError):
            command.main(args=words, prog_name=program, standalone_mode=False)
        return EXIT_FAILURE

    def obey() -> int:
        code = command.main(args=words, prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else EXIT_OK

    try:
        return output.attempt(words, obey)
    except _UsageError as error:
        return output.refuse(usage_errors.refusal(error, command, words), words)
    except typer.Abort:
        return EXIT_FAILURE
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else EXIT_OK if exit.code is None else EXIT_USAGE


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --version: show more.")] = False,
) -> None:
    if version:
        write(version_text(verbose))
        raise typer.Exit(EXIT_OK)
    if context.invoked_subcommand is None:
        write(context.get_help() + "\n")
        raise typer.Exit(EXIT_USAGE)
