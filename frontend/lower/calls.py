"""Lowering of function calls that replace actions, to states of the loop.

    check/enter      evaluates the arguments and reads the clock
    check/call       calls the function; a fault leads to check/failed
    check/linked     selects the loop, if its name is computed
    check/returned   converts the value to an action result: text as output, 0 or 1 as exit code
    check/failed     converts a fault to the result of an action that could not be performed

From `check/acted` on, the result is in `last`, as for any action. See `spec/lowering.md`, Calls.
"""

from __future__ import annotations

from typing import Any

from ...ir.builder import expr, freeze, prim, record, store
from ...ir.nodes import Branch, Call, Const, Expr, Goto, Handler, Prim, Slot, Switch
from ..loop.dialect import HASH_LENGTH, INPUT_HASH
from ..loop.schema import StateSpec
from . import templates
from .chain import Chain
from .deadlines import KIND
from .loop_context import Callee, LateCallee, LoopContext
from .templates import Needs

_INPUT, _INPUT_HASH = "with.input", f"with.{INPUT_HASH}"
BEGAN = prim("get", Slot("began"), "elapsed_ms")
NOW = prim("get", Slot("now"), "elapsed_ms")


def act(context: LoopContext, chain: Chain, state: StateSpec) -> None:
    """Call the function and store its result in `last` and in the capture."""
    name = state.name
    callee = context.callees[name]
    needs = Needs()
    routed = chain.handler
    span = state.span_of("call", "loop", "parallel")
    if isinstance(callee, Callee):
        args = _arguments(context, state, callee, needs)
        branch = _branch(context, state, needs)
        context.prepare(chain, state, "act", needs)
        _refuse_branch(chain, state, branch)
        args = _stored(chain, args)
        chain.perform("clock", {}, "began", f"{name}/call")
        until = _until(context, chain, state)
        _call(context, chain, state, callee, args, until)
    else:
        _call_late(context, chain, state, callee, needs)
    if isinstance(callee, Callee) or callee.linked:
        chain.handler = Handler(f"{name}/failed", "fault")
        chain.open(f"{name}/returned")
        chain.add(store("value", prim("plain", Slot("value"), span=span)))
        chain.add(store("said", prim("text", Slot("value"), span=span)))
        chain.perform("clock", {}, "now", f"{name}/answered")
        chain.handler = routed
        is_true: Expr = Slot("value")
        if state.runs_loops:
            is_true = prim("eq", prim("get", Slot("value"), "status"), "success")
        exit_code = prim("select", is_true, 0, 1)
        chain.add(store("last", _result(output=Slot("said"), exit_code=exit_code, value=Slot("value"))))
        chain.close(Goto(f"{name}/acted"))
    chain.handler = routed
    chain.open(f"{name}/failed")
    chain.perform("clock", {}, "now", f"{name}/faulted")
    chain.add(store("last", _failure(state, context.deadline is not None)))
    chain.close(Goto(f"{name}/acted"))
    chain.open(f"{name}/acted")
    context.acted.append(f"{name}/acted")
    if state.runs_loops:
        _keep_loop(chain, state)
    elif state.capture is not None:
        chain.add(store(f"captured.{state.capture}", Slot("last")))
    if context.deadline is not None:
        context.ends.add("timeout")
        late = prim("eq", prim("get", Slot("last"), "timed_out"), "loop")
        late = prim("or", late, prim("ge", NOW, context.deadline))
        chain.unless(late, "/timeout", f"{name}/acted_in_time")


def use_tool(context: LoopContext, chain: Chain, state: StateSpec) -> None:
    """Call a tool of an MCP server; the result has the exit codes of little-loops' `mcp-call`."""
    needs = Needs()
    name = context.templates[state.name, "action"].fixed
    assert name is not None
    server, _, tool = name.strip().partition("/")
    given = {
        key: _argument(context, state, f"params.{key}", value, needs)
        for key, value in (state.params or {}).items()
    }
    context.prepare(chain, state, "act", needs)
    args = {
        "name": f"mcp:{server}.{tool}",
        "args": record(given),
        "definition": {"mcp": {"server": server, "tool": tool}},
        "timeout_s": state.timeout,
        "deadline_ms": context.deadline,
        "on_unknown": state.on_unknown,
    }
    chain.perform("tool", args, "used", f"{state.name}/acted")
    chain.add(store("last", _TOOL_RESULT))
    if state.capture is not None:
        chain.add(store(f"captured.{state.capture}", Slot("last")))
    context.in_time(chain, "last", f"{state.name}/acted_in_time")


