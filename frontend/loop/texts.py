"""The texts of a loop that may contain variables, each parsed as a template once.

Owns which texts of a state are templates, the names of their fields (`action`, `evaluate.target`,
`route.success`, `args.input/0`), and the cache of parsed templates. Must not contain: the structure of a
template (`template`), checks, expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...ir.spans import Span
from ..source.schema import fields_of
from ..template.nodes import Template
from ..template.template import parse
from .evaluator_schema import Evaluator
from .hook_schema import hooks_in
from .schema import Loop, StateSpec

# Keys of arguments.
_KEYS = ("args", "params", "with")
# The span of a part of a text, given the span of the text, the text, and two offsets (`Document.within`).
Within = Callable[[Span | None, str, int, int], Span | None]


def template_of(loop: Loop, state: str | None, kind: str, text: str) -> Template:
    """The parsed template of a text of a state, or of the loop itself (state None)."""
    key = (state, kind, text)
    found: Template | None = loop.parsed.get(key)
    if found is None:
        known = {"loop.name": loop.name}
        if state is not None:
            known["state.name"] = state
        is_open = loop.checks == "late"
        found = parse(text, kind=kind, context=loop.context, known=known, is_open=is_open)
        loop.parsed[key] = found
    return found


def texts_of_state(loop: Loop, state: StateSpec) -> Iterator[tuple[str, str, str]]:
    """Each text of a state that is evaluated at run time, as (field, kind of template, text)."""
    if state.action is not None:
        kind = "value" if state.asks or state.uses_tool else loop.kind_of(state)
        yield "action", kind, state.action
    if state.asks and state.default is not None:
        yield "default", "value", state.default
    for place, text in (*argument_texts(state.args), *argument_texts(state.params, "params")):
        yield place, "value", text
    for key in ("loop", "worktree"):
        if state.loop is not None and getattr(state, key) is not None:
            yield key, "value", getattr(state, key)
    if state.runs_loops:
        for place, text in argument_texts(bindings_of(loop, state), "with"):
            yield place, "value", text
    if state.evaluate is not None:
        for key, text in texts_of_evaluator(state.evaluate):
            yield f"evaluate.{key}", "value", text
    for verdict, target in state.routes.items():
        if "${" in target:
            yield f"route.{verdict}", "value", target
    if state.next is not None and "${" in state.next:
        yield "next", "value", state.next
    for when in ("before", "after"):
        for key, hook in loop.hooks_of(state, when):
            yield f"hooks.{key}", "shell", hook.run


def texts_of_loop(loop: Loop, *more: str) -> Iterator[tuple[str, str, str]]:
    """The texts of the loop's own hooks, and of the hooks in `more`, as (field, kind of template, text)."""
    for key, hook in hooks_in(loop.hooks, "before", "after", "on_error", "on_limit", *more):
        yield f"hooks.{key}", "shell", hook.run


def texts_of_evaluator(evaluator: Evaluator) -> Iterator[tuple[str, str]]:
    """Each field of an evaluator that is a template and holds a text, as (key, text)."""
    for key, field in fields_of(type(evaluator)).items():
        value = getattr(evaluator, key)
        if isinstance(value, str) and field.type.kind in ("template", "measure", "json"):
            yield key, value


def bindings_of(loop: Loop, state: StateSpec) -> dict[str, Any]:
    """The `context` of the loop that a state runs: the values of `with`, or the whole context."""
    bindings: dict[str, Any] = {}
    if state.bindings:
        bindings = dict(state.bindings)
    elif state.context_passthrough:
        captures = {other.capture: None for other in loop.states.values() if other.acts and other.capture}
        bindings = {key: f"${{context.{key}}}" for key in loop.context}
        bindings |= {name: f"${{captured.{name}.output?}}" for name in captures}
    if "run_dir" in loop.context:
        bindings.setdefault("run_dir", "${context.run_dir}")
    return bindings


def argument_texts(value: Any, place: str = "args") -> Iterator[tuple[str, str]]:
    """Each text with variables in the arguments of a call, as (place, text); a place is such as
    `args.input/0`.

    place: the key of the arguments.
    """
    if isinstance(value, str):
        if "$" in value:
            yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from argument_texts(item, f"{place}.{key}" if place in _KEYS else f"{place}/{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from argument_texts(item, f"{place}[{index}]" if place in _KEYS else f"{place}/{index}")


def argument_key(place: str) -> str:
    """The key in `StateSpec.spans` of the argument that contains a place."""
    return place.partition("/")[0]
