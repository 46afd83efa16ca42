"""Subcommands: lookup in the generated table, and import of their functions."""

from __future__ import annotations

from ...ir.light_records import LightRecord
from ...ir.python_internals import import_module
from ..host.errors import UserError
from ..project.options import CommandParameter
from .table import PARAMETERS, PROGRAM, SUBCOMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["SUBCOMMANDS", "Subcommand", "find", "load", "program"]


class Subcommand(LightRecord):
    """A subcommand with its parameters.

    Args:
        doc: its description.
        function: `module:name` below `runtime.cli`.
        is_open: options end at the first argument; the words after it belong to the argument.
        examples: command lines for the help.
        parameters: options and arguments, in the order of the help.
    """

    name: str
    doc: str
    function: str
    is_open: bool
    examples: tuple[str, ...]
    parameters: Sequence[CommandParameter]

    @property
    def arguments(self) -> list[CommandParameter]:
        return [row for row in self.parameters if not row.names]

    @property
    def options(self) -> list[CommandParameter]:
        return [row for row in self.parameters if row.names]


def find(name: str) -> Subcommand:
    """The subcommand with this name, which is a key of SUBCOMMANDS."""
    doc, function, is_open, examples, parameters, _ = SUBCOMMANDS[name]
    rows = [CommandParameter(*PARAMETERS[key]) for key in parameters.split()]
    return Subcommand(name, doc, function, is_open, examples, rows)


def program(name: str) -> Subcommand:
    """The program itself as a subcommand, whose arguments are a subcommand with its words."""
    doc, parameters = PROGRAM
    words = CommandParameter("words", (), "text", "", "COMMAND [ARGS]...", is_repeated=True)
    return Subcommand(
        name, doc, "", True, (), [words, *(CommandParameter(*PARAMETERS[key]) for key in parameters.split())]
    )


def load(path: str) -> Callable[..., Any]:
    """Import the function `module:name` below `runtime.cli`."""
    return _load(__package__, path)


def load_runtime(path: str) -> Callable[..., Any]:
    """Import the function `module:name` below `runtime`."""
    return _load(__package__.rpartition(".")[0], path)


def _load(package: str, path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"{package}.{module}"), name)
    return function


def refuse_driver_options(options: dict[str, Any], allowed: tuple[str, ...]) -> None:
    """Refuse options that are not in `allowed`, because `--on` is given. Raises UserError."""
    for name, value in options.items():
        if value and name not in allowed:
            raise UserError("bad-option", f"`--{name.replace('_', '-')}` and `--on` exclude each other")
