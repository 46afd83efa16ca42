"""The verbs as the command-line library has them, made of how they are declared (`declaring`)."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import options
from ..options import Argument, Option
from ..verbs import HOMES, VERBS
from .declaring import Verb, declared

if TYPE_CHECKING:
    from ..options import Complete


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


class _Command(TyperCommand):
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


class _OpenCommand(_Command):
    """What stands behind the first argument is not the verb's own, also where it begins with `-`."""

    def shell_complete(self, context: Any, incomplete: str) -> Any:
        last = declared[str(self.name)].arguments[-1]
        if not context.params.get(last.name) or last.complete is None:
            return super().shell_complete(context, incomplete)
        words = _completion(last.complete)(context, incomplete)
        return [SimpleNamespace(value=word, type="plain", help=None) for word in words]


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
    shown = [f"  {line}" for line in verb.examples]
    app.command(
        verb.name,
        cls=_OpenCommand if verb.is_open else _Command,
        help=VERBS[verb.name],
        epilog="\n".join(("\b", "Examples:", *shown)) if shown else None,
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
        autocompletion=_completion(option.complete),
    )
    return _parameter(option.name, _TYPES[option.kind], about, option.default or None)


def _argument(argument: Argument) -> inspect.Parameter:
    about = typer.Argument(
        help=argument.doc,
        metavar=argument.metavar,
        autocompletion=_completion(argument.complete),
        show_default=False,
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


def _completion(complete: Complete | None) -> Any:
    if complete is None:
        return None
    takes_context = len(inspect.signature(complete).parameters) > 1

    def found(context: typer.Context, incomplete: str) -> list[str]:
        given: Any = (context.params, incomplete) if takes_context else (incomplete,)
        return complete(*given)

    return found
