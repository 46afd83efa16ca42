"""Verification of calls: what a loop calls respects the loop's time limit and budget, and does not call
the loop again.

A call is an action of a loop: its computation time is not limited here. But every effect in it that waits has
the loop's deadline, which is passed from call to call in a capture that is never assigned; and no effect in
it uses a model or agent if the loop has a budget. `spec/ir.md` (Calls) has the rules and why they suffice.

The possible callees of a function are all functions whose closures it creates, and their callees,
transitively. There are no others: the values that are passed to a loop are plain data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from . import nodes
from .analysis import expressions, graph, reachable
from .diagnostics import Diagnostic, DiagnosticId, clean
from .effects import EFFECTS, SPENDERS
from .shapes import deadline_of, field_of, is_slot, writers

# The deadline of a function's effects, as active time of the run: a capture; in a loop with its own time
# limit, the slot in which it computes its deadline. OUTER is the capture for the enclosing loop.
DEADLINE, OUTER = "/deadline", "/outer"
NEVER = float("inf")


def closures_of(state: nodes.State) -> Iterator[nodes.Closure]:
    """All closures that a state creates."""
    todo = [expr for part in (*state.body, state.exit) for expr in expressions(part)]
    while todo:
        expr = todo.pop()
        kind = type(expr)  # `type` instead of `isinstance`: this runs for every expression of a program
        if kind is nodes.Prim:
            todo += [arg for arg in expr.args if type(arg) not in _LEAVES]  # type: ignore[union-attr]
        elif kind is nodes.Closure:
            yield expr  # type: ignore[misc]
            todo += expr.captures  # type: ignore[union-attr]


_LEAVES = frozenset({nodes.Const, nodes.Slot})


class References:
    """The functions whose closures each function creates, and the functions that can wait."""

    def __init__(self, functions: Iterable[nodes.Function]) -> None:
        self.functions = {function.name: function for function in functions}
        self.made = {name: _made(function) for name, function in self.functions.items()}
        users: dict[str, list[str]] = {name: [] for name in self.functions}
        for name, made in self.made.items():
            for callee in made:
                users[callee].append(name)
        waiting = [name for name, function in self.functions.items() if any(map(_waits, function.states))]
        self.waiting = _closed(waiting, users)

    def performed(self, name: str) -> Iterator[str]:
        """The kinds of effects that a function itself performs."""
        for state in self.functions[name].states:
            if isinstance(state.exit, nodes.Perform):
                yield state.exit.kind

    def reach(self, names: Iterable[str], apart_from: Iterable[str] = ()) -> set[str]:
        """The functions that these functions may call, directly or transitively, without passing through
        `apart_from`.
        """
        ways: dict[str, Iterable[str]] = {**self.made, **dict.fromkeys(apart_from, ())}
        return _closed([callee for name in names for callee in self.made[name]], ways)


def _made(function: nodes.Function) -> dict[str, None]:
    """The functions whose closures a function creates; shared expressions are visited once."""
    made: dict[str, None] = {}
    seen: set[int] = set()
    for state in function.states:
        todo = [expr for part in (*state.body, state.exit) for expr in expressions(part)]
        while todo:
            expr = todo.pop()
            kind = type(expr)
            if kind in _LEAVES or id(expr) in seen:
                continue
            seen.add(id(expr))
            if kind is nodes.Prim:
                todo += [arg for arg in expr.args if type(arg) not in _LEAVES]  # type: ignore[union-attr]
            else:
                made[expr.function] = None  # type: ignore[union-attr]
                todo += expr.captures  # type: ignore[union-attr]
    return made


def _waits(state: nodes.State) -> bool:
    return isinstance(state.exit, nodes.Perform) and EFFECTS[state.exit.kind].waits


def _closed(names: Iterable[str], ways: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(ways[name])
    return found


def loops_of(program: nodes.Program) -> list[nodes.InnerLoop]:
    """All loops of a program; if the program itself is a loop, it is first."""
    meta = program.meta
    own = (
        [nodes.InnerLoop(program.entry, program.name, meta.maintain, meta.limits)]
        if meta.kind == "loop"
        else []
    )
    return [*own, *meta.loops]


def verify_called(program: nodes.Program) -> Iterator[Diagnostic]:
    """A diagnostic for each way in which a callee of a loop could bypass the loop's limits."""
    yield from _Rules(program).run()


