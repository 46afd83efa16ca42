"""Actions to effects: a command, a slash command for an agent, a question; and what an agent hands over.

The calls of functions are `calling`'s. Must not be in here: how what an action gave is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.builder import prim, store
from ...ir.nodes import Branch, Expr, Goto, Note, Slot
from ..loop.schema import StateSpec
from . import calls, templates
from .budgets import check_budget, spend
from .chain import Chain
from .templates import Needs

if TYPE_CHECKING:
    from .loop import Lowering

_EFFECTS = {"shell": "shell", "slash": "agent", "ask": "ask"}
# What an agent hands on when its context is full, and what it was asked to do.
HANDED = prim("get", Slot("last"), "handoff")
ASKED = Slot("asked")
CARRIED = "\n\nThe session before this one ran out of context, and handed over with:\n\n"


def act(lowering: Lowering, chain: Chain, state: StateSpec) -> None:
    """Perform the action; its result is in `last` and in the capture."""
    if state.call is not None:
        calls.act(lowering, chain, state)
        return
    assert state.action is not None
    kind = _EFFECTS[lowering.loop.kind_of(state)]
    needs = Needs()
    template = lowering.templates[state.name, "action"]
    command = templates.text_of(template, lowering.place(state, "action", state.action), needs)
    default = _default_answer(lowering, state, needs)
    lowering.prepare(chain, state, "act", needs)
    args: dict[str, Any] = {"question" if kind == "ask" else "command": command}
    if kind == "ask":
        args["choices"] = state.choices
        args["default"] = default
    if kind == "agent":
        check_budget(lowering, chain, state, "act")
        if isinstance(lowering.loop.agent, str):
            args["agent"] = lowering.loop.agent
        elif lowering.loop.agent is not None:
            args["argv"] = (lowering.loop.agent.program, *lowering.loop.agent.args)
        if lowering.loop.on_handoff != "end":
            chain.add(store(ASKED.name, command))
            args["command"] = ASKED
    args["timeout_s"] = state.timeout
    args["deadline_ms"] = lowering.deadline
    if kind != "ask":
        args["on_unknown"] = state.on_unknown
    chain.perform(kind, args, "last", f"{state.name}/acted")
    if kind == "agent":
        spend(lowering, chain, state, "last")
        _hand_over(lowering, chain, state, args)
    if state.capture is not None:
        chain.add(store(f"captured.{state.capture}", Slot("last")))
    lowering.in_time(chain, "last", f"{state.name}/acted_in_time")


def _hand_over(lowering: Lowering, chain: Chain, state: StateSpec, args: dict[str, Any]) -> None:
    """What becomes of an agent whose context is full: the loop ends, or a new session goes on.

    Sessions that follow are written out one by one, so that nothing has to prove that they end.
    """
    name, policy = state.name, lowering.loop.on_handoff
    lowering.ends.add("handoff")
    follow = 0 if policy == "end" else lowering.loop.max_handoffs
    chain.unless(HANDED, f"{name}/handed_over", f"{name}/acted_by_agent")
    done = chain.name
    for number in range(1, follow + 1):
        further = lowering.chain(state)
        further.open(f"{name}/handed_over" if number == 1 else f"{name}/handed_over_{number}")
        further.add(_note(lowering, name, policy))
        check_budget(lowering, further, state, f"session_{number + 1}")
        if policy == "pause":
            further.perform("pause", {"reason": "handoff"}, "paused", f"{name}/resumed_{number}")
        command = prim("concat", ASKED, CARRIED, HANDED)
        after = f"{name}/session_{number + 1}"
        further.perform("agent", {**args, "command": command}, "last", after)
        spend(lowering, further, state, "last")
        further.close(Branch(HANDED, f"{name}/handed_over_{number + 1}", done, span=state.span))
    last = lowering.chain(state)
    last.open(f"{name}/handed_over_{follow + 1}" if follow else f"{name}/handed_over")
    last.add(_note(lowering, name, "end"))
    last.close(Goto("/handoff"))


def _note(lowering: Lowering, name: str, policy: str) -> Note:
    return lowering.note("handoff", {"state": name, "policy": policy, "text": HANDED})


def _default_answer(lowering: Lowering, state: StateSpec, needs: Needs) -> Expr | None:
    """What a question is answered with where nobody answers in time."""
    if not state.asks or state.default is None:
        return None
    template = lowering.templates[state.name, "default"]
    return templates.text_of(template, lowering.place(state, "default", state.default), needs)
