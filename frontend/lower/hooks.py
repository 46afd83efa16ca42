"""Lowering of hooks: commands before and after the action of a state, and at the start and end of a loop.

A hook of a state ends with the loop's deadline; a hook at the end of the loop only has its own `timeout`.
Must not contain: the start and end of states and loops (`loop`).
"""

from __future__ import annotations

from typing import Any

import attrs

from ...ir.builder import prim, record, store
from ...ir.nodes import Branch, Fail, Goto, Handler, Note, Slot
from ..loop.hook_schema import IGNORE, REPORTING, HookSpec, hooks_in
from ..loop.schema import StateSpec
from . import templates
from .chain import Chain
from .loop_context import LoopContext
from .templates import Needs, Place

# The result of the last hook, and the message of its failure.
HOOKED = Slot("hooked")
FAILURE = Slot("hook_failure")
_CODE = prim("lookup_or", HOOKED, ("exit_code",), None)
_BROKEN = prim("or", prim("get", HOOKED, "timed_out"), prim("get", HOOKED, "error"))
_PASSED = prim("select", _BROKEN, False, prim("eq", _CODE, 0))
_LATE = prim("get", HOOKED, "timed_out")
_HOW = prim("select", _LATE, "timed out", prim("concat", "exit code ", prim("text", _CODE)))
FAULT = record({"kind": "hook-failed", "message": FAILURE})
# The target of faults that no state handles, and the name suffix of states at the end of a loop.
FAILED, END = "/failed", "end"


def of_state(context: LoopContext, chain: Chain, state: StateSpec, when: str) -> None:
    """Run the hooks `before` or `after` of a state; a failure leads to `<state>/hook_failed`."""
    for key, hook in context.loop.hooks_of(state, when):
        _run(context, chain, key, hook, state, f"{state.name}/hook_failed")


def on_error(context: LoopContext, chain: Chain, state: StateSpec) -> None:
    """Run the loop's `on_error` hook for an error that the state routes."""
    for key, hook in hooks_in(context.loop.hooks, "on_error"):
        _run(context, chain, key, hook, state, None)


def of_loop(context: LoopContext, chain: Chain, *keys: str) -> None:
    """Run hooks of the loop outside of its states; a failure that is not ignored ends the run."""
    for key, hook in hooks_in(context.loop.hooks, *keys):
        _run(context, chain, key, hook, None, None)


def at_end(context: LoopContext, chain: Chain, *keys: str) -> None:
    """Run hooks of the loop after its end; no state handles their errors."""
    if hooks_in(context.loop.hooks, *keys):
        name = f"{chain.name}/{END}"
        chain.close(Goto(name))
        chain.handler = None
        chain.open(name)
        of_loop(context, chain, *keys)


def _run(
    context: LoopContext, chain: Chain, key: str, hook: HookSpec, state: StateSpec | None, failed: str | None
) -> None:
    """Run a hook.

    state: the state of the hook or of the error; None for a hook of the loop, which only has its own time
    limit
        unless it runs at the start. failed: the target of a failure; None to end the run.
    """
    owner = state.name if state is not None else ""
    template = context.templates.get((owner, f"hooks.{key}")) or context.templates["", f"hooks.{key}"]
    span = hook.span_of("run")
    within = lambda start, end: context.within(span, hook.run, start, end)  # noqa: E731
    place = Place(owner, context.loop.name, within, context.inner is not None)
    name, needs = f"{chain.name}/{key}", Needs()
    command = templates.text_of(template, place, needs)
    if needs.env:
        chain.perform("env", {"names": tuple(needs.env)}, "env", f"{name}_env")
    if needs.clock:
        chain.perform("clock", {}, "now", f"{name}_clock")
    chain.add(context.note("hook", {"state": owner or None, "hook": key}))
    args: dict[str, Any] = {"command": command, "timeout_s": hook.timeout}
    is_timed = state is not None or key == "before"
    if is_timed:
        args["deadline_ms"] = context.deadline
    chain.perform("shell", args, HOOKED.name, f"{name}_ran")
    if is_timed:
        context.in_time(chain, HOOKED.name, f"{name}_in_time")
    chain.close(Branch(_PASSED, f"{name}_passed", f"{name}_failed", span=span))
    chain.open(f"{name}_failed")
    whose = f"hook `{key}`" + (f" of `{owner}`" if owner else "")
    chain.add(store(FAILURE.name, prim("concat", f"{whose} failed: ", _HOW)))
    if hook.on_failure == IGNORE or key in REPORTING:
        chain.add(Note("log", record({"message": prim("concat", FAILURE, "; ignored")})))
        chain.close(Goto(f"{name}_passed"))
    elif failed is not None:
        chain.close(Goto(failed))
    else:
        chain.close(Fail(FAULT, span=span))
    chain.open(f"{name}_passed")


def catch_faults(context: LoopContext) -> None:
    """Route every fault that no state handles through the hooks `on_error` and `after`."""
    loop = context.loop
    if not hooks_in(loop.hooks, "on_error", "after"):
        return
    states = context.builder.states
    for number, state in enumerate(states):
        if state.handler is None and END not in state.name.split("/")[1:]:
            states[number] = attrs.evolve(state, handler=Handler(FAILED, "fault"))
    chain = Chain(context.builder, span=loop.span)
    chain.open(FAILED)
    of_loop(context, chain, "on_error", "after")
    chain.close(Fail(Slot("fault")))