class _Rules:
    def __init__(self, program: nodes.Program) -> None:
        self.program = program
        self.references = References(program.functions)
        self.functions = self.references.functions
        self.loops = loops_of(program)
        self.timed = {loop.function: loop for loop in self.loops if loop.limits.timeout_ms is not None}
        self.bounded = self.references.reach(self.timed) & self.references.waiting

    def run(self) -> Iterator[Diagnostic]:
        yield from self.entries()
        for loop in self.loops:
            function = self.functions[loop.function]
            yield from self.callees(function)
            reached = self.references.reach([loop.function])
            if loop.function in reached:
                message = f"loop {_name(loop.function)} may run itself, through what it calls"
                yield Diagnostic("unbounded-recursion", message, function.span)
            if _has_budget(loop.limits):
                yield from self.spending(loop.function, reached)
        for name in dict.fromkeys([*self.timed, *(name for name in self.functions if name in self.bounded)]):
            yield from self.time(self.functions[name])

    def callees(self, function: nodes.Function) -> Iterator[Diagnostic]:
        """Check that a loop calls only known functions."""
        for state in function.states:
            exit_ = state.exit
            if isinstance(exit_, nodes.Call | nodes.TailCall | nodes.Parallel) and not isinstance(
                exit_.callee, nodes.Closure
            ):
                help = "in a loop the callee is a `closure`, so that what it calls is known"
                what = "calls a function that is not known before it runs"
                yield _problem("unbounded-call", what, state, help)

    def entries(self) -> Iterator[Diagnostic]:
        """Check that a loop is called by name with plain data, so that no function from outside enters it."""
        loops = {loop.function for loop in self.loops}
        for function in self.functions.values():
            if loops.isdisjoint(self.references.made[function.name]):
                continue
            for state in function.states:
                made = [closure for closure in closures_of(state) if closure.function in loops]
                exit_ = state.exit
                if isinstance(exit_, nodes.Call | nodes.TailCall) and made == [exit_.callee]:
                    if all(map(_is_plain, exit_.args)):
                        continue
                    help = "each argument of a loop is a literal or `plain(…)`, so that no function is in it"
                    yield _problem("unbounded-call", "may give a loop a function from outside", state, help)
                elif made:
                    what = f"makes a value of loop {_name(made[0].function)}"
                    yield _problem("unbounded-call", what, state, "a loop is called where it is named")

    def spending(self, loop: str, reached: set[str]) -> Iterator[Diagnostic]:
        for name in self.functions:
            if name in reached:
                for state in self.functions[name].states:
                    if isinstance(state.exit, nodes.Perform) and state.exit.kind in SPENDERS:
                        what = f"may spend, and loop {_name(loop)}, which calls it, has a budget"
                        yield _problem("unbounded-budget", what, state)

    # --- time -------------------------------------------------------------------------------

    def time(self, function: nodes.Function) -> Iterator[Diagnostic]:
        """Check that every effect that waits has the deadline of the enclosing loops, and that calls pass
        it on.
        """
        loop = self.timed.get(function.name)
        limit: nodes.Expr = nodes.Slot(DEADLINE)
        if loop is not None and function.name == self.program.entry:
            limit = nodes.Const(loop.limits.timeout_ms)
        elif loop is not None:
            yield from self.own_deadline(function, loop.limits.timeout_ms)
        else:
            yield from self.captured(function, DEADLINE)
        for state in function.states:
            exit_ = state.exit
            if isinstance(exit_, nodes.Perform) and EFFECTS[exit_.kind].waits:
                given = deadline_of(exit_.args)
                if given != limit and not (given is None and _is_last(function, state)):
                    shown = limit.value if isinstance(limit, nodes.Const) else DEADLINE
                    help = f'its arguments are a map with "deadline_ms", {shown}'
                    what = f"performs `{exit_.kind}` without the loop's deadline"
                    yield _problem("unbounded-wait", what, state, help)
            for closure in closures_of(state):
                if closure.function in self.references.waiting and not self.hands_on(state, closure, limit):
                    what = f"calls {_name(closure.function)} without the loop's deadline"
                    yield _problem("unbounded-wait", what, state)

    def captured(self, function: nodes.Function, slot: str) -> Iterator[Diagnostic]:
        if slot not in function.captures:
            message = f"function {_name(function.name)} waits, and has no capture {_name(slot)}"
            yield Diagnostic("unbounded-wait", message, function.span)
        for number in writers(function).get(slot, {}):
            yield _problem("counter-set", f"sets {_name(slot)}", function.states[number])

    def hands_on(self, state: nodes.State, closure: nodes.Closure, limit: nodes.Expr) -> bool:
        callee = self.functions[closure.function]
        inner = self.timed.get(callee.name)
        slot = DEADLINE if inner is None else OUTER
        if slot not in callee.captures:
            return False
        return _is_within(closure.captures[callee.captures.index(slot)], state, limit)

    def own_deadline(self, function: nodes.Function, timeout: int | None) -> Iterator[Diagnostic]:
        """Check that a nested loop computes its deadline before anything else."""
        inherits = OUTER in function.captures
        if inherits or function.name in self.bounded:
            yield from self.captured(function, OUTER)
        first = function.states[0]
        written = writers(function).get(DEADLINE, {})
        state = next((state for state in function.states if _name_after_clock(first) == state.name), None)
        sets = written.get(function.states.index(state), ()) if state is not None else ()
        good = (
            state is not None
            and isinstance(first.exit, nodes.Perform)
            and len(written) == 1
            and len(sets) == 1
            and state.body[:1] == tuple(sets)
            and isinstance(sets[0], nodes.Set)
            and _is_end(sets[0].value, first.exit.slot, timeout, inherits)
            and all(target not in (first.name, state.name) for target in _targets(function, first))
        )
        if not good:
            help = f'`{DEADLINE} = add(get(now, "elapsed_ms"), {timeout})` comes right after a first `clock`'
            message = f"loop {_name(function.name)} does not begin with when it is over"
            yield Diagnostic("counter-unset", message, function.span, help=help)


