"""The form `defatom`: definition of an atomic task at the top of a file.

    (defatom user:greet
      (params (name string) (style string "warm"))
      (instructions "Greet {{name}} in a {{style}} way."))

Its clauses are data, in any order; nothing in them is evaluated. The task is visible in the file and
in files that import it.
"""

from __future__ import annotations

from typing import Any

from ...ir.constants import Symbol
from ...ir.diagnostics import suggest
from ...ir.effects import ON_UNKNOWN, RUNNERS
from ...ir.spans import Lines, Source, Span
from ..core.forms import Steps, form
from ..core.scope import Identifier, Scope, identifier_of, value_of
from ..sexp.datum import Atom, Datum, Form
from ..tasks.atomic_task import (
    HISTORY_SETTINGS,
    OUTPUTS,
    SUBTYPE,
    AtomicTask,
    OutputFormat,
    check_setting,
    explain_placeholder,
    read_schema,
    unknown_placeholders,
)
from ..tasks.names import is_parameter_name, name_problem
from ..tasks.signature import TYPES, Parameter, Signature, fits, parse_type
from .expansion import Context

USAGE = (
    '(defatom name (params (name [type [default]])…) (instructions "…{{name}}…") [(subtype "…")] '
    '[(description "…")] [(model "…")] [(runner "…")] [(on_unknown "…")] [(system "…")] [(criteria "…")] '
    '[(output_format (type "json") (schema "…") (repair true))] [(history_config (name value)…)])'
)
_TEXTS = ("instructions", "subtype", "description", "model", "runner", "on_unknown", "system", "criteria")
# Clauses whose text can be written as a symbol.
_WORDS = ("subtype", "model", "runner", "on_unknown")
# Symbols in data that mean no value.
_NOTHING = (Symbol("nil"), Symbol("null"))
_CHOICES = {"runner": RUNNERS, "on_unknown": ON_UNKNOWN}
_CLAUSES = ("params", *_TEXTS, "output_format", "history_config")


@form(
    "defatom", USAGE, "Define a task that a model performs in one request; returns the name of the task.", 1
)
def expand_defatom(x: Context, datum: Form, scope: Scope) -> Steps:
    return x.refuse_place("misplaced-defatom", "`defatom` is allowed only at the top of a file", datum)


def read_defatom(x: Context, datum: Form, scope: Scope) -> tuple[Identifier, Signature] | None:
    """Return the task that a form defines, with its name; None if the name is invalid."""
    identifier = identifier_of(datum.items[1])
    if identifier is None:
        x.error("bad-binding", "the name of the task is expected here", datum.items[1].span)
        return None
    why = name_problem(identifier.name)
    if why is not None:
        message = f"a task cannot be called `{identifier.name[:100]}`: {why}"
        x.error("bad-name", message, datum.items[1].span)
        return None
    reader = _Reader(x, scope)
    task = reader.task(identifier.name, datum)
    # Without a source: the file is one of the program's sources.
    return identifier, task.signature(None, datum.items[1].span)


