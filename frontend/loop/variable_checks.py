"""Checks of the variables in the texts of a loop.

Owns the checks of `${…}`: problems that `template` finds, unknown fields, captures that are never set or may
not be set on some path, and values that are inserted unquoted on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostics import Diagnostic, suggest
from ...ir.python_internals import late_pattern
from ...ir.records import frozen
from ...ir.spans import Span
from ..source.document import Document
from ..source.schema import fields_of
from ..template.nodes import NAMESPACES, Constant, Problem, Template, Variable, text_of
from ..template.template import parse
from .control_flow import Graph
from .evaluator_schema import EVALUATORS
from .hook_schema import hooks_in
from .schema import Loop, StateSpec
from .texts import argument_key, argument_texts, template_of, texts_of_evaluator, texts_of_loop

DETAILS = sorted(
    {name for cls in EVALUATORS.values() for name in cls.details} | {"message", "error", "reason"}
)
# Notations of other tools: `{{ context.x }}`, `$context.x`, `${{`, and `${x}` of the shell.
_FOREIGN_NOTATIONS = late_pattern(
    r"(?<!\$)(?:"
    r"\{\{\s*(?P<braces>(?:context|captured|prev|result|loop|state)\.[\w.-]+)\s*\}\}"
    r"|\$(?P<plain>(?:context|captured|prev|result|loop)\.[A-Za-z_]\w*(?:\.\w+)*)"
    r"|\$\{(?P<shell>[A-Za-z_]\w*)\}"
    r"|\$\{\{)"
)
# Fields of a result that only little-loops has; `()` is the whole result.
_FOREIGN_FIELDS = ((), ("verdict",), ("failure_type",), ("timeout_kind",), ("terminated_by",), ("edit",))
# Limit of compared names; beyond it, diagnostics have no suggestion.
MAX_COMPARISONS = 100_000
# Limit of "may be read before" diagnostics that show a path; each needs a search.
MAX_SHOWN_PATHS = 20


@frozen
class Text:
    """A text of a loop that may contain variables.

    field: such as `action` or `evaluate.target`. state: the state of the text; None: the loop itself.
    """

    state: StateSpec | None
    field: str
    kind: str
    text: str
    span: Span | None
    template: Template


def read_texts(loop: Loop) -> Iterator[Text]:
    """Every text of the loop that contains variables, parsed."""
    for state, field, kind, text in _texts(loop):
        if "$" in text or "{{" in text:
            template = template_of(loop, None if state is None else state.name, kind, text)
            yield Text(state, field, kind, text, _place(loop, state, field), template)


def fixed_text(template: Template) -> str | None:
    """The constant value of a template as text, or None if it is known only at run time."""
    only = template.single
    return text_of(only.value) if isinstance(only, Constant) else template.fixed


def _texts(loop: Loop) -> Iterator[tuple[StateSpec | None, str, str, str]]:
    """Each text as (state, field, kind of template, text)."""
    fields = fields_of(StateSpec)
    special = ("action", "route", "default", "args", "params", "loop")
    keys = [key for key, field in fields.items() if field.type.kind == "target" or key in special]
    for state in loop.states.values():
        for key in keys:
            value = getattr(state, key)
            if value is None:
                continue
            if key == "action":
                kind = {"slash": "slash", "ask": "value", "mcp_tool": "value"}.get(
                    loop.kind_of(state), "shell"
                )
                if state.flawed and state.action_type is None and state.is_given("action_type"):
                    kind = "slash"  # the invalid action type is unknown, so no syntax is checked
                yield state, key, kind, value
            elif key == "route":
                for verdict, target in value.items():
                    yield state, f"route.{verdict}", "value", target
            elif key in ("args", "params"):
                for place, text in argument_texts(value, key):
                    yield state, place, "value", text
            else:
                yield state, key, "value", value
        if state.runs_loops and state.bindings:
            for place, text in argument_texts(state.bindings, "with"):
                yield state, place, "value", text
        if state.evaluate is not None:
            for key, text in texts_of_evaluator(state.evaluate):
                yield state, f"evaluate.{key}", "value", text
        for key, hook in hooks_in(state.hooks, "before", "after"):
            yield state, f"hooks.{key}", "shell", hook.run
    for field, kind, text in texts_of_loop(loop, "before_state", "after_state"):
        yield None, field, kind, text
    for key in ("initial", "on_error"):
        value = getattr(loop, key)
        if value is not None:
            yield None, key, "value", value


def _place(loop: Loop, state: StateSpec | None, field: str) -> Span | None:
    """The span of a text."""
    block, _, key = field.partition(".")
    owner = loop if state is None else state
    if block == "hooks":
        return hooks_in(owner.hooks, key)[0][1].span_of("run")
    if state is None:
        return loop.span_of(field)
    if state.evaluate is not None and field.startswith("evaluate."):
        return state.evaluate.span_of(field.removeprefix("evaluate."))
    return state.span_of(argument_key(field) if field.startswith(("args", "with")) else field)


def check_variables(
    loop: Loop, graph: Graph, texts: list[Text], document: Document | None
) -> Iterator[Diagnostic]:
    """All diagnostics about the variables of a loop."""
    checker = _Checker(loop, graph, document)
    yield from checker.context()
    for text in texts:
        yield from checker.problems(text)
        yield from checker.foreign_notations(text)
        for variable in text.template.variables:
            yield from checker.fields(text, variable)
            if text.state is None and text.field.startswith("hooks."):
                yield from checker.hook_variable(text, variable)
    yield from checker.order(texts)


class _Checker:
    def __init__(self, loop: Loop, graph: Graph, document: Document | None) -> None:
        self.loop = loop
        self.graph = graph
        self.document = document
        self.bad_context: set[str] = set()
        # Errors that would repeat for every value that leads to them; each is reported once.
        self.reported: set[object] = set()
        self.comparisons = 0
        # Invalid inputs may define any variable of `context`.
        self.has_unread_inputs = any(
            getattr(loop, key) is None and f"key:{key}" in loop.spans
            for key in ("parameters", "required_inputs")
        )
        self.captures = {state.capture for state in loop.states.values() if state.capture and state.acts}
        # The captures of a loop that runs as a state are read under the name of the state.
        self.nested = {
            name
            for state in loop.states.values()
            if state.runs_loops
            for name in (state.name, state.capture)
            if name is not None
        }

    def place(self, span: Span | None, text: str, start: int, end: int) -> Span | None:
        return self.document.within(span, text, start, end) if self.document is not None else span

    def span_of(self, text: Text, variable: Variable) -> Span | None:
        return self.place(text.span, text.text, variable.start, variable.end)

    # --- what the templates say -------------------------------------------------------------

    def context(self) -> Iterator[Diagnostic]:
        """Report problems inside context values once, at the value, not at every use."""
        through: list[tuple[str, str, Span | None, Problem]] = []
        for key, value in self.loop.context.items():
            if "context-too-large" in self.reported:
                break  # further values may lead to the same limit
            span = self.loop.span_of(f"context.{key}")
            for text in _strings(value):
                if "$" not in text:
                    continue
                for problem in parse(text, kind="slash", context=self.loop.context).problems:
                    if problem.id == "context-too-large":
                        self.bad_context.add(key)
                        if not self.is_reported(problem):
                            yield self.diagnostic(problem, span, text)
                    elif _context_key(text, problem) in (None, key):
                        self.bad_context.add(key)
                        yield self.diagnostic(problem, span, text)
                    else:
                        through.append((key, text, span, problem))
        for key, text, span, problem in through:
            other = _context_key(text, problem)
            if other not in self.bad_context and not self.is_reported(problem):
                yield self.diagnostic(problem, span, text)
            self.bad_context.add(key)

    def is_reported(self, problem: Problem) -> bool:
        """Whether a cycle of context values, or the limit of expansion, was reported before; records it."""
        found: object = problem.id
        if problem.id == "context-cycle":
            found = frozenset(re.findall(r"context\.[\w.-]+", problem.message.partition(": ")[2]))
        elif problem.id != "context-too-large":
            return False
        if found in self.reported:
            return True
        self.reported.add(found)
        return False

    def problems(self, text: Text) -> Iterator[Diagnostic]:
        for problem in text.template.problems:
            if problem.id == "unknown-variable" and self.has_unread_inputs:
                continue
            if _context_key(text.text, problem) not in self.bad_context and not self.is_reported(problem):
                yield self.diagnostic(problem, text.span, text.text)

    def diagnostic(self, problem: Problem, span: Span | None, text: str) -> Diagnostic:
        place = self.place(span, text, problem.start, problem.end)
        return Diagnostic(problem.id, problem.message, place, "", problem.help, problem.severity)

    def foreign_notations(self, text: Text) -> Iterator[Diagnostic]:
        """Warn about variables in the notation of other tools, which are not replaced."""
        for match in _FOREIGN_NOTATIONS.finditer(text.text):
            name = match["braces"] or match["plain"]
            if name is None and match["shell"] is not None:
                name = f"context.{match['shell']}"
                is_set = re.search(rf"\b{re.escape(match['shell'])}\b\s*(=|in\b)|\bread\b", text.text)
                if text.kind != "shell" or match["shell"] not in (self.loop.context or {}) or is_set:
                    continue
            shown = match[0] if name is not None else "${{"
            help = (
                f"write `${{{name}}}`"
                if name is not None
                else "write `${context.NAME}`, or `$NAME` in a command"
            )
            place = self.place(text.span, text.text, match.start(), match.end())
            message = f"`{shown}` is not a variable of a loop"
            yield Diagnostic("unknown-variable", message, place, "is not replaced", help, "warning")

    # --- fields -----------------------------------------------------------------------------

    def fields(self, text: Text, variable: Variable) -> Iterator[Diagnostic]:
        """Report unknown names after the namespace."""
        space, path = NAMESPACES[variable.namespace], variable.path
        if variable.raw:
            yield self.raw(text, variable, self.span_of(text, variable))
        if variable.namespace == "captured" and path[0] in self.nested:
            return
        is_foreign = self.loop.checks == "late" and variable.namespace in ("captured", "prev")
        if is_foreign and path[space.is_keyed :] in _FOREIGN_FIELDS:
            return
        if variable.namespace == "captured" and len(path) == 1:
            message = f"`{variable.name}` is a result, not a value"
            place = self.span_of(text, variable)
            yield Diagnostic("unknown-field", message, place, "", f"write `${{{variable.name}.output}}`")
            return
        keys = path[1:] if space.is_keyed else path
        if space.fields is None:
            if variable.namespace == "env" and keys:
                place = self.span_of(text, variable)
                yield Diagnostic("unknown-field", "an environment variable has no fields", place)
            return
        name, *rest = keys
        is_plain = name in space.fields and name not in ("details", "value", "session", "handoff")
        if is_plain and not rest:
            return
        place = self.span_of(text, variable)
        if name not in space.fields:
            help = _help_for_field(variable, name)
            owner = ".".join((variable.namespace, *path[:1])) if space.is_keyed else variable.namespace
            yield Diagnostic("unknown-field", f"`{owner}` has no field `{name}`", place, "", help)
        elif name == "value" and not self.comes_from(variable, "call"):
            message = f"`{variable.name}` exists only after a call"
            yield Diagnostic("unknown-field", message, place, "", "the output of an action is its `output`")
        elif name in ("session", "handoff") and not self.comes_from(variable, "slash"):
            message = f"`{variable.name}` exists only after a slash command"
            yield Diagnostic("unknown-field", message, place, "", "only an agent reports it")
        elif name not in ("details", "value") and rest:
            yield Diagnostic(
                "unknown-field", f"`{name}` has no fields", place, "", f"drop `.{'.'.join(rest)}`"
            )
        elif name == "details" and rest and rest[0] not in DETAILS and self.graph.is_valid:
            message = f"no evaluator gives a detail `{rest[0]}`"
            help = suggest(rest[0], DETAILS, "there are")
            yield Diagnostic("unknown-detail", message, place, "", help, "warning")

    def hook_variable(self, text: Text, variable: Variable) -> Iterator[Diagnostic]:
        """Report variables that may be missing in a hook of the loop, where no state may have been
        entered.
        """
        if variable.namespace in ("context", "env", "loop") or variable.default is not None:
            return
        help = f"`${{{variable.name}?}}` is empty then"
        if variable.namespace == "state":
            help = "the hook finds the state in its environment: `$LLC_STATE`, `$LLC_ITERATION`"
        message = f"`{variable.text}` may be missing where a hook of the loop runs"
        yield Diagnostic("maybe-unset", message, self.span_of(text, variable), "", help)

    def comes_from(self, variable: Variable, kind: str) -> bool:
        """Whether a state of that kind gives the result that the variable reads."""
        return any(
            state.acts
            and self.loop.kind_of(state) == kind
            and (variable.namespace == "prev" or state.capture == variable.path[0])
            for state in self.loop.states.values()
        )

    def raw(self, text: Text, variable: Variable, place: Span | None) -> Diagnostic:
        if text.kind == "shell":
            message = f"`{variable.text}` is inserted into the command without quoting"
            help = f"write `${{{variable.name}}}` unless it is intended as code"
            return Diagnostic("raw-variable", message, place, "is executed as code", help, "warning")
        message = "`raw:` has no effect: this text is not quoted"
        return Diagnostic("raw-variable", message, place, "", "remove `raw:`", "warning")

    # --- order ------------------------------------------------------------------------------

    def order(self, texts: list[Text]) -> Iterator[Diagnostic]:
        """Report variables that nothing sets, or that may be read before they are set."""
        names = sorted(
            {_fact_name(variable) for text in texts for variable in text.template.variables} - {""}
        )
        bit = {name: 1 << i for i, name in enumerate(names)}
        states = list(self.loop.states.values())
        captured = [bit.get(f"captured.{state.capture}", 0) if state.acts else 0 for state in states]
        given = [
            bits
            | (bit.get("prev", 0) if state.acts else 0)
            | (bit.get("result", 0) if _is_judged(state) else 0)
            for bits, state in zip(captured, states, strict=True)
        ]
        before = self.graph.facts_on_all_paths(given)
        reachable = self.graph.reachable()
        shown = 0
        for text in texts:
            number = self.graph.number[text.state.name] if text.state is not None else -1
            for variable in text.template.variables:
                name = _fact_name(variable)
                if not name or (text.field == "evaluate.previous"):
                    continue
                if variable.namespace == "captured" and variable.path[0] in self.nested:
                    continue
                if variable.namespace == "captured" and variable.path[0] not in self.captures:
                    yield from self.never_set(text, variable)
                    continue
                if number not in reachable or variable.default is not None or not self.graph.is_exact:
                    continue
                facts = before[number]
                if text.field.startswith("evaluate."):
                    facts |= captured[number]
                elif text.field not in ("action", "loop") and not text.field.startswith(
                    ("args", "with")
                ):  # a route: `prev` is still the result before this state
                    facts |= given[number] & ~bit.get("prev", 0)
                if facts & bit[name]:
                    continue
                shown += 1
                setters = (
                    [i for i, bits in enumerate(given) if bits & bit[name]]
                    if shown <= MAX_SHOWN_PATHS
                    else None
                )
                yield self.maybe_unset(text, variable, number, setters)

    def never_set(self, text: Text, variable: Variable) -> Iterator[Diagnostic]:
        if not self.graph.is_valid:
            return
        name = variable.path[0]
        help: str | None = f"add `capture: {name}` to a state with an action"
        self.comparisons += len(self.captures)
        if self.captures and self.comparisons <= MAX_COMPARISONS:
            help = suggest(name, sorted(self.captures), "the loop captures")
        is_error = variable.default is None and self.loop.checks == "early"
        severity = "error" if is_error else "warning"
        yield Diagnostic(
            "unset-capture", f"no state captures `{name}`", self.span_of(text, variable), "", help, severity
        )

    def maybe_unset(
        self, text: Text, variable: Variable, number: int, setters: list[int] | None
    ) -> Diagnostic:
        what = {"prev": "an action has run", "result": "anything was evaluated"}.get(
            variable.namespace, f"`{variable.path[0]}` is captured"
        )
        help = f"`${{{variable.name}:default=…}}` gives a value for that case"
        if setters is not None:
            path = self.graph.shortest_path(number, setters)
            if len(path) > 6:
                path = [*path[:3], "…", *path[-2:]]
            if len(path) > 1:
                help = f"on the path {' → '.join(path)}; {help}"
            elif path:
                help = f"the loop begins here; {help}"
        message = f"`{variable.text}` may be read before {what}"
        return Diagnostic(
            "maybe-unset", message, self.span_of(text, variable), "undefined on some path", help, "warning"
        )


def _is_judged(state: StateSpec) -> bool:
    return state.next is None and not state.is_terminal


def _fact_name(variable: Variable) -> str:
    """The name of a variable in the must-analysis; '' if it always has a value."""
    if variable.namespace == "captured":
        return f"captured.{variable.path[0]}"
    return variable.namespace if variable.namespace in ("prev", "result") else ""


def _context_key(text: str, problem: Problem) -> str | None:
    """The context value through which a problem was inserted; None if it is at the text itself."""
    written = text[problem.start : problem.end].removeprefix("${").removeprefix("raw:")
    if problem.id == "unknown-variable" and f"`${{{written.rstrip('}')}}}`" in problem.message:
        return None
    if not written.startswith("context."):
        return None
    return written.removeprefix("context.").partition(".")[0].partition(":")[0].rstrip("}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _help_for_field(variable: Variable, name: str) -> str | None:
    """Help for a field that the namespace of a variable does not have."""
    if variable.namespace == "result" and name in DETAILS:
        return f"did you mean `${{result.details.{name}}}`?"
    help = suggest(name, NAMESPACES[variable.namespace].fields or (), "it has")
    others = [
        f"${{{other.name}.{name}}}"
        for other in NAMESPACES.values()
        if not other.is_keyed and name in (other.fields or ())
    ]
    if len(others) == 1 and not (help or "").startswith("did you mean"):
        return f"did you mean `{others[0]}`?"
    return help
