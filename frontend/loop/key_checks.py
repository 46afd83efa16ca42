"""Checks of the keys of a state: keys that have no effect, contradict each other, or miss another key.

`checks` owns the rules for targets, verdicts and the whole loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.diagnostics import Diagnostic, clean, labelled, suggest
from ...ir.effects import CONTINUE
from ...ir.python_internals import late_pattern
from ..source.schema import Spec
from .agent_schema import AGENT_OPTIONS
from .dialect import FAILURE_NAMES
from .project_checks import is_judged_by_model
from .schema import Loop, StateSpec
from .texts import template_of
from .variable_checks import fixed_text

_AGENT_KEYS = ("feedback", "agent", "on_quota", "max_quota_wait", *AGENT_OPTIONS)
_AGENT_KEY_SPANS = frozenset(f"key:{key}" for key in _AGENT_KEYS)
_ACTION_NOUNS = {"action": "an action", "call": "a call", "loop": "a loop", "parallel": "branches"}
_TOOL_NAME = late_pattern(r"[\w-]+/[^\s/]+")


def unused_key(block: Spec, key: str, why: str, help: str | None = None, place: str = "") -> Diagnostic:
    """The warning for a key without effect. place: of the label; by default the key."""
    message = f"`{key}` has no effect: {why}"
    span = block.span_of(place or f"key:{key}")
    return Diagnostic("unused-key", message, span, "has no effect", help, "warning")


def check_keys(loop: Loop, state: StateSpec) -> Iterator[Diagnostic]:
    """Report the keys of a state that other keys make ineffective or require."""
    yield from _check_action(loop, state)
    yield from _check_retries(state)
    if state.budget is not None and not _asks_model(loop, state):
        yield unused_key(state, "budget", "the state calls neither an agent nor a model")
    yield from _check_kind(state)
    yield from _check_end(loop, state)
    yield from _check_routes(state)
    yield from _check_question(state)
    yield from _check_tool(loop, state)
    if loop.dialect is None:
        yield from _check_silent_failures(state)


def _check_action(loop: Loop, state: StateSpec) -> Iterator[Diagnostic]:
    unread = () if state.acts else ("capture", "timeout")
    if state.action is None:
        unread = (*unread, "action_type", "on_unknown")
    for key in (*unread, *(() if state.call is not None else ("args",))):
        if getattr(state, key) is not None:
            yield unused_key(state, key, "the state has no " + ("call" if key == "args" else "action"))
    if state.action is None or loop.kind_of(state) != "slash":
        if state.action is not None and state.on_unknown == CONTINUE:
            yield unused_key(state, "on_unknown", "the action does not go to an agent, so it runs again")
        if not _AGENT_KEY_SPANS.isdisjoint(state.spans):
            for key in filter(state.is_given, _AGENT_KEYS):
                why = "the action does not go to an agent"
                yield unused_key(state, key, why, "add `action_type: prompt`")


def _check_retries(state: StateSpec) -> Iterator[Diagnostic]:
    if state.max_retries is not None and state.on_retry_exhausted is None:
        message = f"state `{state.name}` has `max_retries` but no `on_retry_exhausted`"
        place = state.span_of("key:max_retries")
        yield Diagnostic("missing-field", message, place, "", "add `on_retry_exhausted`")
    elif state.on_retry_exhausted == state.name:
        message = "`on_retry_exhausted` names its own state"
        place = state.span_of("on_retry_exhausted")
        yield Diagnostic("unknown-state", message, place, "leads back", "name another state")
    elif (
        state.on_retry_exhausted is not None
        and not state.flawed
        and state.max_retries is None
        and state.retryable_exit_codes is None
    ):
        why = "the number of consecutive entries has no limit"
        yield unused_key(state, "on_retry_exhausted", why, "add `max_retries`")


def _asks_model(loop: Loop, state: StateSpec) -> bool:
    """Whether the state makes calls that count towards a budget."""
    acts = state.action is not None and loop.kind_of(state) == "slash"
    return acts or is_judged_by_model(loop, state)


def _check_kind(state: StateSpec) -> Iterator[Diagnostic]:
    """Check what a state runs: one action, with the keys for it."""
    done = [key for key in _ACTION_NOUNS if getattr(state, key) is not None]
    if len(done) > 1:
        message = f"state `{state.name}` has both {' and '.join(_ACTION_NOUNS[key] for key in done)}"
        help = "a state has one action; write two states"
        yield Diagnostic("action-and-call", message, state.span_of(f"key:{done[-1]}"), "", help)
    if state.bindings and not state.runs_loops and not state.flawed:
        yield unused_key(state, "with", "the state runs no loop", "add `loop`, or `fragment`")
    if state.type is not None and state.learning is None and not state.acts and not state.flawed:
        message = f"state `{state.name}` has no `learning`"
        help = "add `learning: {targets: [a package]}`"
        yield Diagnostic("missing-field", message, state.span_of("key:type"), "", help)
    if state.join is not None and state.parallel is None:
        yield unused_key(state, "join", "the state has no `parallel`")


def _check_end(loop: Loop, state: StateSpec) -> Iterator[Diagnostic]:
    """Check the keys of terminal states."""
    if not state.is_terminal:
        for key in ("status", "failure", "on_maintain"):
            if getattr(state, key) is not None and f"key:{key}" in state.spans:
                yield unused_key(state, key, "the state is not terminal", "add `terminal: true`")
    elif state.on_maintain is not None and not loop.maintain:
        help = "add `maintain: true` to the loop"
        yield unused_key(state, "on_maintain", "the loop has no `maintain: true`", help)


def _check_routes(state: StateSpec) -> Iterator[Diagnostic]:
    """Report routes that other routes make ineffective."""
    route = state.route or {}
    if state.next is not None:
        others = [verdict for verdict in route if verdict not in ("error", "_error")]
        first = others[0] if others else ""
        is_shorthand = f"key:on_{first}" in state.spans
        for key, is_given, place in (
            ("evaluate", state.evaluate is not None, "key:evaluate"),
            (f"on_{first}" if is_shorthand else "route", bool(others), f"key:route.{first}"),
            ("on_success", state.on_success is not None, "key:on_success"),
            ("on_failure", state.on_failure is not None, "key:on_failure"),
            ("terminal", state.terminal, "key:terminal"),
        ):
            if is_given:
                yield _contradiction(state, place, key, "`next` is taken for every result")
    elif state.terminal and not state.is_terminal:
        yield _contradiction(state, "key:terminal", "terminal", "the routes of the state take precedence")
    elif state.is_terminal and state.evaluate is not None:
        yield unused_key(state, "evaluate", "the loop ends here for every verdict")
    for key, overriding in (
        ("on_success", ("success", "_")),
        ("on_failure", ("failure", "_")),
        ("on_error", ("_error", "error")),
    ):
        by = next((verdict for verdict in overriding if verdict in route), None)
        if getattr(state, key) is not None and by is not None and state.next is None:
            yield _overridden(f"`{key}` has no effect: `route` has `{by}`", state, key, by)
    if "error" in route and route.get("_error", route["error"]) != route["error"]:
        message = "`error` has no effect: `_error` takes precedence"
        yield _overridden(message, state, "route.error", "_error")


def _contradiction(state: StateSpec, place: str, key: str, why: str) -> Diagnostic:
    message, span = f"`{key}` has no effect: {why}", state.span_of(place, f"key:{key}")
    return Diagnostic("contradictory-keys", message, span, "has no effect", "keep one of them", "warning")


def _overridden(message: str, state: StateSpec, key: str, by: str) -> Diagnostic:
    """The warning for a key that has no effect because of another entry of `route`."""
    first = labelled(state.span_of(f"key:route.{by}"), "takes precedence")
    place = state.span_of(f"key:{key}")
    return Diagnostic(
        "shadowed-route", message, place, "overridden", "keep one of them", "warning", related=first
    )


def _check_question(state: StateSpec) -> Iterator[Diagnostic]:
    """Check the answers that a question offers."""
    if not state.asks:
        for key in ("choices", "default"):
            if getattr(state, key) is not None:
                yield unused_key(state, key, "the state asks no question", "add `action_type: ask`")
        return
    if state.on_unknown is not None:
        yield unused_key(state, "on_unknown", "a resumed run asks the question again")
    choices = state.choices or ()
    for number, choice in enumerate(choices):
        place = state.span_of(f"choices[{number}]", "choices")
        if choice in choices[:number]:
            yield Diagnostic("repeated-choice", f"the choice `{choice}` occurs twice", place)
        elif choice == "error" or choice.startswith("_") or choice != choice.strip():
            message = f"`{choice}` cannot be a choice"
            why = "`error` and `_…` have another meaning in a route; a choice has no blanks around it"
            yield Diagnostic("bad-choice", message, place, "", why)
    default = state.default
    if choices and default is not None and "${" not in default and default not in choices:
        message = f"the default `{default}` is not one of the choices"
        help = suggest(default, choices, "the choices are")
        yield Diagnostic("unknown-choice", message, state.span_of("default"), "", help)


def _check_tool(loop: Loop, state: StateSpec) -> Iterator[Diagnostic]:
    """Check the MCP tool that a state calls."""
    if not state.uses_tool:
        if state.params is not None:
            yield unused_key(state, "params", "the state calls no tool", "add `action_type: mcp_tool`")
        return
    assert state.action is not None
    name = fixed_text(template_of(loop, state.name, "value", state.action))
    if name is None or not _TOOL_NAME.fullmatch(name.strip()):
        message = f"`{clean(state.action, 80)}` is not a tool of an MCP server"
        help = "write the server and the tool: `action: server/tool`; variables of `context` may be in it"
        yield Diagnostic("bad-call", message, state.span_of("action"), "", help)


def _check_silent_failures(state: StateSpec) -> Iterator[Diagnostic]:
    """Report failures that are ignored silently, where authors often expect otherwise."""
    after, error = state.next, state.routes.get("_error")
    is_action = state.action is not None and not state.asks
    if is_action and after is not None and error not in (None, after):
        message = (
            f"a failed command continues with `{after}`, not `{error}`: `next` applies to exit code 1 too"
        )
        help = (
            f"write `on_success: {after}` and `on_failure: {error}` instead of `next`; in the loop, "
            "`dialect: llc` states that this is intended, `dialect: little-loops` applies `on_error`"
        )
        place = state.span_of("key:on_error", "key:route._error", "key:route.error")
        yield Diagnostic("silent-failure", message, place, "not taken after exit code 1", help, "warning")
    if state.is_terminal and state.name in FAILURE_NAMES and state.status is None:
        message = f"a run that ends in `{state.name}` counts as a success"
        help = "add `status: failure`, or `status: success` if this is intended"
        yield Diagnostic("silent-failure", message, state.span_of("name"), "exit code 0", help, "warning")