class _Reader:
    def __init__(self, x: Context, scope: Scope) -> None:
        self.x = x
        self.scope = scope

    def task(self, name: str, datum: Form) -> AtomicTask:
        given = self.clauses(datum)
        inputs = self.parameters(given["params"]) if "params" in given else ()
        texts = {word: self.text(given[word]) for word in _TEXTS if word in given}
        for word in ("params", "instructions"):
            if word not in given:
                message = f"the task `{name}` has no `{word}`"
                self.x.error("missing-clause", message, datum.items[1].span, help=f"write {USAGE}")
        for word in ("instructions", "system", "criteria"):
            if word in given:
                self.check_names(given[word], texts[word], inputs)
        chosen = {word: self.choice(word, given[word], texts[word]) for word in _CHOICES if word in given}
        return AtomicTask(
            name,
            texts.get("instructions", ""),
            inputs,
            texts.get("subtype") or SUBTYPE,
            texts.get("description", ""),
            texts.get("model", ""),
            texts.get("system", ""),
            self.output(given["output_format"]) if "output_format" in given else OutputFormat(),
            history=self.history(given["history_config"]) if "history_config" in given else {},
            criteria=texts.get("criteria", ""),
            runner=chosen.get("runner", ""),
            on_unknown=chosen.get("on_unknown", ""),
        )

    def choice(self, word: str, clause: Form, text: str) -> str:
        if text in ("", *_CHOICES[word]):
            return text
        help = suggest(text, _CHOICES[word], "it is one of")
        self.x.error("unknown-choice", f"`{word}` cannot be `{text[:80]}`", clause.span, help=help)
        return ""

    def clauses(self, datum: Form) -> dict[str, Form]:
        found: dict[str, Form] = {}
        for item in datum.items[2:]:
            head = identifier_of(item.items[0]) if isinstance(item, Form) and item.items else None
            if head is None or not isinstance(item, Form) or item.tail is not None:
                names = ", ".join(f"`{name}`" for name in _CLAUSES)
                what = "not a clause of `defatom`"
                self.x.error("bad-clause", what, item.span, help=f"its clauses are {names}")
            elif head.name not in _CLAUSES:
                help = suggest(head.name, _CLAUSES, "its clauses are")
                message = f"`defatom` has no clause `{head.name}`"
                self.x.error("unknown-clause", message, item.items[0].span, help=help)
            elif head.name in found:
                self.x.error("repeated-clause", f"`{head.name}` is given twice", item.span, "again here")
            else:
                found[head.name] = item
        return found

    def text(self, clause: Form) -> str:
        value = unquoted(clause.items[1]) if len(clause.items) == 2 else None
        if isinstance(value, Atom):
            if isinstance(value.value, str):
                return value.value
            name = identifier_of(value)
            if name is not None and clause.head is not None and clause.head.name in _WORDS:
                return name.name
        word = clause.head.name if clause.head is not None else ""
        self.x.error("bad-clause", f"`{word}` takes one string", clause.span, help=f'write ({word} "…")')
        return ""

    def check_names(self, clause: Form, text: str, inputs: tuple[Parameter, ...]) -> None:
        for place in unknown_placeholders(text, inputs):
            span = self.within(clause.items[1], text, place.start, place.end)
            message = f"`{{{{{place.name[:80]}}}}}` is not a parameter of the task"
            help = explain_placeholder(place.name, inputs)
            self.x.error("unknown-placeholder", message, span, "here", help)

        for name in [parameter.name for parameter in inputs]:
            # The notation of Python or of the shell, if the task does not use the parameter otherwise.
            start = text.find(f"{{{name}}}")
            if start >= 0 and f"{{{{{name}" not in text:
                start -= text[max(start - 1, 0)] == "$"
                span = self.within(clause.items[1], text, start, text.index("}", start) + 1)
                written = text[start : text.index("}", start) + 1]
                message = f"`{written}` is ordinary text: the task has no parameter of this name"
                self.x.warn("unknown-placeholder", message, span, "not replaced", f"write `{{{{{name}}}}}`")

    def within(self, datum: Datum, text: str, start: int, end: int) -> Span | None:
        """Return the span of a part of a string; the span of the string if escapes make it unknown."""
        span = datum.span
        source = next((item for item in self.x.sources if span and item.path == span.path), None)
        if span is None or source is None:
            return span
        return _find(source, span, text[start:end], text.count(text[start:end], 0, start))

    # --- clauses ------------------------------------------------------------------------------

    def parameters(self, clause: Form) -> tuple[Parameter, ...]:
        rows = _rows(clause)
        found: dict[str, Parameter] = {}
        for row in rows:
            parts = row.items if isinstance(row, Form) else (row,)
            name = identifier_of(parts[0]) if parts else None
            if name is None or not is_parameter_name(name.name) or len(parts) > 3:
                help = "write (params (name [type [default]])…)"
                self.x.error(
                    "bad-clause", "a parameter must be a name, or (name type default)", row.span, help=help
                )
            elif name.name in found:
                message = f"the parameter `{name.name}` occurs twice"
                self.x.error("repeated-parameter", message, row.span, "again here")
            else:
                found[name.name] = self.parameter(name.name, parts[1:])
        return tuple(found.values())

    def parameter(self, name: str, parts: tuple[Datum, ...]) -> Parameter:
        if not parts:
            return Parameter(name)
        kind, is_required = unquoted(parts[0]), True
        head = identifier_of_first(kind)
        if head is not None and head.name == "optional" and isinstance(kind, Form) and len(kind.items) == 2:
            kind, is_required = kind.items[1], False
        word = identifier_of(kind)
        spelled = word.name if word is not None else kind.value if isinstance(kind, Atom) else None
        if isinstance(spelled, str) and (spelled.endswith("?") or spelled == "optional"):
            spelled, is_required = spelled.removesuffix("?").replace("optional", "any"), False
        type = parse_type(spelled) if isinstance(spelled, str) else None
        if type is None:
            what = f"there is no type `{str(spelled)[:80]}`" if spelled is not None else "this is not a type"
            help = suggest(str(spelled), TYPES) or ""
            if not help.startswith("did"):
                help = f"each parameter needs its own brackets: ({name}) (…); types are {', '.join(TYPES)}"
            self.x.error("unknown-type", what, parts[0].span, help=help)
            return Parameter(name)
        if len(parts) == 1:
            return Parameter(name, type, is_required)
        default = self.data(parts[1])
        if default is not None and not fits(default, type):
            message = f"the default of `{name}` must be {TYPES[type]}"
            self.x.error("wrong-type", message, parts[1].span, "not this")
            default = None
        return Parameter(name, type, False, default)

    def output(self, clause: Form) -> OutputFormat:
        given = self.settings(clause, ("type", "schema", "repair"))
        type = self.word(given.get("type"), "json" if "schema" in given else "text")
        if type not in OUTPUTS:
            help = suggest(type, OUTPUTS, "it is one of")
            self.x.error("unknown-choice", f"`type` cannot be `{type[:80]}`", clause.span, help=help)
        repair = self.data(given["repair"]) if "repair" in given else False
        if not isinstance(repair, bool):
            self.x.error("wrong-type", "`repair` must be true or false", given["repair"].span, "not this")
        elif repair and type != "json":
            message = "`repair` needs an output of type json"
            self.x.error("contradictory-keys", message, given["repair"].span, help='write (type "json")')
        if "schema" not in given:
            return OutputFormat(type, None, repair is True)
        if type != "json":
            message = "`schema` needs an output of type json"
            self.x.error("contradictory-keys", message, given["schema"].span, help='write (type "json")')
        try:
            return OutputFormat(type, read_schema(self.word(given["schema"], "")), repair is True)
        except ValueError as error:
            self.x.error("bad-schema", f"the schema is invalid: {error}", given["schema"].span)
            return OutputFormat(type)

    def history(self, clause: Form) -> dict[str, Any]:
        found = {}
        for name, datum in self.settings(clause, tuple(HISTORY_SETTINGS)).items():
            value = self.data(datum)
            if value is None or value == () or value in _NOTHING:
                continue  # treated as omitted
            problem = check_setting(HISTORY_SETTINGS, name, value)
            if problem is not None:
                self.x.error("unknown-setting", problem, datum.span)
            else:
                found[name] = value
        return found

    def settings(self, clause: Form, known: tuple[str, ...]) -> dict[str, Datum]:
        found: dict[str, Datum] = {}
        for row in _rows(clause):
            name = identifier_of_first(row)
            if name is None or not isinstance(row, Form) or len(row.items) != 2:
                self.x.error("bad-clause", "a setting must be (name value)", row.span)
            elif name.name not in known:
                help = suggest(name.name, known, "there are")
                message = f"there is no setting `{name.name}`"
                self.x.error("unknown-setting", message, row.items[0].span, help=help)
            elif name.name in found:
                self.x.error("repeated-key", f"`{name.name}` is given twice", row.span, "again here")
            else:
                found[name.name] = row.items[1]
        return found

    def word(self, datum: Datum | None, default: str) -> str:
        """Return a string, or the name of a symbol."""
        if datum is None:
            return default
        datum = unquoted(datum)
        name = identifier_of(datum)
        if name is not None:
            return name.name
        if isinstance(datum, Atom) and isinstance(datum.value, str):
            return datum.value
        self.x.error("bad-clause", "a string is expected here", datum.span)
        return default

    def data(self, datum: Datum) -> Any:
        """Return the value of a datum, without its quote."""
        try:
            return value_of(unquoted(datum))
        except ValueError:
            self.x.error("dotted-list", "a dotted pair is not a value", datum.span)
            return None