def _tool_result() -> Expr:
    """The result of a tool as an action result; it is an error only if the server did not answer."""
    used = Slot("used")
    error, kind = (prim("lookup_or", used, path, None) for path in (("error",), ("error", "kind")))
    codes = [(0, prim("is_null", error)), (124, prim("eq", kind, "timeout"))]
    codes.append((127, prim("contains", ("unknown-server", "not-found"), kind)))
    exit_code: Expr = Const(1)
    for code, is_so in reversed(codes):
        exit_code = prim("select", is_so, code, exit_code)
    is_broken = prim("contains", ("no-package", "bad-configuration"), kind)
    is_late = prim("eq", prim("lookup_or", used, ("timed_out",), None), "loop")
    fields = {
        "output": prim("text", prim("lookup_or", used, ("value",), "")),
        "stderr": prim("lookup_or", used, ("error", "message"), ""),
        "exit_code": exit_code,
        "duration_ms": prim("get", used, "duration_ms"),
        "elapsed_ms": prim("get", used, "elapsed_ms"),
        "error": prim("select", is_broken, error, None),
        "timed_out": prim("select", is_late, "loop", None),
    }
    return prim("without_nulls", record(fields))


_TOOL_RESULT = _tool_result()


def _arguments(context: LoopContext, state: StateSpec, callee: Callee, needs: Needs) -> list[Expr]:
    given = dict(callee.arguments)
    found: list[Expr] = []
    for place, value in callee.arguments:
        if place == _INPUT_HASH and value is given.get(_INPUT):
            whole = prim("digest", prim("text", _argument(context, state, _INPUT, value, needs)))
            found.append(prim("substring", whole, 0, HASH_LENGTH))
        else:
            found.append(_argument(context, state, place, value, needs))
    return found


def _stored(chain: Chain, args: list[Expr]) -> list[Expr]:
    """Store the arguments until the call; constants and slots stay as they are."""
    for number, argument in enumerate(args):
        if not isinstance(argument, Const):
            slot = f"argument.{number + 1}"
            chain.add(store(slot, argument))
            args[number] = Slot(slot)
    return args


def _call(
    context: LoopContext, chain: Chain, state: StateSpec, callee: Callee, args: list[Expr], until: Expr | None
) -> None:
    """End the open state with the call."""
    if until is not None:
        context.until[chain.name] = until
    span = state.span_of("call", "loop", "parallel")
    chain.handler = Handler(f"{state.name}/failed", "fault")
    chain.close(Call(callee.function, tuple(args), "value", f"{state.name}/returned", span=span))


def _call_late(
    context: LoopContext, chain: Chain, state: StateSpec, callee: LateCallee, needs: Needs
) -> None:
    """Let the host link the loop with the computed name into the program, then call the loop.

    The host continues with a new program that has one more case here; the journal records the change.
    """
    assert state.loop is not None
    name, routed = state.name, chain.handler
    called = _argument(context, state, "loop", state.loop, needs)
    calls = [(loop, one, _arguments(context, state, one, needs)) for loop, one in callee.linked]
    branch = _branch(context, state, needs)
    context.prepare(chain, state, "act", needs)
    _refuse_branch(chain, state, branch)
    chain.add(store("callee", prim("trim", prim("text", called))))
    chain.perform("clock", {}, "began", f"{name}/link")
    until = _until(context, chain, state)
    args = {"name": Slot("callee"), "file": callee.file, "state": name}
    args["linked"] = tuple(loop for loop, _ in callee.linked)
    chain.perform("link", args, "link", f"{name}/linked")
    cases = tuple((loop, f"{name}/call_{number}") for number, (loop, _, _) in enumerate(calls, 1))
    found = prim("lookup_or", Slot("link"), ("name",), "")
    chain.close(Switch(found, cases, f"{name}/failed_link") if cases else Goto(f"{name}/failed_link"))
    for (_, one, arguments), (_, at) in zip(calls, cases, strict=True):
        chain.handler = routed
        chain.open(at)
        _call(context, chain, state, one, _stored(chain, arguments), until)
    chain.handler = routed
    chain.open(f"{name}/failed_link")
    problem = prim("get", Slot("link"), "error")
    chain.add(store("fault", problem))
    chain.close(Goto(f"{name}/failed"))


def _branch(context: LoopContext, state: StateSpec, needs: Needs) -> Expr | None:
    """The branch in whose work tree the loop should run; None if the state names none."""
    if state.worktree is None:
        return None
    return prim("trim", prim("text", _argument(context, state, "worktree", state.worktree, needs)))


