"""Deadline propagation from loops into the functions that they call.

If a state with a time limit (its own or its loop's) calls a function, all effects of that function must
end by the deadline, however deep the calls are. So each function that is reached this way and may wait
gets a capture, `/deadline`, and passes it to its effects and to the functions it calls. An effect that
the deadline ended makes the function end in a fault that nothing in it can catch.

A rewriting of states, done once all functions of a program exist; `ir.call_limits` verifies the result.
A loop with a time limit computes its own `/deadline` and keeps the outer one in `/outer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ...ir import nodes as ir
from ...ir.builder import expr, prim, store
from ...ir.call_limits import DEADLINE, NEVER, OUTER, References, closures_of
from ...ir.effects import EFFECTS
from ...ir.records import frozen

# The fault with which a function ends at its deadline.
KIND = "deadline"
FAULT = {"kind": KIND, "message": "the time limit was reached"}
LATE, CLOCK, ANSWER = "/late", "/clock", "/answer"
ELAPSED = prim("get", ir.Slot(CLOCK), "elapsed_ms")


@frozen
class Calls:
    """The calls of a loop's function, with their deadlines.

    until: the deadline of the call, by state; None without a deadline. has_time: whether the loop has its
    own time limit. acted: the states that follow the result of a call, each with the slot of the clock.
    """

    until: Mapping[str, ir.Expr]
    has_time: bool
    acted: Sequence[str]


def pass_deadlines(functions: Sequence[ir.Function], loops: Mapping[str, Calls]) -> list[ir.Function]:
    """Add deadline parameters to functions that states of `loops` call; return all functions."""
    if not any(calls.until for calls in loops.values()):
        return list(functions)
    references = References(functions)
    called = {
        state.exit.callee.function
        for function in functions
        if function.name in loops
        for state in function.states
        if state.name in loops[function.name].until
        and isinstance(state.exit, ir.Call)
        and isinstance(state.exit.callee, ir.Closure)
    }
    # Transitive callees; functions that cannot wait need no deadline.
    within: dict[str, list[str]] = {name: [*made] for name, made in references.made.items()}
    todo, found = list(called), set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += within[name]
    timed = found & references.waiting
    return [
        _Pass(function, timed, loops).function()
        if function.name in timed or not timed.isdisjoint(within[function.name])
        else function
        for function in functions
    ]


class _Pass:
    """Rewriting of one function. timed: the functions that receive a deadline."""

    def __init__(self, function: ir.Function, timed: set[str], loops: Mapping[str, Calls]) -> None:
        self.old = function
        self.timed = timed
        self.loops = loops
        self.calls = loops.get(function.name)
        self.is_timed = function.name in timed
        self.has_own = self.calls is not None and self.calls.has_time
        self.added: list[ir.State] = []
        self.guards: dict[ir.Handler, str] = {}

    def function(self) -> ir.Function:
        old = self.old
        states = [made for state in old.states for made in self._state(state)]
        captures, locals_ = old.captures, old.locals
        if self.is_timed:
            captures = (*captures, OUTER if self.has_own else DEADLINE)
        states += self.added
        if any(_goes_to(state, LATE) for state in states):
            states.append(ir.State(LATE, (), ir.Fail(ir.Const(FAULT)), span=old.span))
        used = {
            slot
            for state in states
            if isinstance(state.exit, ir.Perform | ir.Call)
            for slot in (state.exit.slot,)
        }
        locals_ += tuple(slot for slot in (CLOCK, ANSWER) if slot in used)
        return attrs.evolve(old, states=tuple(states), captures=captures, locals=locals_)

    def _names_timed(self, state: ir.State) -> bool:
        return any(closure.function in self.timed for closure in closures_of(state))

    # --- a state ----------------------------------------------------------------------------

    def _state(self, state: ir.State) -> list[ir.State]:
        body, exit_ = state.body, state.exit
        if self._names_timed(state):
            until = self._until(state)
            change = lambda value: _with_deadline(value, self.timed, until)  # noqa: E731
            body = tuple(_instruction(instruction, change) for instruction in body)
            exit_ = _exit(exit_, change)
        if not self.is_timed:
            if exit_ is state.exit:
                return [state]
            return [attrs.evolve(state, body=body, exit=exit_)]
        if self.has_own:
            body = tuple(map(_within_outer, body))
            return [attrs.evolve(state, body=body, exit=exit_)]
        made = attrs.evolve(state, body=body, exit=exit_, handler=self._guarded(state))
        if self.calls is not None and state.name in self.calls.acted:
            # The enclosing loop may have reached its deadline, whatever the result of the call.
            proper = attrs.evolve(made, name=f"{state.name}/proper")
            late = _is_late(prim("get", ir.Slot("now"), "elapsed_ms"))
            gate = ir.State(state.name, (), ir.Branch(late, LATE, proper.name), span=state.span)
            return [gate, *self._leaving(proper)]
        return self._leaving(made)

    def _until(self, state: ir.State) -> ir.Expr:
        """The deadline of the functions that a state refers to."""
        until = self.calls.until.get(state.name) if self.calls is not None else None
        if until is None:
            return ir.Slot(DEADLINE) if self.is_timed or self.has_own else ir.Const(None)
        if self.is_timed and not self.has_own:
            return _sooner(DEADLINE, until)
        return until

    def _guarded(self, state: ir.State) -> ir.Handler | None:
        """The handler of a state, extended to pass the deadline fault outwards."""
        handler = state.handler
        if handler is None or self.calls is not None:
            return handler
        name = self.guards.get(handler)
        if name is None:
            name = self.guards[handler] = f"{handler.target}/time-{len(self.guards) + 1}"
            is_late = prim("eq", prim("get", ir.Slot(handler.slot), "kind"), KIND)
            again = f"{name}/over"
            self.added.append(ir.State(name, (), ir.Branch(is_late, again, handler.target)))
            self.added.append(ir.State(again, (), ir.Fail(ir.Slot(handler.slot))))
        return ir.Handler(name, handler.slot)

    def _leaving(self, state: ir.State) -> list[ir.State]:
        """A state, with the following check of its deadline."""
        exit_ = state.exit
        if isinstance(exit_, ir.Perform) and EFFECTS[exit_.kind].waits:
            then = f"{state.name}/in-time"
            waits = attrs.evolve(exit_, args=_bounded(exit_.args), next=then)
            cut = prim("eq", prim("get", ir.Slot(exit_.slot), "timed_out"), "loop")
            check = ir.State(then, (), ir.Branch(cut, LATE, exit_.next), span=state.span)
            return [attrs.evolve(state, exit=waits), check]
        callee = exit_.callee if isinstance(exit_, ir.Call | ir.TailCall) else None
        if not isinstance(callee, ir.Closure) or callee.function not in self.loops:
            return [state]
        if not self.loops[callee.function].has_time:
            return [state]
        # A loop with its own time limit returns a value when the deadline of the enclosing loop is reached.
        back, then = f"{state.name}/back", f"{state.name}/in-time"
        if isinstance(exit_, ir.Call):
            asks = attrs.evolve(exit_, next=back)
            last = ir.State(then, (), ir.Branch(_is_late(ELAPSED), LATE, exit_.next), span=state.span)
            after = [last]
        else:
            assert isinstance(exit_, ir.TailCall)
            asks = ir.Call(callee, exit_.args, ANSWER, back, span=exit_.span)
            done = f"{state.name}/done"
            last = ir.State(then, (), ir.Branch(_is_late(ELAPSED), LATE, done), span=state.span)
            after = [last, ir.State(done, (), ir.Return(ir.Slot(ANSWER)), span=state.span)]
        clock = ir.State(back, (), ir.Perform("clock", prim("map"), CLOCK, then), span=state.span)
        return [attrs.evolve(state, exit=asks), clock, *after]


def _is_late(elapsed: ir.Expr) -> ir.Prim:
    return prim("ge", elapsed, prim("or", ir.Slot(DEADLINE), NEVER))


def _goes_to(state: ir.State, name: str) -> bool:
    return isinstance(state.exit, ir.Branch) and name in (state.exit.then, state.exit.otherwise)


def _bounded(args: ir.Expr) -> ir.Expr:
    """The arguments of an effect with the earlier of its deadline and the enclosing one."""
    if isinstance(args, ir.Prim) and args.op == "without_nulls":
        args = args.args[0]
    if isinstance(args, ir.Const):
        args = prim("map", *(part for name, value in args.value.items() for part in (name, value)))
    assert isinstance(args, ir.Prim)
    pairs = zip(args.args[::2], args.args[1::2], strict=True)
    kept = [part for key, value in pairs if key != ir.Const("deadline_ms") for part in (key, value)]
    return prim("without_nulls", prim("map", *kept, "deadline_ms", ir.Slot(DEADLINE)), span=args.span)


def _within_outer(instruction: ir.Instruction) -> ir.Instruction:
    """Limit the deadline that a loop computes to that of the enclosing loop."""
    if isinstance(instruction, ir.Set) and instruction.slot == DEADLINE:
        return store(DEADLINE, _sooner(OUTER, instruction.value))
    return instruction


def _sooner(slot: str, until: ir.Expr) -> ir.Expr:
    """The earlier of `until` and the deadline in a slot, if it has one."""
    return prim("min", prim("or", ir.Slot(slot), until), until)


# --- expressions ------------------------------------------------------------------------------

Change = Callable[[ir.Expr], ir.Expr]


def _with_deadline(value: ir.Expr, timed: set[str], until: ir.Expr) -> ir.Expr:
    """An expression in which closures of timed functions capture `until`."""
    if isinstance(value, ir.Closure):
        captures = tuple(_with_deadline(capture, timed, until) for capture in value.captures)
        more = (expr(until),) if value.function in timed else ()
        return attrs.evolve(value, captures=(*captures, *more))
    if isinstance(value, ir.Prim) and any(isinstance(arg, ir.Prim | ir.Closure) for arg in value.args):
        return attrs.evolve(value, args=tuple(_with_deadline(arg, timed, until) for arg in value.args))
    return value


def _instruction(instruction: ir.Instruction, change: Change) -> ir.Instruction:
    if isinstance(instruction, ir.Note):
        return attrs.evolve(instruction, fields=change(instruction.fields))
    if isinstance(instruction, ir.SetBox):
        return attrs.evolve(instruction, box=change(instruction.box), value=change(instruction.value))
    return attrs.evolve(instruction, value=change(instruction.value))


def _exit(exit_: ir.Exit, change: Change) -> ir.Exit:
    fields: dict[str, Any] = {}
    for name in ("condition", "subject", "callee", "items", "args", "value", "error"):
        value = getattr(exit_, name, None)
        if isinstance(value, tuple):
            fields[name] = tuple(map(change, value))
        elif value is not None:
            fields[name] = change(value)
    return attrs.evolve(exit_, **fields) if fields else exit_
