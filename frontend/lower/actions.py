"""Lowering of actions to effects: shell commands, slash commands for agents, questions; agent hand-overs.

Must not contain: function calls (`calls`), evaluation of results (`evaluators`).
"""

from __future__ import annotations

from typing import Any

from ...ir.builder import prim, record, store
from ...ir.nodes import Branch, Const, Expr, Goto, Note, Slot
from ..loop.agent_schema import AGENT_OPTIONS
from ..loop.schema import StateSpec
from . import calls, templates
from .budgets import check_budget, remaining_usd, spend
from .chain import Chain
from .loop_context import ASKED, CHECKED, LoopContext
from .templates import Needs

_EFFECTS = {"shell": "shell", "slash": "agent", "ask": "ask"}
# The text that an agent hands over when its context is full.
HANDED = prim("get", Slot("last"), "handoff")
# True if the host did not start the agent because the loop stalls.
_KIND = prim("lookup_or", Slot("last"), ("error", "kind"), None)
STALLS = prim("eq", _KIND, "stall")
# True if the quota of the agent's account is used up.
NO_QUOTA = prim("or", prim("eq", _KIND, "quota"), prim("eq", _KIND, "rate-limit"))
# The command of a check that contains variables.
RAN = Slot("ran")
# Arguments of an `agent` effect whose names differ from the YAML keys.
_ARGUMENTS = {"idle_timeout": "idle_timeout_s"}
CARRIED = "\n\nThe session before this one ran out of context, and handed over with:\n\n"


def act(context: LoopContext, chain: Chain, state: StateSpec) -> None:
    """Perform the action and store its result in `last` and in the capture."""
    if state.calls:
        calls.act(context, chain, state)
        return
    if state.uses_tool:
        calls.use_tool(context, chain, state)
        return
    assert state.action is not None
    kind = _EFFECTS[context.loop.kind_of(state)]
    needs = Needs()
    template = context.templates[state.name, "action"]
    command = templates.text_of(template, context.place(state, "action", state.action), needs)
    default = _default_answer(context, state, needs)
    context.prepare(chain, state, "act", needs)
    if context.reads_checked and context.is_check(state):
        context.commands[state.name] = command
        if not isinstance(command, Const):
            chain.add(store(RAN.name, command))
            command = context.commands[state.name] = RAN
    if kind == "agent" and state.feedback:
        command = prim("concat", command, prim("check_report", CHECKED))
    args: dict[str, Any] = {"question" if kind == "ask" else "command": command}
    if kind == "ask":
        args["choices"] = state.choices
        args["default"] = default
    if kind == "agent":
        check_budget(context, chain, state, "act")
        args |= _arguments_of_agent(context, chain, state, command)
    args["timeout_s"] = state.timeout
    args["deadline_ms"] = context.deadline
    if kind != "ask":
        args["on_unknown"] = state.on_unknown
    chain.perform(kind, args, "last", f"{state.name}/acted")
    if kind == "agent":
        if context.continues_sessions and "fork" not in args:  # a fork does not replace the last session
            session, thread = _session_slots(context, state)
            chain.add(store(session.name, prim("get", Slot("last"), "session")))
            chain.add(store(thread.name, prim("get", Slot("last"), "thread")))
        spend(context, chain, state, "last")
        _leave_stall(context, chain, state)
        _leave_quota(context, chain, state)
        _hand_over(context, chain, state, args)
    if state.capture is not None:
        chain.add(store(f"captured.{state.capture}", Slot("last")))
    context.in_time(chain, "last", f"{state.name}/acted_in_time")


def _arguments_of_agent(
    context: LoopContext, chain: Chain, state: StateSpec, command: Expr
) -> dict[str, Any]:
    """The arguments of an `agent` effect that other effects do not have."""
    args = agent_arguments(context, state)
    for key in AGENT_OPTIONS:
        own = getattr(state, key)
        args[_ARGUMENTS.get(key, key)] = own if own is not None else getattr(context.loop, key)
    if args["max_turns"] is None:
        del args["max_turns"]  # keeps the hash of programs without `max_turns`
    session = args.pop("session")
    if session in ("continue", "fork"):
        args["session"], args["thread"] = _session_slots(context, state)
    if session == "fork":
        args["fork"] = True
    if (rest := remaining_usd(context, state)) is not None:
        args["cap_usd"] = rest
    if (rounds := context.loop.stall_rounds) is not None:
        args["stall"] = record({"rounds": rounds, "routed": context.loop.on_stall is not None})
    if (guard := context.loop.guard) is not None:
        args["guard"] = record({"paths": guard.paths, "on": guard.on})
    if (quota := _quota(context, state)) is not None:
        args["quota"] = quota
    if context.loop.on_handoff != "end" or state.name in context.judged:
        chain.add(store(ASKED.name, command))
        args["command"] = ASKED
    return args


