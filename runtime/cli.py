"""The command line: reads the words of a command and does it; `spec/cli.md`.

The verbs stand in `commands`, a module for each group.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from ..ir.diagnostics import CompileError
from .commands import answers, usage
from .commands.answers import write
from .commands.plumbing import app, build
from .commands.version import version_text
from .entry import completion_request
from .errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from .store.journal import JournalError

# What typer raises for words that it cannot read; it exports only a kind of it.
_UsageError: Any = typer.BadParameter.__base__


def main(program: str, words: list[str]) -> int:
    """Read a command and do it; the exit code."""
    build()
    command = typer.main.get_command(app)
    answers.mask()
    if completion_request(program) is not None:
        # A line that is being typed is no place to say what is wrong.
        with contextlib.suppress(UserError, CompileError, JournalError):
            command.main(args=words, prog_name=program, standalone_mode=False)
        return EXIT_FAILURE

    def obey() -> int:
        code = command.main(args=words, prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else EXIT_OK

    try:
        return answers.attempt(words, obey)
    except _UsageError as error:
        return answers.refuse(usage.refusal(error, command, words), words)
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
