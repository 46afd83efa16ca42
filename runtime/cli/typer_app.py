"""Typer application with all subcommands, the source of the generated module `table`.

Typer itself runs only to install completion in a shell other than bash.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from . import commands, project_commands
from .typer_parameters import Text, option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Subcommands by the headings of the help page, in its order.
GROUPS = {
    "Run": "run resume batch fork stop answer clean",
    "Inspect": "list status attach logs diff history budget trace profile graph report ui",
    "Author": "create import doctor validate compile disasm fmt schema",
    "Test": "test record replay",
    "Cluster": "worker db",
    "Language": "repl task tools mcp index context",
}
# Subcommands whose options end at the first argument: the words after it belong to the argument.
OPEN = ("task",)


def load(name: str) -> Callable[..., int]:
    """The function of a subcommand, in the module with its name; `_` follows a name reserved by Python."""
    is_project = name in {module.name for module in iter_modules(project_commands.__path__)}
    package = project_commands if is_project else commands
    module = import_module(f"{package.__name__}.{name}")
    function: Callable[..., int] = getattr(module, name, None) or getattr(module, f"{name}_")
    return function


def name_of(function: Callable[..., int]) -> str:
    """The name of the subcommand of a function."""
    return function.__name__.rstrip("_")


def hints(function: Callable[..., int]) -> dict[str, Any]:
    """The evaluated annotations of the parameters of a subcommand.

    `Annotated` is added for the evaluation: the modules of subcommands import it only for type checkers.
    """
    space = {**inspect.unwrap(function).__globals__, "Annotated": Annotated}
    return get_type_hints(function, space, include_extras=True)


def build(functions: Iterable[Callable[..., int]] = ()) -> typer.Typer:
    """The application with these subcommands; by default with all."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(about_program)
    for function in functions or map(load, " ".join(GROUPS.values()).split()):
        # From Python 3.14 on, a wrapper has separate annotations, and Typer reads both.
        annotations = hints(function)
        for declared in (function, inspect.unwrap(function)):
            declared.__annotations__.update(annotations)
        settings = {"allow_interspersed_args": False} if name_of(function) in OPEN else None
        app.command(name_of(function), context_settings=settings)(function)
    return app


def about_program(
    version: Annotated[bool, option("--version -V", "", "Show the version and exit.")] = False,
    verbose: Annotated[bool, option("--verbose", "", "With --version: show more.")] = False,
    directory: Annotated[Text, option("-C --directory", "DIR", "Change to this folder first.")] = None,
) -> None:
    """Compile automation loops to states and jumps, and run them."""


def main(program: str, words: list[str]) -> int:
    """Parse and execute a command line with Typer; return the exit code."""
    try:
        code = typer.main.get_command(build())(words, prog_name=program, standalone_mode=False)
    except SystemExit as ended:
        code = ended.code
    return code if isinstance(code, int) else 0
