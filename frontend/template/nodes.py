"""Parsed templates as data: literals, constants, variables, and the namespaces of variables.

Must not contain: parsing (`template`), or shell syntax (`shell_quoting`).
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from ...ir.diagnostics import DiagnosticId
from ...ir.light_json import dumps
from ...ir.records import frozen


@frozen
class Namespace:
    """A namespace of variables.

    is_data: values are untrusted and are quoted in shell actions.
    is_keyed: the first part of the path is a key chosen by the author, such as the name of a capture.
    fields: names allowed after the first dot, or after the second if `is_keyed`; None: any name.
    """

    name: str
    is_data: bool
    is_keyed: bool
    fields: tuple[str, ...] | None
    doc: str


NAMESPACES = {
    row.name: row
    for row in (
        Namespace("context", False, True, None, "The author's variables from the `context:` block."),
        Namespace(
            "captured",
            True,
            True,
            ("output", "stderr", "exit_code", "duration_ms", "value", "session", "handoff"),
            "Results of actions and calls of states with `capture:`. A call has a `value`; an agent has a "
            "`session` and a `handoff` if it reports them.",
        ),
        Namespace(
            "prev",
            True,
            False,
            ("output", "stderr", "exit_code", "duration_ms", "state", "value", "session", "handoff"),
            "The result of the last action or call that ran before this state.",
        ),
        Namespace("result", True, False, ("verdict", "details"), "The latest evaluation."),
        Namespace("state", False, False, ("name", "iteration"), "The current state."),
        Namespace(
            "loop",
            False,
            False,
            ("name", "started_at", "elapsed_ms", "elapsed", "run_dir"),
            "The current loop; `run_dir` is the run's own folder, also written `${context.run_dir}`.",
        ),
        Namespace("env", True, True, None, "Environment variables."),
    )
}

# The primitive (`ir.primitives`) that quotes a value, by quoting context.
QUOTING_PRIMITIVES = {
    "word": "shell_word",
    "single": "shell_single",
    "double": "shell_double",
    "heredoc": "shell_heredoc",
    "quoted_heredoc": "shell_quoted_heredoc",
    "number": "shell_number",
}

# Fields that are always whole numbers. They are safe even where quoting is impossible; the machine checks
# them.
_NUMBERS = frozenset({"exit_code", "duration_ms"})


@frozen
class Problem:
    """An error or a warning about the text between two offsets of a template."""

    id: DiagnosticId
    message: str
    start: int
    end: int
    help: str | None = None
    severity: str = "error"


@frozen
class RuntimeValue:
    """Placeholder in a `context` for a value that is known only at run time."""


@frozen(eq=True)
class Literal:
    """Literal text."""

    text: str


@frozen(eq=True)
class Constant:
    """A value known at compile time that is not a text. It is always the only part of its template."""

    value: Any


@frozen
class Variable:
    """A value that is looked up when the template is evaluated.

    default: text to use if the value is missing; None: a missing value is a fault.
    raw: `raw:`, inserted without quoting.
    quoting: "none", or the quoting context: a key of `QUOTING_PRIMITIVES`.
    around: the further operands of the quoting primitive.
    start, end: offsets of `${…}` in the template's text; for a variable inside a context value, the offsets
    of
        the outermost variable, through which it was inserted.
    is_runtime_value: a `context` value that is known only at run time.
    filters: primitives that select a part of the value, with their counts, in order of application.
    is_word: `:shell`, quote the author's text as one shell word. A value that is data is quoted by its
        context in any case.
    plain: fault unless the value consists of safe characters and these (`shell_plain`); None: no check.
    """

    namespace: str
    path: tuple[str, ...]
    default: str | None = None
    raw: bool = False
    quoting: str = "none"
    around: tuple[str | None, ...] = ()
    start: int = attrs.field(default=0, eq=False)
    end: int = attrs.field(default=0, eq=False)
    is_runtime_value: bool = False
    filters: tuple[tuple[str, int], ...] = ()
    is_word: bool = attrs.field(default=False, eq=False)
    plain: str | None = None

    @property
    def name(self) -> str:
        """The qualified name, such as `captured.errors.output`."""
        return ".".join((self.namespace, *self.path))

    @property
    def text(self) -> str:
        """The variable as an author writes it, without its default."""
        return f"${{{'raw:' if self.raw else ''}{self.name}}}"

    @property
    def is_number(self) -> bool:
        """Whether the value is always a whole number."""
        if self.filters:
            return False
        is_result = self.namespace in ("captured", "prev") or self.path[:1] == ("details",)
        has_number = self.default is None or re.fullmatch(r"[0-9]{1,18}", self.default) is not None
        return is_result and self.path[-1] in _NUMBERS and has_number

    @property
    def is_data(self) -> bool:
        """Whether the value must be quoted in a shell action."""
        return (NAMESPACES[self.namespace].is_data or self.is_runtime_value) and not self.raw


Part = Literal | Constant | Variable


@frozen
class Template:
    """A parsed text. Adjacent literals are joined and no literal is empty; an empty text has no parts."""

    text: str
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def single(self) -> Part | None:
        """The part of a template with exactly one part, else None. Its value keeps its type unless a text is
        needed.
        """
        return self.parts[0] if len(self.parts) == 1 else None

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(part for part in self.parts if isinstance(part, Variable))

    @property
    def fixed(self) -> str | None:
        """The constant text of the template; None if it depends on the run."""
        if not all(isinstance(part, Literal) for part in self.parts):
            return None
        return "".join(part.text for part in self.parts if isinstance(part, Literal))


def text_of(value: Any) -> str:
    """Convert a value to text for interpolation: strings unquoted, null empty, lists and maps as JSON.

    Must agree with the machine's primitive `text`; a test compares them.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return dumps(value)