def _is_last(function: nodes.Function, state: nodes.State) -> bool:
    """Whether a state runs a command at most once with its own time limit, like a hook at the end of a
    loop.
    """
    assert isinstance(state.exit, nodes.Perform)
    seconds = field_of(state.exit.args, "timeout_s")
    if state.exit.kind != "shell" or not isinstance(seconds, nodes.Const) or seconds.value is None:
        return False
    number, ways = function.states.index(state), graph(function)
    return number not in {at for way in ways[number] for at in reachable(ways, way)}


def _name_after_clock(state: nodes.State) -> str | None:
    exit_ = state.exit
    return (
        exit_.next
        if isinstance(exit_, nodes.Perform) and exit_.kind == "clock" and not state.handler
        else None
    )


def _targets(function: nodes.Function, apart_from: nodes.State) -> Iterator[str]:
    for state, ways in zip(function.states, graph(function), strict=True):
        if state is not apart_from:
            yield from (function.states[way].name for way in ways)


def _is_end(value: nodes.Expr, now: str, timeout: int | None, inherits: bool) -> bool:
    """Whether a value is the clock plus the loop's time limit, or the earlier of this and an outer
    deadline.
    """
    own = nodes.Prim(
        "add", (nodes.Prim("get", (nodes.Slot(now), nodes.Const("elapsed_ms"))), nodes.Const(timeout))
    )
    return value == (
        nodes.Prim("min", (nodes.Prim("or", (nodes.Slot(OUTER), own)), own)) if inherits else own
    )


def _is_within(expr: nodes.Expr, state: nodes.State, limit: nodes.Expr) -> bool:
    """Whether an expression at the end of a state is the limit, or the minimum of the limit and another
    value.
    """
    written: set[str] = set()
    for instruction in reversed(state.body):
        if isinstance(instruction, nodes.Set):
            if is_slot(expr, instruction.slot) and instruction.slot not in written:
                expr = instruction.value
            written.add(instruction.slot)
    if isinstance(limit, nodes.Slot) and limit.name in written:
        return False
    if expr == limit:
        return True
    # A deadline of null means no deadline.
    return (
        isinstance(expr, nodes.Prim)
        and expr.op == "min"
        and any(
            arg == limit or (isinstance(arg, nodes.Prim) and arg.op == "or" and arg.args[:1] == (limit,))
            for arg in expr.args
        )
    )


def _is_plain(argument: nodes.Expr) -> bool:
    return isinstance(argument, nodes.Const) or (isinstance(argument, nodes.Prim) and argument.op == "plain")


def _has_budget(limits: nodes.Limits) -> bool:
    bounds = (limits.budget_usd, limits.budget_tokens, limits.budget_calls, limits.budget_seconds)
    return any(bound is not None for bound in bounds) or bool(limits.state_budgets)


def _name(name: str) -> str:
    return f"`{clean(name, 80)}`"


def _problem(id: DiagnosticId, what: str, state: nodes.State, help_: str | None = None) -> Diagnostic:
    return Diagnostic(id, f"state {_name(state.name)} {what}", state.exit.span or state.span, help=help_)
