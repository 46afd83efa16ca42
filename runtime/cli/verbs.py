"""The subcommands as the generated table describes them."""

from __future__ import annotations

from ...ir.light_records import LightRecord
from ...ir.python_internals import import_module
from ..host.errors import UserError
from ..project.options import CommandParameter
from .table import PARAMETERS, PROGRAM, VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["VERBS", "Verb", "find", "load", "program"]


class Verb(LightRecord):
    """A subcommand: its parameters, and where its function is.

    function: `module:name` below `runtime.cli`. is_open: options end at the first argument.
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


def find(name: str) -> Verb:
    """The subcommand of a name in VERBS."""
    doc, function, is_open, examples, parameters, _ = VERBS[name]
    rows = [CommandParameter(*PARAMETERS[key]) for key in parameters.split()]
    return Verb(name, doc, function, is_open, examples, rows)


def program(name: str) -> Verb:
    """The program itself as a subcommand without a name, whose arguments are the words of a subcommand."""
    doc, parameters = PROGRAM
    words = CommandParameter("words", (), "text", "", "COMMAND [ARGS]...", is_repeated=True)
    return Verb(
        name, doc, "", True, (), [words, *(CommandParameter(*PARAMETERS[key]) for key in parameters.split())]
    )


def load(path: str, level: int = 1) -> Callable[..., Any]:
    """The function of a path `module:name` below `runtime.cli`, at level 2 below `runtime`."""
    module, _, name = path.partition(":")
    package = __package__.rsplit(".", level - 1)[0]
    found: Callable[..., Any] = getattr(import_module(f"{package}.{module}"), name)
    return found


def refuse_beside_on(given: dict[str, Any], allowed: tuple[str, ...]) -> None:
    """Refuse options of a process that drives a run where `--on` is given. Raises UserError."""
    for name, value in given.items():
        if value and name not in allowed:
            raise UserError("bad-option", f"`--{name.replace('_', '-')}` and `--on` exclude each other")
