"""What a program may call besides functions: the signatures of tools and tasks.

One data model for all of them, wherever they are declared: the tools that are built in
(`system_tools`), `.loops/tools.yaml` (`tools_file`), `.loops/tasks/*.xml` (`task_file`), `defatom`
(`task_forms`) and `--declare`. What is needed to perform one is its `definition`, plain data that
becomes part of the program. Must not be in here: what a call is compiled to (`calls`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ...ir.records import frozen
from ...ir.spans import Source, Span

# What a parameter may be, and the words for it in messages.
TYPES = {
    "any": "anything",
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list",
    "map": "a map",
}
# JSON Schema's words for two of them.
_SPELLINGS = {"array": "list", "object": "map"}
TYPE_NAMES = (*TYPES, *_SPELLINGS)
# What a resumed run does where it is not known whether a tool or a task did its work.
POLICIES = ("rerun", "ask", "fail")
# What stands in a call of a task beside the task's own parameters.
RESERVED = ("files", "context", "history_config")
# Names that take as much text, and as many of them, help nobody.
MAX_PARAMETERS = 100
MAX_NAME = 100
_WORDS = ("else", "true", "false", "null", "nil")
_NAME = re.compile(r"(?:[^\W\d]|<)[\w.:/?!*+<>=-]*")
_PARAMETER = re.compile(r"[^\W\d][\w-]*")


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
        """Whether a value that is known when compiling is one of the choices. Null is none at all."""
        return not self.choices or value is None or str(value) in self.choices

    def as_data(self) -> dict[str, Any]:
        """What a call needs to know of it when it runs."""
        data: dict[str, Any] = {"name": self.name, "type": self.type, "required": self.is_required}
        if self.default is not None:
            data["default"] = self.default
        return data


@frozen(eq=False)
class Signature:
    """A tool or a task, by its full name.

    parameters: in their order; None where nothing is known of them, so that any name goes.
    effect: the kind of effect that a call performs. definition: what that effect carries, plain data.
    on_unknown: what a resumed run does where it is not known whether the effect happened.
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
    """Whether a value that is known when compiling (a literal) is of a type. Symbols are texts."""
    match type:
        case "string":
            return isinstance(value, str) or _is_symbol(value)
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


def _is_symbol(value: Any) -> bool:
    from ...ir.symbols import Symbol

    return isinstance(value, Symbol)


def is_name(text: str) -> bool:
    """Whether a tool or task can be called that."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def is_parameter_name(text: str) -> bool:
    return len(text) <= MAX_NAME and _PARAMETER.fullmatch(text) is not None


def refused_name(name: str) -> str | None:
    """Why no tool or task can be called that; None if one can."""
    from ..core.forms import FORMS
    from ..core.library import LIBRARY
    from ..expand import program  # noqa: F401  whatever registers a form
    from ..expand.expander import CONFIG, WORDS
    from .builtin_tools import SYSTEM_TOOLS

    if not is_name(name):
        return "a name is letters, digits and `_ : - . / ? !`, as in `project:name`"
    if name in SYSTEM_TOOLS or name.startswith(
        ("system:", "aider:", "mcp:", "loop:", "calls:", "effect:", "op:")
    ):
        return "names that begin so are llc's own"
    if (
        name in FORMS
        or name in WORDS
        or name in RESERVED
        or name in (CONFIG, "else", "true", "false", "null")
    ):
        return "it is a word of the language; put a word before it, as in `my:name`"
    if name in LIBRARY:
        return "the library has a function of that name; put a word before it, as in `my:name`"
    return None


_DECLARED = re.compile(r"\s*(?:(?P<kind>tool|task)\s+)?(?P<name>[^\s(]+)\s*(?:\((?P<order>[^()]*)\))?\s*")


def declared_on_the_side(text: str) -> Signature:
    """The signature that `--declare` gives: `name`, `name(x,y)` or `task name(x,y)`.

    ValueError, with what is wrong, for any other text.
    """
    found = _DECLARED.fullmatch(text)
    if found is None or not is_name(found["name"]):
        raise ValueError("it is a name, with its parameters in brackets if they are known: math:add(x,y)")
    parameters = None
    if found["order"] is not None:
        names = [name.strip() for name in found["order"].split(",")] if found["order"].strip() else []
        for name in names:
            if not is_parameter_name(name):
                raise ValueError(f"`{name}` cannot be the name of a parameter")
        if len(set(names)) < len(names):
            raise ValueError("a parameter stands twice")
        parameters = tuple(Parameter(name) for name in names)
    kind = found["kind"] or "tool"
    return Signature(found["name"], kind, parameters, kind)


def spellings(name: str) -> Iterable[str]:
    """A name, and with `_` for its first `:` or the other way: `system_run_script` is `system:run_script`."""
    yield name
    first, mark, rest = name.partition("_")
    if mark and first in ("system", "aider"):
        yield f"{first}:{rest}"