def _refuse_branch(chain: Chain, state: StateSpec, branch: Expr | None) -> None:
    """Reject a loop that should run in another work tree: it would change the current one instead."""
    if branch is None:
        return
    name, routed = state.name, chain.handler
    chain.add(store("branch", branch))
    chain.close(Branch(prim("eq", Slot("branch"), ""), f"{name}/in_place", f"{name}/elsewhere"))
    chain.open(f"{name}/elsewhere")
    chain.perform("clock", {}, "began", f"{name}/not_here")
    message = prim("concat", "`worktree` names the branch `", Slot("branch"), NO_TREE)
    chain.add(store("fault", record({"kind": "no-worktree", "message": message})))
    chain.close(Goto(f"{name}/failed"))
    chain.handler = routed
    chain.open(f"{name}/in_place")


NO_TREE = "`, and a loop works in the work tree of the run: run it there, or leave `worktree` empty"
ENDED = prim("lookup_or", Slot("last"), ("value",), None)
LIMITED = prim("eq", prim("lookup_or", ENDED, ("status",), None), "limit")
TIMED_OUT = prim("eq", prim("lookup_or", Slot("last"), ("timed_out",), None), "action")


def loop_result(state: StateSpec) -> Expr:
    """The evaluation of a state that runs a loop, from the loop's outcome; a limit is `timeout` if that has a
    route.
    """
    verdict = "timeout" if "timeout" in state.routes else "failure"
    limited = record({"verdict": verdict, "details": prim("map")})
    return prim(
        "select", prim("or", LIMITED, TIMED_OUT), limited, prim("judge_exit", Slot("last"), (0,), (1,))
    )


def _keep_loop(chain: Chain, state: StateSpec) -> None:
    """Store the captures and the outcome of the state's loop under the state's name."""
    how = prim("lookup_or", ENDED, ("terminated_by",), prim("select", TIMED_OUT, "timeout", "error"))
    failed = prim("eq", prim("lookup_or", ENDED, ("status",), None), "failure")
    end = prim("lookup_or", ENDED, ("final_state",), None)
    facts = {
        "terminated_by": how,
        "failure_terminal": prim("select", failed, end, None),
        "error": prim("lookup_or", Slot("last"), ("error", "message"), None),
    }
    inner = prim("lookup_or", ENDED, ("captured",), prim("map"))
    kept = prim("merge", inner, prim("without_nulls", record(facts)))
    chain.add(store(f"captured.{state.name}", kept))
    if state.capture is not None:
        verdict = prim("get", loop_result(state), "verdict")
        failed = prim("select", prim("eq", verdict, "error"), "error", "no")
        said = prim("select", prim("eq", verdict, "success"), "yes", failed)
        whole = prim("put", Slot("last"), "verdict", said)
        if state.capture == state.name:
            whole = prim("merge", whole, kept)
        chain.add(store(f"captured.{state.capture}", whole))


def _until(context: LoopContext, chain: Chain, state: StateSpec) -> Expr | None:
    """The deadline of the function's effects: the time limit of the state or of the loop."""
    if state.timeout is None:
        return None if context.deadline is None else expr(context.deadline)
    until = prim("add", BEGAN, max(1, round(state.timeout * 1000)))
    if context.deadline is not None:
        until = prim("min", until, context.deadline)
    chain.add(store("until", until))
    return Slot("until")


def _argument(context: LoopContext, state: StateSpec, place: str, value: Any, needs: Needs) -> Expr:
    """An argument with its variables expanded; an argument that is a single variable keeps its type."""
    if isinstance(value, str):
        template = context.templates.get((state.name, place))
        if template is None:
            return Const(value)
        return templates.value_of(template, context.place(state, place, value), needs)
    if isinstance(value, dict):
        items = {key: _argument(context, state, f"{place}/{key}", item, needs) for key, item in value.items()}
        if all(isinstance(item, Const) for item in items.values()):
            return Const(freeze(value))
        return record(items)
    if isinstance(value, list | tuple):
        parts = [_argument(context, state, f"{place}/{i}", item, needs) for i, item in enumerate(value)]
        if all(isinstance(part, Const) for part in parts):
            return Const(freeze(value))
        return prim("list", *parts)
    return Const(value)


def _result(**fields: Any) -> Prim:
    times = {"duration_ms": prim("sub", NOW, BEGAN), "elapsed_ms": NOW}
    return record({"output": "", "stderr": "", **fields, **times})


def _failure(state: StateSpec, has_time: bool) -> Expr:
    """The result of a call that ended with a fault, like that of an action that could not be performed."""
    message = prim("get", Slot("fault"), "message")
    error = record({"kind": "fault", "message": message, "fault": Slot("fault")})
    failed = _result(stderr=message, error=error)
    if state.timeout is not None:
        late = _result(timed_out="action", limit_ms=max(1, round(state.timeout * 1000)))
    elif has_time:
        late = _result(timed_out="loop")
    else:
        return failed
    return prim("select", prim("eq", prim("get", Slot("fault"), "kind"), KIND), late, failed)
