"""Plan of a dry run: limits, scope and states of a program, read from its IR; no effect is performed.

The plan describes the compiled program, so an image without its sources has a plan too.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from ...ir import nodes as ir
from ...ir.diagnostics import clean
from ...ir.effects import EFFECTS
from ...vm.code.image import Image

_QUOTING = ("shell_word", "shell_single", "shell_double", "shell_heredoc", "trim_newline", "text", "tail")


def dry_run(image: Image, as_json: bool) -> str:
    """The plan of a program as text or as JSON."""
    from ...vm.code.lift import lift

    plan = plan_of(lift(image))
    return json.dumps(plan, indent=2, ensure_ascii=False) + "\n" if as_json else as_text(plan)


def plan_of(program: ir.Program) -> dict[str, Any]:
    """Limits, scope and states of a program; for each state its effects, evaluators, captures and routes."""
    meta = program.meta
    limits = {
        name: value
        for name in (field.name for field in attrs.fields(type(meta.limits)))
        if (value := getattr(meta.limits, name)) not in (None, {})
    }
    plan: dict[str, Any] = {
        "program": program.name,
        "kind": meta.kind,
        "paradigm": meta.paradigm,
        "scope": list(meta.scope),
        "limits": limits,
        "maintain": meta.maintain,
        "initial": None,
        "states": [],
    }
    inner = {loop.function: loop for loop in meta.loops}
    if meta.kind == "loop":
        plan |= _loop(program.function(program.entry))
        inner[program.entry] = ir.InnerLoop(program.entry)
    # For functions that are not loops: their effects, by function and state.
    plan["states"] += [
        _state(f"{function.name}/{state.name}", [state], {})
        for function in program.functions
        for state in function.states
        if function.name not in inner and isinstance(state.exit, ir.Perform)
    ]
    if meta.loops:
        plan["loops"] = [_inner(program.function(loop.function), loop) for loop in meta.loops]
    return plan


def _inner(function: ir.Function, loop: ir.InnerLoop) -> dict[str, Any]:
    """The plan of an inner loop."""
    limits = {name: value for name, value in attrs.asdict(loop.limits).items() if value not in (None, {})}
    return {"loop": loop.name, "limits": limits, "maintain": loop.maintain, **_loop(function)}


def _loop(function: ir.Function) -> dict[str, Any]:
    """The initial state and the states of a loop."""
    by_name = {state.name: state for state in function.states}
    owned: dict[str, list[ir.State]] = {}
    for state in function.states:
        owned.setdefault(state.owner, []).append(state)
    states = [_state(name, parts, by_name) for name, parts in owned.items() if name]
    return {"initial": _initial(function.states), "states": states}


def _initial(states: tuple[ir.State, ...]) -> str | None:
    """The first author-written state after the generated states at the start; None if there is none."""
    by_name = {state.name: state for state in states}
    state, seen = states[0], set()
    while not state.owner and state.name not in seen:
        seen.add(state.name)
        match state.exit:
            case ir.Goto(target=target) | ir.Perform(next=target):
                state = by_name[target]
            case ir.Branch(otherwise=target):
                state = by_name[target]
            case _:
                return None
    return state.owner or None


def _state(name: str, parts: list[ir.State], by_name: dict[str, ir.State]) -> dict[str, Any]:
    plan: dict[str, Any] = {"state": name, "performs": [], "evaluators": [], "captures": [], "routes": {}}
    for part in parts:
        if not _is_only_for_crashes(part):
            for instruction in part.body:
                _instruction(instruction, plan)
        match part.exit:
            case ir.Perform(kind=kind, args=args):
                plan["performs"].append(_performed(kind, args))
            case ir.Call(callee=ir.Closure(function=function)):
                plan.setdefault("calls", []).append(function)
            case ir.Switch(cases=cases, default=default):
                for verdict, target in cases:
                    _route(verdict, by_name.get(target), plan)
                if default is not None:
                    _route("_", by_name.get(default), plan)
            case ir.Return(value=value) if "status" in (ends := _entries(value)):
                plan["terminal"] = _show(ends["status"])
    if not plan["routes"]:
        # A state without a verdict has its target in its route notes.
        for part in parts:
            _route("next", part, plan)
    return plan


def _is_only_for_crashes(state: ir.State) -> bool:
    """Whether a state only computes the verdict of a crash or of a failed evaluation."""
    return any(
        isinstance(instruction, ir.Set)
        and isinstance(instruction.value, ir.Prim)
        and instruction.value.op in ("judge_crash", "judge_fault")
        for instruction in state.body
    )


def _instruction(instruction: ir.Instruction, plan: dict[str, Any]) -> None:
    match instruction:
        case ir.Set(slot=slot) if slot.startswith("captured."):
            plan["captures"].append(slot.removeprefix("captured."))
        case ir.Note(kind="evaluate", fields=fields):
            evaluator = _show(_entries(fields).get("type", ir.Const(None)))
            if evaluator not in plan["evaluators"]:
                plan["evaluators"].append(evaluator)


def _route(verdict: str, state: ir.State | None, plan: dict[str, Any]) -> None:
    """Add the target in a state's route note to the plan, under a verdict."""
    for instruction in state.body if state is not None else ():
        if isinstance(instruction, ir.Note) and instruction.kind == "route":
            plan["routes"].setdefault(verdict, _show(_entries(instruction.fields).get("to", ir.Const(None))))


