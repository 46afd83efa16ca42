"""Signatures of tools and tasks.

One data model for all declarations: built-in tools (`builtin_signatures`), `.loops/tools.yaml`
(`tools_file`), `.loops/tasks/*.xml` (`task_file`), `defatom` (`expand/defatom.py`) and `--declare`. The
`definition`, plain data that becomes part of the program, contains what is needed to perform one. Must
not contain: compilation of calls (`expand/task_calls.py`).
"""

from __future__ import annotations

from typing import Any

from ...ir.constants import Symbol
from ...ir.records import frozen
from ...ir.spans import Source, Span

# Types of parameters, with their words in messages.
TYPES = {
    "any": "anything",
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list",
    "map": "a map",
}
# The words of JSON Schema and of Python for some of them.
_SPELLINGS = {
    "array": "list",
    "object": "map",
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "map",
}
TYPE_NAMES = (*TYPES, *_SPELLINGS)
# Settings in a call of a task, in addition to the task's own parameters.
RESERVED = ("files", "context", "history_config")
MAX_PARAMETERS = 100


@frozen
class Parameter:
    """A parameter. `default`: its value where a call leaves it out, None for no value at all.

    variable: the variable around a call that gives a value where the call gives none, or ''.
    choices: the texts it may be; empty where it may be any.
    """

    name: str
    type: str = "any"
    is_required: bool = True
    default: Any = None
    doc: str = ""
    variable: str = ""
    choices: tuple[str, ...] = ()

    def allows(self, value: Any) -> bool:
        """Whether a value known at compile time is one of the choices. Null means no value."""
        return not self.choices or value is None or str(value) in self.choices

    def as_data(self) -> dict[str, Any]:
        """The data that a call needs at run time."""
        data: dict[str, Any] = {"name": self.name, "type": self.type, "required": self.is_required}
        if self.default is not None:
            data["default"] = self.default
        return data


@frozen(eq=False)
class Signature:
    """A tool or a task, by its full name.

    parameters: in their order; None where they are unknown, so that any name is allowed.
    effect: the kind of effect that a call performs. definition: what that effect carries, plain data.
    on_unknown: the policy of a resumed run if the outcome is unknown.
    source, span: where it is declared, None for what is built in.
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...] | None
    effect: str
    definition: Any = None
    doc: str = ""
    timeout_s: float | None = None
    on_unknown: str | None = None
    source: Source | None = None
    span: Span | None = None

    @property
    def is_task(self) -> bool:
        return self.kind == "task"

    @property
    def order(self) -> tuple[Parameter, ...]:
        return self.parameters or ()

    def parameter(self, name: str) -> Parameter | None:
        return next((parameter for parameter in self.order if parameter.name == name), None)

    def takes(self, name: str) -> bool:
        """Whether a call may give an argument this name."""
        return self.parameters is None or self.parameter(name) is not None or self.is_reserved(name)

    def is_reserved(self, name: str) -> bool:
        """Whether a name in a call is a setting of the task rather than a parameter."""
        return self.is_task and name in RESERVED and self.parameter(name) is None

    @property
    def usage(self) -> str:
        """How a call is written."""
        if self.parameters is None:
            return f"({self.name} (name value)…)"
        shown = []
        for parameter in self.parameters:
            shown.append(f"({parameter.name} …)" if parameter.is_required else f"[({parameter.name} …)]")
        return f"({' '.join([self.name, *shown])})"


def type_named(word: str) -> str | None:
    """The type that a declaration names, None where there is none of that name."""
    word = _SPELLINGS.get(word, word)
    return word if word in TYPES else None


def fits(value: Any, type: str) -> bool:
    """Whether a value known at compile time (a literal) is of a type. Symbols are texts."""
    match type:
        case "string":
            return isinstance(value, str | Symbol)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, tuple | list)
        case "map":
            return isinstance(value, dict)
        case _:
            return True
