"""Whether a program is one: every name resolves, every constant is a value, every bound holds.

Owns the rules of well-formedness (`spec/ir.md`, Verifier); the proof that a loop keeps to its
limits is in `limit_proof` and starts only once the program is well formed. A verifier yields what it
finding and continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import nodes
from .analysis import exit_targets, expressions, graph, reachable
from .constants import MAX_NESTING, constant_problem
from .diagnostics import Diagnostic, DiagnosticId, clean, count_words, labelled, suggest
from .effects import EFFECTS, NOTES, UNITS
from .limit_proof import verify_limits
from .primitives import PRIMITIVES
from .spans import Span

# Limit of look-ups of similar names; the cost of each is proportional to the number of names.
_MAX_SUGGESTIONS = 20
KINDS = ("loop", "flow")


def verify(program: nodes.Program) -> Iterator[Diagnostic]:
    """Everything wrong with `program`; without an error among it, the program can be run.

    A warning (`unreachable-state`) refuses nothing.
    """
    sound = True
    for diagnostic in _Verifier(program).run():
        sound = sound and not diagnostic.is_error
        yield diagnostic
    if sound and (program.meta.kind == "loop" or program.meta.loops):
        yield from verify_limits(program)


def verify_runnable(program: nodes.Program) -> Iterator[Diagnostic]:
    """`verify`, and that the entry can be called without arguments, as a run calls it."""
    yield from verify(program)
    entry = next((each for each in program.functions if each.name == program.entry), None)
    if entry is not None and entry.parameters:
        message = f"the entry {_name(entry.name)} has parameters, but a program is run without arguments"
        yield Diagnostic("bad-entry", message, entry.span)


class _Verifier:
    def __init__(self, program: nodes.Program) -> None:
        self.program = program
        self.functions = {function.name: function for function in program.functions}
        self.suggestions = 0
        self.within: nodes.Function | nodes.State | None = None
        # What was found in the state that is looked at.
        self.found: list[Diagnostic] = []
        # How deep the expressions are of the function that is looked at in which nothing was found: many
        # stand in many places. By identity, since the program holds them.
        self.sound: dict[int, int] = {}
        self.leaves: set[int] = set()

    @property
    def where(self) -> str:
        """What a message ends with; worked out only when there is one."""
        if self.within is None:
            return ""
        return f" in {type(self.within).__name__.lower()} {_name(self.within.name)}"

    def suggest(self, name: str, candidates: Iterable[str], what: str) -> str | None:
        self.suggestions += 1
        return suggest(name, candidates, what) if self.suggestions <= _MAX_SUGGESTIONS else None

    def run(self) -> Iterator[Diagnostic]:
        program = self.program
        yield from self.meta(program.meta)
        yield from self.duplicates(
            "duplicate-function", ((each.name, each.span) for each in program.functions)
        )
        entry = self.functions.get(program.entry)
        if entry is None:
            help_ = self.suggest(program.entry, self.functions, "functions")
            yield Diagnostic(
                "unknown-function", f"the entry {_name(program.entry)} is not a function", help=help_
            )
        elif entry.captures:
            yield Diagnostic("bad-entry", f"the entry {_name(entry.name)} has captures", entry.span)
        elif entry.rest:
            yield Diagnostic(
                "bad-entry", f"the entry {_name(entry.name)} takes any number of arguments", entry.span
            )
        for function in program.functions:
            yield from self.function(function)

    def duplicates(self, id: DiagnosticId, named: Iterable[tuple[str, Span | None]]) -> Iterator[Diagnostic]:
        what = id.removeprefix("duplicate-")
        first: dict[str, Span | None] = {}
        for name, span in named:
            if name in first:
                message = f"{what} {_name(name)} is declared twice{self.where}"
                again = first[name] if first[name] != span else None
                related = labelled(again, "first defined here")
                yield Diagnostic(id, message, span, "defined again here" if related else "", related=related)
            else:
                first[name] = span

    def meta(self, meta: nodes.Meta) -> Iterator[Diagnostic]:
        def bad(what: str) -> Diagnostic:
            return Diagnostic("bad-meta", f"meta: {what}")

        if meta.kind not in KINDS:
            yield bad(f"`kind` is one of {', '.join(KINDS)}")
        if meta.paradigm is not None and type(meta.paradigm) is not str:
            yield bad("`paradigm` is a string or null")
        if type(meta.scope) is not tuple or not all(type(path) is str for path in meta.scope):
            yield bad("`scope` is a list of paths")
        if type(meta.maintain) is not bool:
            yield bad("`maintain` is true or false")
        yield from (bad(what) for what in _limits_problems(meta.limits))
        seen = {self.program.entry} if meta.kind == "loop" else set()
        for loop in meta.loops:
            if loop.function not in self.functions:
                help_ = self.suggest(loop.function, self.functions, "functions")
                message = f"meta: the loop {_name(loop.function)} is not a function"
                yield Diagnostic("unknown-function", message, help=help_)
            elif loop.function in seen:
                yield bad(f"the loop {_name(loop.function)} is listed twice")
            elif self.functions[loop.function].rest:
                yield bad(f"the loop {_name(loop.function)} takes any number of arguments")
            seen.add(loop.function)
            if type(loop.maintain) is not bool or type(loop.name) is not str:
                yield bad("`loops.maintain` is true or false, `loops.name` a string")
            yield from (bad(f"loops: {what}") for what in _limits_problems(loop.limits))

    def function(self, function: nodes.Function) -> Iterator[Diagnostic]:
        self.within = function
        yield from self.duplicates("duplicate-slot", ((slot, function.span) for slot in function.slots))
        yield from self.duplicates("duplicate-state", ((each.name, each.span) for each in function.states))
        if not function.states:
            yield Diagnostic("empty-function", f"function {_name(function.name)} has no state", function.span)
            return
        if function.rest and not function.parameters:
            yield Diagnostic(
                "operand-count",
                f"function {_name(function.name)} has no parameter for the arguments left over",
                function.span,
            )
        slots = frozenset(function.slots)
        states = frozenset(state.name for state in function.states)
        sound = True
        self.sound.clear()
        self.leaves.clear()
        for state in function.states:
            self.state(state, slots, states)
            if self.found:
                sound = sound and all(diagnostic.id != "unknown-state" for diagnostic in self.found)
                yield from self.found
                self.found.clear()
        self.within = function
        if sound and len(states) == len(function.states):
            found = reachable(graph(function))
            for number, state in enumerate(function.states):
                if number not in found:
                    message = f"state {_name(state.name)} cannot be reached{self.where}"
                    yield Diagnostic("unreachable-state", message, state.span, severity="warning")

    def state(self, state: nodes.State, slots: frozenset[str], states: frozenset[str]) -> None:
        self.within = state
        for instruction in state.body:
            span = instruction.span or state.span
            kind = type(instruction)
            if kind is nodes.Set and instruction.slot not in slots:  # type: ignore[union-attr]
                self.found.append(self.unknown("unknown-slot", instruction.slot, slots, span))  # type: ignore[union-attr]
            elif kind is nodes.Note and instruction.kind not in NOTES:  # type: ignore[union-attr]
                self.found.append(self.unknown("unknown-note", instruction.kind, NOTES, span))  # type: ignore[union-attr]
            for expr in expressions(instruction):
                if id(expr) not in self.sound:
                    self.expression(expr, slots, span)
        exit_ = state.exit
        span = exit_.span or state.span
        for expr in expressions(exit_):
            if id(expr) not in self.sound:
                self.expression(expr, slots, span)
        targets = exit_targets(exit_)
        if isinstance(exit_, nodes.Switch):
            self.found += self.duplicates("duplicate-case", [(case, span) for case, _ in exit_.cases])
        elif isinstance(exit_, nodes.Call | nodes.Perform | nodes.Parallel):
            if exit_.slot not in slots:
                self.found.append(self.unknown("unknown-slot", exit_.slot, slots, span))
            if isinstance(exit_, nodes.Perform) and exit_.kind not in EFFECTS:
                self.found.append(self.unknown("unknown-effect", exit_.kind, EFFECTS, span))
        if state.handler is not None:
            targets = (*targets, state.handler.target)
            if state.handler.slot not in slots:
                self.found.append(self.unknown("unknown-slot", state.handler.slot, slots, state.span))
        for target in targets:
            if target not in states:
                self.found.append(self.unknown("unknown-state", target, states, span))

    def unknown(self, id: DiagnosticId, name: str, names: Iterable[str], span: Span | None) -> Diagnostic:
        what = id.removeprefix("unknown-")
        kinds = {"note": "note kinds", "effect": "effect kinds"}
        help_ = self.suggest(name, names, kinds.get(what, f"{what}s"))
        return Diagnostic(id, f"no {what} {_name(name)}{self.where}", span, help=help_)

    def expression(self, root: nodes.Expr, slots: frozenset[str], span: Span | None) -> None:
        """Without recursion, level by level; `span` is shown where a part has none of its own."""
        sound, leaves = self.sound, self.leaves
        before = len(self.found)
        level: list[nodes.Expr] = [root]
        depth = deepest = 0
        while level:
            below: list[nodes.Expr] = []
            for item in level:
                if id(item) in leaves:
                    continue
                # Not `isinstance`: this is asked of every expression of a program.
                kind = type(item)
                if kind is nodes.Prim:
                    known = sound.get(id(item))
                    if known is None:
                        below += item.args  # type: ignore[union-attr]
                        self.primitive(item, item.span or span)  # type: ignore[arg-type]
                    else:
                        deepest = max(deepest, depth + known)
                elif kind is nodes.Const:
                    problem = constant_problem(item.value)  # type: ignore[union-attr]
                    if problem is None:
                        leaves.add(id(item))
                    else:
                        self.found.append(Diagnostic("bad-constant", problem + self.where, item.span or span))
                elif kind is nodes.Slot:
                    if item.name in slots:  # type: ignore[union-attr]
                        leaves.add(id(item))
                    else:
                        found = self.unknown("unknown-slot", item.name, slots, item.span or span)  # type: ignore[union-attr]
                        self.found.append(found)
                else:
                    below += item.captures  # type: ignore[union-attr]
                    self.closure(item, item.span or span)  # type: ignore[arg-type]
            depth += 1
            if max(depth, deepest) > MAX_NESTING:
                message = f"an expression is nested deeper than {MAX_NESTING}{self.where}"
                self.found.append(Diagnostic("nested-too-deep", message, span))
                return
            level = below
        if len(self.found) == before:
            sound[id(root)] = max(depth, deepest)

    def primitive(self, item: nodes.Prim, span: Span | None) -> None:
        row = PRIMITIVES.get(item.op)
        count = len(item.args)
        if row is None:
            self.found.append(self.unknown("unknown-primitive", item.op, PRIMITIVES, span))
        elif count < row.least or (row.most is not None and count > row.most):
            message = (
                f"`{row.name}` takes {count_words(row.least, row.most, 'operand')}, not {count}{self.where}"
            )
            self.found.append(Diagnostic("operand-count", message, span, help=f"{row.name}({row.operands})"))
        elif item.op == "map" and count % 2:
            message = f"`map` has a key without a value{self.where}"
            self.found.append(Diagnostic("operand-count", message, span))

    def closure(self, item: nodes.Closure, span: Span | None) -> None:
        function = self.functions.get(item.function)
        if function is None:
            self.found.append(self.unknown("unknown-function", item.function, self.functions, span))
        elif len(item.captures) != len(function.captures):
            wanted = count_words(len(function.captures), len(function.captures), "capture")
            message = f"{_name(item.function)} takes {wanted}, not {len(item.captures)}{self.where}"
            self.found.append(Diagnostic("operand-count", message, span))


# The highest limit: beyond it, arithmetic with times and amounts could overflow.
_MOST = 10**15


def _limits_problems(limits: nodes.Limits) -> Iterator[str]:
    for name in ("max_iterations", "max_steps", "timeout_ms"):
        bound = getattr(limits, name)
        if bound is not None and (type(bound) is not int or not 1 <= bound <= _MOST):
            yield f"`{name}` is a whole number from 1 to {_MOST}"
    bounds = {f"budget_{unit}": getattr(limits, f"budget_{unit}") for unit in UNITS}
    budgets: Any = limits.state_budgets
    if not isinstance(budgets, Mapping) or not all(isinstance(given, Mapping) for given in budgets.values()):
        yield "`state_budgets` is a map of states, each with a map of bounds"
        budgets = {}
    for state, given in budgets.items():
        for unit, bound in given.items():
            if unit in UNITS:
                bounds[f"state_budgets.{clean(state, 80)}.{unit}"] = bound
            else:
                yield f"`state_budgets.{clean(state, 80)}` has no unit `{clean(unit, 80)}`"
    for name, bound in bounds.items():
        if bound is None:
            continue
        is_whole = name.endswith(("tokens", "calls"))
        if is_whole and type(bound) is not int:
            yield f"`{name}` is a whole number from 0 to {_MOST}"
        elif type(bound) not in (int, float) or not 0 <= bound <= _MOST:
            yield f"`{name}` is a number from 0 to {_MOST}"


def _name(name: str) -> str:
    return f"`{clean(name, 80)}`"
