"""Signatures of tools and tasks.

One data model for all declarations: built-in tools (`builtin_signatures`), `.loops/tools.yaml`
(`tools_file`), `.loops/tasks/*.xml` (`task_file`), `defatom` (`expand/defatom.py`) and `--declare`. The
`definition` is plain data that becomes part of the program and contains everything needed to perform a call.
Must not contain: compilation of calls (`expand/task_calls.py`).
"""

from __future__ import annotations

from typing import Any

from ...ir.constants import Symbol
from ...ir.records import frozen
from ...ir.spans import Source, Span

# Types of parameters, with their names in messages.
TYPES = {
    "any": "anything",
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list",
    "map": "a map",
}
# Type names of JSON Schema and Python with the same meaning.
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
    """A parameter.

    default: value if a call leaves it out; None: no value.
    variable: variable at the call site that gives the value if the call gives none, or ''.
    choices: allowed texts; empty: any.
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

    parameters: in order; None if they are unknown, so that any name is allowed.
    effect: kind of the effect that a call performs. definition: plain data that this effect carries.
    on_unknown: policy of a resumed run for a call in doubt.
    source, span: place of the declaration; None for a built-in tool.
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
        """Whether a call may give an argument with this name."""
        return self.parameters is None or self.parameter(name) is not None or self.is_reserved(name)

    def is_reserved(self, name: str) -> bool:
        """Whether a name in a call is a setting of the task rather than a parameter."""
        return self.is_task and name in RESERVED and self.parameter(name) is None

    @property
    def usage(self) -> str:
        """The syntax of a call."""
        if self.parameters is None:
            return f"({self.name} (name value)…)"
        shown = []
        for parameter in self.parameters:
            shown.append(f"({parameter.name} …)" if parameter.is_required else f"[({parameter.name} …)]")
        return f"({' '.join([self.name, *shown])})"


def parse_type(word: str) -> str | None:
    """The type that a declaration names; None for an unknown type."""
    word = _SPELLINGS.get(word, word)
    return word if word in TYPES else None


def fits(value: Any, type: str) -> bool:
    """Whether a literal value has a type. Symbols are texts."""
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