def unquoted(datum: Datum) -> Datum:
    """Return a datum without its quote; nothing in the clauses is evaluated."""
    if isinstance(datum, Form) and datum.head is Symbol("quote") and len(datum.items) == 2:
        return datum.items[1]
    return datum


def _rows(clause: Form) -> tuple[Datum, ...]:
    """Return the rows of `(clause row…)` or `(clause (row…))`, which may be quoted."""
    rows = clause.items[1:]
    only = unquoted(rows[0]) if len(rows) == 1 else None
    if isinstance(only, Form) and (only is not rows[0] or identifier_of_first(only) is None):
        return only.items
    return rows


def identifier_of_first(datum: Datum) -> Identifier | None:
    """Return the identifier at the head of a form."""
    return identifier_of(datum.items[0]) if isinstance(datum, Form) and datum.items else None


def _find(source: Source, span: Span, needle: str, before: int) -> Span:
    """Return the span of the occurrence of `needle` after `before` other ones; `span` if there is none."""
    lines = Lines(source)
    text = source.text or ""
    at = lines.offset(span.line, span.column) - 1
    last = lines.offset(span.end_line, span.end_column)
    for _ in range(before + 1):
        at = text.find(needle, at + 1, last)
        if at < 0:
            return span
    return lines.span(at, at + len(needle))