def agent_arguments(context: LoopContext, state: StateSpec) -> dict[str, Any]:
    """Effect arguments that select the agent of a state."""
    agent = state.agent if state.agent is not None else context.loop.agent
    if isinstance(agent, str):
        return {"agent": agent}
    if agent is None:
        return {}
    return {"argv": agent.words, **({"protocol": agent.protocol} if agent.protocol is not None else {})}


def _leave_stall(context: LoopContext, chain: Chain, state: StateSpec) -> None:
    """Route to `on_stall` if the host did not start the agent because the loop stalls."""
    target = context.loop.on_stall
    if target is None or not context.loop.stall_rounds:
        return
    name = state.name
    chain.unless(STALLS, f"{name}/stalled", f"{name}/went_on")
    stalled = context.chain(state)
    stalled.open(f"{name}/stalled")
    context.go(stalled, state, target, verdict=False)


def _quota(context: LoopContext, state: StateSpec) -> Expr | None:
    """The effect argument with the policy for a used-up quota; None if neither state nor loop sets one."""
    loop = context.loop
    word = state.on_quota if state.on_quota is not None else loop.on_quota
    seconds = state.max_quota_wait if state.max_quota_wait is not None else loop.max_quota_wait
    if word is None and seconds is None:
        return None
    on = "fail" if context.loop.quota_target(state) is not None else word or "wait"
    return record({"on": on, "max_wait_s": seconds})


def _leave_quota(context: LoopContext, chain: Chain, state: StateSpec) -> None:
    """Route to `on_quota` if the quota of the agent's account is used up."""
    target = context.loop.quota_target(state)
    if target is None:
        return
    chain.unless(NO_QUOTA, f"{state.name}/without_quota", f"{state.name}/had_quota")
    without = context.chain(state)
    without.open(f"{state.name}/without_quota")
    context.go(without, state, target, verdict=False)


def _session_slots(context: LoopContext, state: StateSpec) -> tuple[Slot, Slot]:
    """The slots for the last session of a state's agent in this run, and for the usage of that session."""
    agent = state.agent if state.agent is not None else context.loop.agent
    name = agent if isinstance(agent, str) else ""
    return Slot(f"session.{name}"), Slot(f"thread.{name}")


def _hand_over(context: LoopContext, chain: Chain, state: StateSpec, args: dict[str, Any]) -> None:
    """Handle the hand-over of an agent whose context is full: end the loop, or continue in a new session.

    The follow-up sessions are unrolled, so the verifier needs no proof that their number is limited.
    """
    name, policy = state.name, context.loop.on_handoff
    context.ends.add("handoff")
    follow = 0 if policy == "end" else context.loop.max_handoffs
    chain.unless(HANDED, f"{name}/handed_over", f"{name}/acted_by_agent")
    done = chain.name
    for number in range(1, follow + 1):
        further = context.chain(state)
        further.open(f"{name}/handed_over" if number == 1 else f"{name}/handed_over_{number}")
        further.add(_note(context, name, policy))
        check_budget(context, further, state, f"session_{number + 1}")
        if policy == "pause":
            further.perform("pause", {"reason": "handoff"}, "paused", f"{name}/resumed_{number}")
        command = prim("concat", ASKED, CARRIED, HANDED)
        after = f"{name}/session_{number + 1}"
        fresh = {key: value for key, value in args.items() if key not in ("session", "thread", "fork")}
        further.perform("agent", {**fresh, "command": command}, "last", after)
        spend(context, further, state, "last")
        further.close(Branch(HANDED, f"{name}/handed_over_{number + 1}", done, span=state.span))
    last = context.chain(state)
    last.open(f"{name}/handed_over_{follow + 1}" if follow else f"{name}/handed_over")
    last.add(_note(context, name, "end"))
    last.close(Goto("/handoff"))


def _note(context: LoopContext, name: str, policy: str) -> Note:
    return context.note("handoff", {"state": name, "policy": policy, "text": HANDED})


def _default_answer(context: LoopContext, state: StateSpec, needs: Needs) -> Expr | None:
    """The answer to a question that is not answered in time; None without one."""
    if not state.asks or state.default is None:
        return None
    template = context.templates[state.name, "default"]
    return templates.text_of(template, context.place(state, "default", state.default), needs)
