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
    """A namespace of variables. `is_data`: values of unknown origin, quoted in shell actions.

    `fields`: the names that may follow the first dot, or the second if `is_keyed`; None: any.
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
            "Results of actions and calls whose state says `capture:`; a call's has its `value`, "
            "an agent's its `session` and `handoff` where it tells them.",
        ),
        Namespace(
            "prev",
            True,
            False,
            ("output", "stderr", "exit_code", "duration_ms", "state", "value", "session", "handoff"),
            "The result of the last action or call that ran before this state.",
        ),
        Namespace("result", True, False, ("verdict", "details"), "The latest evaluation."),
        Namespace("state", False, False, ("name", "iteration"), "The state that runs."),
        Namespace(
            "loop",
            False,
            False,
            ("name", "started_at", "elapsed_ms", "elapsed", "run_dir"),
            "The loop that runs; `run_dir` is a folder of the run's own, also written `${context.run_dir}`.",
        ),
        Namespace("env", True, True, None, "Environment variables."),
    )
}

# The primitive that quotes a value, by context (`ir.primitives`).
QUOTING_PRIMITIVES = {
    "word": "shell_word",
    "single": "shell_single",
    "double": "shell_double",
    "heredoc": "shell_heredoc",
    "quoted_heredoc": "shell_quoted_heredoc",
    "number": "shell_number",
}

# Fields that are whole numbers, which are safe also where nothing can be quoted; the machine checks.
_NUMBERS = frozenset({"exit_code", "duration_ms"})


@frozen
class Problem:
    """An error between two offsets of the template's text."""

    id: DiagnosticId
    message: str
    start: int
    end: int
    help: str | None = None
    severity: str = "error"


@frozen
class Given:
    """Placeholder in a `context` for a value that is known only when the loop runs."""


@frozen(eq=True)
class Literal:
    """Literal text."""

    text: str


@frozen(eq=True)
class Constant:
    """A value known at compile time that is not a text; always the only part of a template."""

    value: Any


@frozen
class Variable:
    """A value looked up when the template is used.

    quoting: "none", or how the text must be quoted: a key of `QUOTING_PRIMITIVES`; around: the other
    operands of that primitive.
    start, end: offsets of `${…}` in the template's text; for a variable inside a context value, of
    the outermost variable that brought it in. is_given: a `context` value known only to a run.
    filters: primitives that take a part of the value, with their counts, in order. is_word: `:shell`, the
    author's text as one word of a shell; a value that is data is quoted by its place in any case.
    plain: it must be of plain characters and these (`shell_plain`); None: it may be anything.
    """

    namespace: str
    path: tuple[str, ...]
    default: str | None = None
    raw: bool = False
    quoting: str = "none"
    around: tuple[str | None, ...] = ()
    start: int = attrs.field(default=0, eq=False)
    end: int = attrs.field(default=0, eq=False)
    is_given: bool = False
    filters: tuple[tuple[str, int], ...] = ()
    is_word: bool = attrs.field(default=False, eq=False)
    plain: str | None = None

    @property
    def name(self) -> str:
        """Such as `captured.errors.output`."""
        return ".".join((self.namespace, *self.path))

    @property
    def text(self) -> str:
        """The variable as an author writes it, without its default."""
        return f"${{{'raw:' if self.raw else ''}{self.name}}}"

    @property
    def is_number(self) -> bool:
        """Whether its value is always a whole number."""
        if self.filters:
            return False
        is_result = self.namespace in ("captured", "prev") or self.path[:1] == ("details",)
        has_number = self.default is None or re.fullmatch(r"[0-9]{1,18}", self.default) is not None
        return is_result and self.path[-1] in _NUMBERS and has_number

    @property
    def is_data(self) -> bool:
        """Whether its value must be quoted in a shell action."""
        return (NAMESPACES[self.namespace].is_data or self.is_given) and not self.raw


Part = Literal | Constant | Variable


@frozen
class Template:
    """A parsed text. Adjacent literals are joined and none is empty, so no parts means no text."""

    text: str
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def single(self) -> Part | None:
        """The only part, if there is one: a value that keeps its type when no text is asked for."""
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
    """A value as interpolation shows it: strings bare, null empty, lists and maps as JSON.

    Must agree with the machine's primitive `text`; a test holds the two together.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return dumps(value)