def _performed(kind: str, args: ir.Expr) -> dict[str, Any]:
    shown = {name: _show(value) for name, value in _entries(args).items() if name != "schema"}
    return {"kind": kind, **shown}


def _entries(fields: ir.Expr) -> dict[str, ir.Expr]:
    """The entries of a map expression that have constant keys."""
    if isinstance(fields, ir.Prim) and fields.op == "without_nulls":
        return _entries(fields.args[0])
    if isinstance(fields, ir.Prim) and fields.op == "map":
        pairs = zip(fields.args[::2], fields.args[1::2], strict=False)
        return {str(key.value): value for key, value in pairs if isinstance(key, ir.Const)}
    if isinstance(fields, ir.Const) and isinstance(fields.value, dict):
        return {name: ir.Const(value) for name, value in fields.value.items()}
    return {}


def _show(expr: ir.Expr) -> Any:
    """A constant unchanged; other expressions as text with `${…}` for values that are known at run time."""
    match expr:
        case ir.Const(value=value):
            return list(value) if isinstance(value, tuple) else value
        case ir.Prim(op="concat", args=args):
            return "".join(str(_show(arg)) for arg in args)
        case ir.Prim(op="lookup", args=(_, _, ir.Const(value=str(variable)))):
            return "${" + variable + "}"
        case ir.Prim(op="lookup_or", args=(base, ir.Const(value=tuple(path)), *_)):
            inner = str(_show(base)).removeprefix("${").removesuffix("}")
            return "${" + ".".join((inner, *map(str, path))) + "}"
        case ir.Prim(op=op, args=(first, *_)) if op in _QUOTING:
            return _show(first)
        case ir.Slot(name=name) if name.startswith("captured.") or name in ("prev", "result"):
            return "${" + name + "}"
        case _:
            return "${…}"


# --- text output ------------------------------------------------------------------------------


def as_text(plan: dict[str, Any]) -> str:
    head = f"{plan['program']}: {plan['paradigm'] or plan['kind']}"
    lines = [head + (f", begins in {plan['initial']}" if plan["initial"] else "")]
    limits = [_limit(name, value) for name, value in plan["limits"].items()]
    lines.append(f"  limits: {', '.join(limits) or 'none'}")
    lines.append(f"  scope: {', '.join(plan['scope']) or 'none'}")
    if plan["maintain"]:
        lines.append("  maintain: begins again after each cycle")
    lines += _state_lines(plan["states"])
    for loop in plan.get("loops", ()):
        limits = [_limit(name, value) for name, value in loop["limits"].items()]
        lines += ["", f"loop {loop['loop']}, begins in {loop['initial']}"]
        lines.append(f"  limits: {', '.join(limits) or 'none'}")
        lines += [f"  {line}" if line else "" for line in _state_lines(loop["states"])]
    return clean("\n".join(lines), 1 << 24) + "\n\nNothing was run.\n"


def _state_lines(states: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for state in states:
        lines += ["", state["state"] + (f" (ends: {state['terminal']})" if "terminal" in state else "")]
        for performed in state["performs"]:
            if EFFECTS[performed["kind"]].waits:
                lines += _performed_lines(performed)
        if "calls" in state:
            lines.append(f"  call: {', '.join(state['calls'])}")
        if state["captures"]:
            lines.append(f"  capture: {', '.join(dict.fromkeys(state['captures']))}")
        if state["evaluators"]:
            lines.append(f"  evaluate: {', '.join(map(str, state['evaluators']))}")
        lines += [f"  {verdict} → {target}" for verdict, target in state["routes"].items()]
    return lines


def _limit(name: str, value: Any) -> str:
    if name == "state_budgets":
        rows = [
            f"{unit} {bound:g} in {state}"
            for state, bounds in value.items()
            for unit, bound in bounds.items()
        ]
        return ", ".join(rows)
    if name == "timeout_ms":
        return f"timeout {value / 1000:g} s"
    return f"{name.removeprefix('budget_')} {value:g}" if name.startswith("budget_") else f"{name} {value}"


def _performed_lines(performed: dict[str, Any]) -> list[str]:
    facts = dict(performed)
    kind = facts.pop("kind")
    subject = facts.get(EFFECTS[kind].subject) or ""
    kind = "ask" if kind == "evaluate" else kind  # `evaluate:` is the label of the evaluators
    first, *more = str(subject).split("\n")
    lines = [f"  {kind}: {first}", *(f"    {line}" for line in more)]
    if facts.get("timeout_s") is not None:
        lines.append(f"    timeout {facts['timeout_s']} s")
    if facts.get("seconds") is not None:
        lines[0] = f"  {kind}: {facts['seconds']} s"
    return lines
