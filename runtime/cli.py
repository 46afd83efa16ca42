"""The command line: reads the words of a command and does it; `spec/cli.md`.

The verbs stand in `commands`, a module for each group.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated, Any

import typer

from ..ir.diagnostics import CompileError, Diagnostic, suggest
from . import configuration
from .commands import authoring, interactive, memory, people, programs, records, tools, usage  # noqa: F401 - they declare verbs
from .commands import completion as _completion  # noqa: F401 - it teaches bash
from .commands import batch as _batch  # noqa: F401
from .commands import mcp as _mcp  # noqa: F401
from .commands import runs as _runs  # noqa: F401
from .commands.plumbing import app, show, write
from .entry import is_completing
from .errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from .execution import launch
from .store import masking, runs
from .store.journal import JournalError
from .verbs import VERBS

# What typer raises for words that it cannot read; it exports only a kind of it.
_UsageError: Any = typer.BadParameter.__base__


def main(program: str, words: list[str]) -> int:
    """Read a command and do it; the exit code."""
    command = typer.main.get_command(app)
    _mask()
    if is_completing():
        # A line that is being typed is no place to say what is wrong.
        with contextlib.suppress(UserError, CompileError, JournalError):
            command.main(args=words, prog_name=program, standalone_mode=False)
        return EXIT_FAILURE
    try:
        _refuse_unknown_verb(program, words)
        code = command.main(args=words, prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else EXIT_OK
    except _UsageError as error:
        return _refuse(usage.refusal(error, command, words), words)
    except typer.Abort:
        return EXIT_FAILURE
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else EXIT_OK if exit.code is None else EXIT_USAGE
    except UserError as error:
        return _refuse(error, words)
    except JournalError as error:
        show([Diagnostic("cannot-write", error.message)])
        return EXIT_USAGE
    except CompileError as error:
        show(error.diagnostics, error.sources)
        return EXIT_USAGE


def _refuse(error: UserError, words: list[str]) -> int:
    """Say what was done wrong; the exit code."""
    show([Diagnostic(error.id, error.message, help=error.help)])
    if error.exit_code == EXIT_USAGE:
        _answer_usage(words, masking.masked(error.message))
    return error.exit_code


def _mask() -> None:
    """Show no secrets, whatever the verb. What it looks at may have been recorded with others."""
    names: tuple[str, ...] = ()
    with contextlib.suppress(CompileError):  # running anything will say what is wrong with it
        names = configuration.load(runs.ROOT).secrets
    masking.begin(names, is_lenient=True)


def _answer_usage(words: list[str], message: str) -> None:
    """`run`, `resume`, `task` answer in JSON where that was asked for, even if nothing else can be read."""
    own = words[: words.index("--")] if "--" in words else words
    if own[:1] == ["task"] and "--json" in own:
        from .effects import task_run

        write(task_run.as_json(task_run.of_refusal(UserError("usage", message))))
    elif own[:1] in (["run"], ["resume"], ["fork"]) and "--json" in own:
        launch.usage_answer(message)


def _refuse_unknown_verb(program: str, words: list[str]) -> None:
    first = words[0] if words else "--help"
    if first.startswith("-") or first in VERBS:
        return
    is_loop = first in runs.loop_files() or (runs.is_path(first) and os.path.isfile(first))
    help = f"to run it: {program} run {first}" if is_loop else suggest(first, VERBS, "commands")
    raise UserError("unknown-command", f"{program} has no command `{first}`", help)


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --version: show more.")] = False,
) -> None:
    if version:
        write(_version(verbose))
        raise typer.Exit(EXIT_OK)
    if context.invoked_subcommand is None:
        write(context.get_help() + "\n")
        raise typer.Exit(EXIT_USAGE)


def _version(verbose: bool) -> str:
    from .. import __version__

    if not verbose:
        return f"llc {__version__}\n"
    import platform

    from ..frontend.compile import DEFAULT_LLM_MODEL
    from ..vm import image, snapshot
    from .store import journal

    rows = {
        "llc": __version__,
        "default model": os.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "image format": image.VERSION,
        "snapshot format": snapshot.FORMAT,
        "journal format": journal.FORMAT,
    }
    width = max(map(len, rows))
    return "".join(f"{name.ljust(width)}  {value}\n" for name, value in rows.items())


if {command.name for command in app.registered_commands} != set(VERBS):
    raise AssertionError("a verb has no command, or a command no verb")
