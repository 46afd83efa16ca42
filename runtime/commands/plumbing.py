"""What the verbs of the command line share: how one is declared, its common options, its answers.

Each group of verbs is a module beside this one; `cli` loads them. What a verb does stands in a module
of its own that is imported when the verb is used: help and completion must not wait for it.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ...ir.diagnostics import Diagnostic, render_all
from .. import options
from ..errors import UserError
from ..options import Option, Values
from ..store import masking, runs
from ..terminal.screen import Screen
from ..verbs import VERBS


class _Verbs(TyperGroup):
    """The verbs, in the order that `VERBS` has for readers."""

    def list_commands(self, context: Any) -> list[str]:
        return list(VERBS)


app = typer.Typer(
    cls=_Verbs,
    help="Compile automation loops to states and jumps, and run them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


# --- answers ----------------------------------------------------------------------------------


def show(diagnostics: Iterable[Diagnostic], sources: Iterable[Any] = ()) -> None:
    screen = Screen(sys.stderr)
    screen.write(render_all(diagnostics, sources, screen.color) + "\n")


def write(text: str) -> None:
    """To stdout, encoded as it can be, without secrets; a reader that went away ends the command quietly.

    UserError where it cannot be written.
    """
    write_data(masking.masked(text))


def write_data(text: str) -> None:
    """As `write`, the author's own text: it is what it is."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    Screen(sys.stdout).deliver(text.encode(encoding, "backslashreplace"))


def warn(text: str) -> None:
    Screen(sys.stderr).write(text + "\n\n")


def write_json(value: Any) -> None:
    write(json.dumps(masking.known.mask_all(value), indent=2, ensure_ascii=False, default=str) + "\n")


# --- verbs and their options ------------------------------------------------------------------


class Verb(TyperCommand):
    """A verb whose help names its arguments as they are declared: brackets and all, and no types."""

    def collect_usage_pieces(self, context: Any) -> list[str]:
        return ["[OPTIONS]", *(str(name) for name, _ in self._arguments())]

    def format_options(self, context: Any, formatter: Any) -> None:
        options = [row.get_help_record(context) for row in self.params if row.param_type_name == "option"]
        for title, rows in (("Arguments", self._arguments()), ("Options", list(filter(None, options)))):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _arguments(self) -> list[tuple[Any, Any]]:
        rows: list[Any] = [row for row in self.params if row.param_type_name == "argument"]
        return [(row.metavar, row.help or "") for row in rows]


def complete_loop(incomplete: str) -> list[str]:
    """What a loop's name or path may go on with."""
    names = [name for name in runs.loop_files() if name.startswith(incomplete)]
    folder, _, start = incomplete.rpartition("/")
    try:
        files = sorted(os.listdir(folder or "."))
    except OSError:
        return names
    for file in files:
        path = os.path.join(folder, file) if folder else file
        if file.startswith(start) and (start or not file.startswith(".")):
            if os.path.isdir(path):
                names.append(path + "/")
            elif runs.is_path(file):
                names.append(path)
    return names


def complete_run(incomplete: str) -> list[str]:
    """Unfinished runs, and the loops they are of."""
    found = list(runs.runs_in(runs.ROOT))
    names = dict.fromkeys(name for run in found for name in (run.name, run.id))
    return [name for name in names if name.startswith(incomplete)]


def complete_any_run(incomplete: str) -> list[str]:
    """Runs, ended or not, and the loops they are of; the latest first."""
    found = [run for folder in (runs.RUNNING, runs.HISTORY) for run in runs.runs_in(runs.ROOT, folder)]
    found.sort(key=lambda run: run.id[-20:], reverse=True)
    names = dict.fromkeys(name for run in found for name in (run.name, run.id))
    return [name for name in names if name.startswith(incomplete)]


_TYPES: dict[str, Any] = {
    options.FLAG: bool,
    options.COUNT: int | None,
    options.TEXT: str | None,
    options.PAIR: list[str] | None,
    options.MANY: list[str] | None,
}


def _parameter(option: Option) -> inspect.Parameter:
    """An option's row as typer wants it."""
    limits: dict[str, Any] = {"min": 1} if option.kind == options.COUNT else {}
    about = typer.Option(*option.names, help=option.doc, metavar=option.metavar, **limits)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if option.kind == options.FLAG else None,
        annotation=Annotated[_TYPES[option.kind], about],
    )


def values(rows: tuple[Option, ...], target: str, given: dict[str, Any]) -> Values:
    """The same values that `options.read` makes."""
    values = dict(given)
    for option in rows:
        if option.kind == options.PAIR:
            values[option.name] = tuple(_pair(option, text) for text in given.get(option.name) or ())
        elif option.kind == options.MANY:
            values[option.name] = tuple(given.get(option.name) or ())
    return Values(rows, target, **values)


def _pair(option: Option, text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise UserError(
            "bad-option",
            f"{option.names[0]} takes K=V, not `{text}`",
            f"such as {option.names[0]} target=src/",
        )
    return key, value


def command(
    rows: tuple[Option, ...],
    *own: inspect.Parameter,
    examples: Iterable[str] = (),
    settings: dict[str, Any] | None = None,
    kind: type[Verb] = Verb,
) -> Callable[[Any], Any]:
    """Declare a verb whose options are `own` and those of `rows`; the function gets (given).

    examples: command lines for its help. settings: how its words are read. kind: how it is shown.
    """

    def declare(function: Callable[[dict[str, Any]], int]) -> Any:
        def call(**given: Any) -> None:
            raise typer.Exit(function(given))

        name = function.__name__.rstrip("_")
        parameters = [*own, *(_parameter(row) for row in rows)]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        shown = [f"  {line}" for line in examples]
        epilog = "\n".join(("\b", "Examples:", *shown)) if shown else None
        about = {"help": VERBS[name], "epilog": epilog, "context_settings": settings}
        return app.command(name, cls=kind, **about)(call)  # type: ignore[arg-type]

    return declare


def argument(
    name: str,
    help: str,
    complete: Callable[[str], list[str]] = complete_loop,
    metavar: str | None = None,
) -> inspect.Parameter:
    metavar = metavar or name.upper()
    about = typer.Argument(help=help, metavar=metavar, autocompletion=complete, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, about])


def option(
    type: Any,
    name: str,
    *names: str,
    help: str,
    default: Any = None,
    metavar: str | None = None,
    **limits: Any,
) -> Any:
    about = typer.Option(*names, help=help, metavar=metavar, **limits)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type, about]
    )


LOOP = argument("loop", "A loop's name, or the path of a .yaml, .sexp or .llb file.")
LOOP_ABOUT = LOOP.annotation.__metadata__[0]
JSON = option(bool, "json", "--json", help="Write JSON to stdout.", default=False)
