"""The Typer application: all subcommands. The table (`table`) is generated from it; Typer itself runs only
where the table does not help: to install completion in a shell other than bash.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from .commands import (
    answer,
    attach,
    batch,
    clean,
    fork,
    history,
    logs,
    profile,
    record,
    repl,
    replay,
    resume,
    run,
    status,
    stop,
    task,
    test,
    trace,
)
from .project_commands import compile, context, create, disasm, fmt, index, mcp, schema, tools, validate
from .project_commands import (
    list as listing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# In the order of the program's help.
COMMANDS: tuple[Callable[..., int], ...] = (
    run.run,
    resume.resume,
    batch.batch,
    create.create,
    validate.validate,
    compile.compile_,
    disasm.disasm,
    fmt.fmt,
    listing.list_,
    replay.replay,
    trace.trace,
    record.record,
    fork.fork,
    test.test,
    status.status,
    stop.stop,
    answer.answer,
    attach.attach,
    logs.logs,
    profile.profile,
    history.history,
    clean.clean,
    task.task,
    repl.repl,
    index.index,
    context.context,
    tools.tools,
    mcp.mcp,
    schema.schema,
)
# Subcommands whose options end at the first argument: the rest is the argument's own.
OPEN = (task.task,)


def name_of(function: Callable[..., int]) -> str:
    """The name of the subcommand that a function is."""
    return function.__name__.rstrip("_")


def hints(function: Callable[..., int]) -> dict[str, Any]:
    """The annotations of a subcommand's parameters.

    They are evaluated here: the modules of subcommands import Typer only for type checkers.
    """
    names = {"Annotated": Annotated, "typer": typer}
    space = {**inspect.unwrap(function).__globals__, **names}
    return get_type_hints(function, space, include_extras=True)


def build(functions: Sequence[Callable[..., int]] = COMMANDS) -> typer.Typer:
    """The application with these subcommands."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(about_program)
    for function in functions:
        function.__annotations__.update(hints(function))
        settings = {"allow_interspersed_args": False} if inspect.unwrap(function) in OPEN else None
        app.command(name_of(function), context_settings=settings)(function)
    return app


def about_program(
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --version: show more.")] = False,
    directory: Annotated[
        str | None, typer.Option("-C", "--directory", metavar="DIR", help="Change to this folder first.")
    ] = None,
) -> None:
    """Compile automation loops to states and jumps, and run them."""


def main(program: str, words: list[str]) -> int:
    """Let Typer read and perform a command line; the exit code."""
    try:
        code = typer.main.get_command(build())(words, prog_name=program, standalone_mode=False)
    except SystemExit as ended:
        code = ended.code
    return code if isinstance(code, int) else 0
