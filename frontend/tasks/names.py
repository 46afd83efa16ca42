"""Names of tools, tasks and parameters: syntax and reserved names."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.python_internals import late_pattern
from ..core.library import LIBRARY
from ..core.reserved_names import CONFIG, FORM_NAMES, WORDS
from .builtin_signatures import SYSTEM_TOOLS
from .signature import RESERVED

MAX_NAME = 100
_NAME = late_pattern(r"(?:[^\W\d]|<)[\w.:/?!*+<>=-]*")
_PARAMETER = late_pattern(r"[^\W\d][\w-]*")


def is_name(text: str) -> bool:
    """Whether a text has the syntax of a tool's or task's name."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def is_parameter_name(text: str) -> bool:
    return len(text) <= MAX_NAME and _PARAMETER.fullmatch(text) is not None


def name_problem(name: str) -> str | None:
    """Why a tool or task cannot have this name; None if it can."""
    if not is_name(name):
        return "a name consists of letters, digits and `_ : - . / ? !`, as in `project:name`"
    if name in SYSTEM_TOOLS or name.startswith(
        ("system:", "aider:", "mcp:", "loop:", "calls:", "effect:", "op:")
    ):
        return "names with this prefix are reserved for llc"
    if (
        name in FORM_NAMES
        or name in WORDS
        or name in RESERVED
        or name in (CONFIG, "else", "true", "false", "null")
    ):
        return "it is a word of the language; add a prefix, as in `my:name`"
    if name in LIBRARY:
        return "the library has a function of that name; add a prefix, as in `my:name`"
    return None


def spellings(name: str) -> Iterable[str]:
    """A name and its alternative with `:` for the first `_`: `system_run_script` is `system:run_script`."""
    yield name
    first, mark, rest = name.partition("_")
    if mark and first in ("system", "aider"):
        yield f"{first}:{rest}"
