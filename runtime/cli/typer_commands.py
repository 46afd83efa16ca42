"""The verbs as the command-line library has them, made of how they are declared (`declaring`).

It reads words that are not plain, says what is wrong with them, and gives shells their scripts; what help
and completion tell is `help`'s and `completion`'s.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from math import isfinite
from typing import Annotated, Any

import typer
from typer import _completion_shared
from typer.core import TyperCommand, TyperGroup

from ...ir.diagnostics import clean, suggest
from ..host import files
from ..host.errors import UserError
from ..project import options
from ..project.options import Argument, Option
from ..runs.loops import is_path, loop_files
from . import completion, help
from .declare import Verb, declared
from .verbs import HOMES, VERBS

_completion_shared._completion_scripts["bash"] = completion.BASH


class _Program(TyperGroup):
    def get_help(self, context: Any) -> str:
        return help.program(context.info_name).rstrip("\n")

    def resolve_command(self, context: Any, words: list[str]) -> Any:
        """As the library has it; an unknown verb is refused in our words."""
        name = words[0]
        if name not in VERBS:
            is_loop = name in loop_files() or (is_path(name) and files.isfile(name))
            program = context.info_name
            help = f"to run it: {program} run {name}" if is_loop else suggest(name, VERBS, "commands")
            raise UserError("unknown-command", f"{program} has no command `{clean(name, 60)}`", help)
        return super().resolve_command(context, words)


app = typer.Typer(
    cls=_Program,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


class _Command(TyperCommand):
    def get_help(self, context: Any) -> str:
        return help.verb(context.command_path, declared[str(self.name)]).rstrip("\n")

    def collect_usage_pieces(self, context: Any) -> list[str]:
        return help.pieces(declared[str(self.name)])


def build() -> None:
    """Make a command of every verb."""
    for home in dict.fromkeys(HOMES.values()):
        import_module(f"{__package__}.{home}")
    if set(declared) != set(VERBS):
        raise AssertionError("a verb has no command, or a command no verb")
    if not app.registered_commands:
        for verb in declared.values():
            _add(verb)


def _add(verb: Verb) -> None:
    def call(**given: Any) -> None:
        raise typer.Exit(verb.do(given))

    parameters = [*map(_argument, verb.arguments), *map(_option, verb.options)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(
        verb.name,
        cls=_Command,
        context_settings={"allow_interspersed_args": False} if verb.is_open else None,
    )(call)


_TYPES: dict[str, Any] = {
    options.FLAG: bool,
    options.COUNT: int,
    options.NUMBER: int,
    options.SECONDS: float,
    options.TEXT: str,
    options.PAIR: list[str],
    options.MANY: list[str],
}


def _option(option: Option) -> inspect.Parameter:
    about = typer.Option(
        *option.names,
        help=option.doc,
        metavar=option.metavar,
        min=option.least,
        max=option.most,
        callback=_finite if option.kind == options.SECONDS else None,
    )
    return _parameter(option.name, _TYPES[option.kind], about, option.default or None)


def _finite(value: float | None) -> float | None:
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value} is no time; give a number of seconds")
    return value


def _argument(argument: Argument) -> inspect.Parameter:
    about = typer.Argument(
        help=argument.doc,
        metavar=argument.metavar,
    )
    is_list = argument.count in (options.SOME, options.ANY)
    is_needed = argument.count in (options.ONE, options.SOME)
    return _parameter(
        argument.name, list[str] if is_list else str, about, inspect.Parameter.empty if is_needed else None
    )


def _parameter(name: str, type: Any, about: Any, default: Any) -> inspect.Parameter:
    if type is bool:
        default = False
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[type | None if default is None else type, about],
    )
