"""The proof that a loop keeps to the limits its meta declares, whatever the world answers.

The rules and why they suffice are in `spec/ir.md` (Limits). In short: `iteration` is compared with
its bound and then counted on every way round, except on ways that a state takes at most once a lap;
`steps` likewise; whatever waits is given the deadline; what is spent is compared with the budget
before more is spent. What a loop calls is `called`'s business.

Takes a well-formed program (`verify`). Knows the slot names that `spec/ir.md` reserves, and nothing
of how a frontend comes to use them.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import nodes
from .analysis import cycles, graph
from .call_limits import loops_of, verify_called
from .diagnostics import Diagnostic, DiagnosticId, clean
from .effects import EFFECTS, SPENDERS, UNITS
from .shapes import (
    ITERATION,
    LAP,
    STEPS,
    compared_with_lap,
    condition,
    is_bound,
    is_harmless,
    is_increment,
    is_number,
    is_spending,
    writers,
)

_SHOWN_STATES = 8

# What is known of the price of the last call that spent: it was compared with the budget, it was
# added to what is spent, it is in the call's answer, or the answer is gone.
_CLEAR, _ADDED, _OWED, _LOST = range(4)

Edge = tuple[int, int]


def verify_limits(program: nodes.Program) -> Iterator[Diagnostic]:
    """A diagnostic for each way round a limit of one of the program's loops."""
    yield from verify_called(program)
    for loop in loops_of(program):
        proof = _Proof(program.function(loop.function), loop)
        yield from proof.iterations()
        yield from proof.steps()
        yield from proof.time()
        yield from proof.budgets()


# --- a loop's function ------------------------------------------------------------------------


class _Proof:
    """What holds of the graph of a loop's function. An edge is (state, position among its ways)."""

    def __init__(self, function: nodes.Function, meta: nodes.InnerLoop) -> None:
        self.function = function
        self.meta = meta
        self.states = function.states
        self.ways = graph(function)
        self.edges: list[tuple[Edge, int]] = [
            ((number, position), target)
            for number, targets in enumerate(self.ways)
            for position, target in enumerate(targets)
        ]
        self.writers = writers(function)
        # Slots that hold the answer to a call that spends.
        self.answers = {
            state.exit.slot
            for state in self.states
            if isinstance(state.exit, nodes.Perform) and state.exit.kind in SPENDERS
        }
        self.conditions = {
            number: condition(state, state.exit)
            for number, state in enumerate(self.states)
            if isinstance(state.exit, nodes.Branch)
        }

    def without(self, edges: set[Edge]) -> list[list[int]]:
        touched = {number for number, _ in edges}
        return [
            [target for position, target in enumerate(targets) if (number, position) not in edges]
            if number in touched
            else targets
            for number, targets in enumerate(self.ways)
        ]

    def below(self, slot: str, bound: float | None) -> set[Edge]:
        """The `otherwise` edges of branches on `ge(slot, bound)`: there the bound is not reached."""
        if bound is None:
            return set()
        return {(number, 1) for number, test in self.conditions.items() if is_bound(test, slot, bound)}

    # --- iterations -------------------------------------------------------------------------

    def iterations(self) -> Iterator[Diagnostic]:
        bound = self.meta.limits.max_iterations
        counting: set[int] = set()
        resets: set[int] = set()
        for number in sorted({*self.writers.get(ITERATION, ()), *self.writers.get(LAP, ())}):
            state = self.states[number]
            if number == 0:
                yield from self.initial(ITERATION, 1)
                yield from self.initial(LAP, None)
            elif self.adds_one(number, LAP) and self.adds_one(number, ITERATION):
                counting.add(number)
                yield from self.counts_surely(state, (ITERATION, LAP))
            elif self.meta.maintain and self.adds_one(number, LAP) and self.is_set_to_one(number):
                resets.add(number)
            else:
                yield _problem(
                    "counter-set", f"sets `{ITERATION}` or `{LAP}` in a way that no limit allows", state,
                    f"`{ITERATION} = add({ITERATION}, 1)` and `{LAP} = add({LAP}, 1)` go together",
                )  # fmt: skip
        if bound is None and self.meta.limits.max_steps is not None:
            return  # the bound on steps holds on every cycle
        counted = self.below(ITERATION, bound)
        yield from self.only_counted(counting, counted, ITERATION)
        visits = self.first_visits()
        if counting or resets or visits:
            yield from self.must_begin((ITERATION, LAP))
        allowed = {edge for edge in counted if self.target(edge) in counting} | visits
        allowed |= {edge for edge, target in self.edges if target in resets}
        for cycle in cycles(self.without(allowed)):
            yield _cycle(
                "unbounded-cycle", "nothing bounds the iterations of this cycle", self.function, cycle
            )

    def first_visits(self) -> set[Edge]:
        """Edges taken at most once a lap: they lead from `branch eq(seen, lap)` to where seen is set."""
        found = set()
        for number, test in self.conditions.items():
            seen = compared_with_lap(test)
            target = self.target((number, 1))
            if seen is None or self.writers.get(seen, {}).keys() != {target}:
                continue
            sets = self.writers[seen][target]
            if (
                len(sets) == 1
                and sets[0] is not None
                and self.is_sure(self.states[target], sets[0], (ITERATION, LAP))
            ):
                value = sets[0].value
                if isinstance(value, nodes.Slot) and value.name == LAP:
                    found.add((number, 1))
        return found

    # --- steps ------------------------------------------------------------------------------

    def steps(self) -> Iterator[Diagnostic]:
        bound = self.meta.limits.max_steps
        if bound is None:
            return
        counting: set[int] = set()
        for number in sorted(self.writers.get(STEPS, ())):
            if number == 0:
                yield from self.initial(STEPS, 0)
            elif self.adds_one(number, STEPS):
                counting.add(number)
                yield from self.counts_surely(self.states[number], (STEPS,))
            else:
                yield _problem(
                    "counter-set", f"sets `{STEPS}` in a way that no limit allows", self.states[number],
                    f"`{STEPS} = add({STEPS}, 1)` counts a step",
                )  # fmt: skip
        counted = self.below(STEPS, bound)
        yield from self.only_counted(counting, counted, STEPS)
        if counting:
            yield from self.must_begin((STEPS,))
        allowed = {edge for edge in counted if self.target(edge) in counting}
        for cycle in cycles(self.without(allowed)):
            yield _cycle("unbounded-cycle", "nothing bounds the steps of this cycle", self.function, cycle)

    # --- counters ---------------------------------------------------------------------------

    def target(self, edge: Edge) -> int:
        return self.ways[edge[0]][edge[1]]

    def adds_one(self, number: int, slot: str) -> bool:
        """Whether all that a state does with `slot` is to add one to it, once."""
        sets = self.writers.get(slot, {}).get(number, ())
        return len(sets) == 1 and sets[0] is not None and is_increment(sets[0], slot)

    def is_set_to_one(self, number: int) -> bool:
        sets = self.writers.get(ITERATION, {}).get(number, ())
        return len(sets) == 1 and sets[0] is not None and is_number(sets[0].value, 1)

    def initial(self, slot: str, least: int | None) -> Iterator[Diagnostic]:
        """The entry state sets a counter to whole numbers from `least` on."""
        for instruction in self.writers.get(slot, {}).get(0, ()):
            value = instruction.value if instruction is not None else None
            number = value.value if isinstance(value, nodes.Const) else None
            if type(number) is not int or (least is not None and number < least):
                wanted = "a whole number" if least is None else f"a whole number from {least} on"
                yield _problem("counter-set", f"must set `{slot}` to {wanted}", self.states[0])

    def must_begin(self, slots: tuple[str, ...]) -> Iterator[Diagnostic]:
        """Counters have their first value before anything else happens, and only once."""
        entry = self.states[0]
        for slot in slots:
            sets = self.writers.get(slot, {}).get(0, [])
            if not sets or sets[0] is None or not self.is_sure(entry, sets[0], ()):
                message = f"must set `{slot}` before anything in it can fault"
                yield _problem("counter-unset", message, entry)
        for (number, _), target in self.edges:
            if target == 0:
                message = f"goes back to {_name(entry)}, where {_list(slots, ' and ')} begin again"
                yield _problem("counter-reset", message, self.states[number])
                return

    def counts_surely(self, state: nodes.State, slots: tuple[str, ...]) -> Iterator[Diagnostic]:
        """Where a fault can be caught, counting comes before anything that can fault."""
        for instruction in state.body:
            if not isinstance(instruction, nodes.Set) or instruction.slot not in slots:
                continue
            if not self.is_sure(state, instruction, slots):
                message = f"can fault before `{instruction.slot}` is counted, and the handler continues"
                yield _problem("counter-skipped", message, state)
                return

    def is_sure(self, state: nodes.State, wanted: nodes.Instruction, counters: tuple[str, ...]) -> bool:
        """Whether control that enters `state` and leaves it to another state has done `wanted`.

        `counters` are the slots this is part of the proof of: they hold numbers by the time.
        """
        if state.handler is None:
            return any(instruction is wanted for instruction in state.body)
        for instruction in state.body:
            if instruction is wanted:
                return True
            if not is_harmless(instruction, counters):
                return False
        return False

    def only_counted(self, counting: set[int], counted: set[Edge], slot: str) -> Iterator[Diagnostic]:
        for edge, target in self.edges:
            if target in counting and edge not in counted:
                yield _problem(
                    "uncounted-way",
                    f"goes to {_name(self.states[target])}, which counts `{slot}`, without comparing it"
                    " with the limit",
                    self.states[edge[0]],
                )

    # --- time -------------------------------------------------------------------------------

    def time(self) -> Iterator[Diagnostic]:
        """Every cycle waits under the deadline or asks for the time."""
        if self.meta.limits.timeout_ms is None:
            return
        allowed = {
            (number, 0)
            for number, state in enumerate(self.states)
            if isinstance(state.exit, nodes.Perform)
            and (EFFECTS[state.exit.kind].waits or state.exit.kind == "clock")
        }
        for cycle in cycles(self.without(allowed)):
            yield _cycle("unbounded-time", "this cycle never sees the clock", self.function, cycle)

    # --- budgets ----------------------------------------------------------------------------

    def budgets(self) -> Iterator[Diagnostic]:
        limits = self.meta.limits
        for unit in UNITS:
            bound = getattr(limits, f"budget_{unit}")
            if bound is not None:
                yield from self.budget(f"spent.{unit}", bound)
        for state, bounds in limits.state_budgets.items():
            for unit, bound in bounds.items():
                yield from self.budget(f"spent.{unit}.{state}", bound, state)

    def budget(self, slot: str, bound: float, within: str | None = None) -> Iterator[Diagnostic]:
        """within: the author's state whose calls are counted, None for all of the loop."""
        is_count = slot.split(".")[1] == "calls"
        for number, sets in sorted(self.writers.get(slot, {}).items()):
            for instruction in sets:
                starts = number == 0 and instruction is not None and is_number(instruction.value, 0)
                counts = is_count and instruction is not None and is_increment(instruction, slot)
                spends = instruction is not None and is_spending(instruction, slot, self.answers)
                if not starts and not counts and not spends:
                    yield _problem(
                        "counter-set", f"sets `{slot}` in a way that no budget allows", self.states[number],
                        f"`{slot} = add({slot}, …)` adds what the answer to a call reported",
                    )  # fmt: skip
        if any(target == 0 for _, target in self.edges) and 0 in self.writers.get(slot, {}):
            yield _problem("counter-reset", f"is gone back to, and `{slot}` begins again", self.states[0])
        checked = self.below(slot, bound)
        facts = [-1] * len(self.states)
        facts[0] = _CLEAR
        todo = [0]
        overspent: set[int] = set()
        while todo:
            number = todo.pop()
            state = self.states[number]
            after, caught = self.after_body(state, slot, facts[number])
            spends = isinstance(state.exit, nodes.Perform) and state.exit.kind in SPENDERS
            spends = spends and (within is None or _is_part(state, within))
            if spends and after != _CLEAR:
                overspent.add(number)
            last = len(self.ways[number]) - 1
            for position, target in enumerate(self.ways[number]):
                fact = after
                if state.handler is not None and position == last:
                    fact = caught
                elif spends:
                    fact = _OWED
                elif (
                    isinstance(state.exit, nodes.Call | nodes.Perform | nodes.Parallel)
                    and state.exit.slot in self.answers
                ):
                    fact = _LOST if after == _OWED else after
                elif (number, position) in checked and after == _ADDED:
                    fact = _CLEAR
                if fact > facts[target]:
                    facts[target] = fact
                    todo.append(target)
        for number in sorted(overspent):
            message = f"may spend again before `{slot}` is added to and compared with the budget"
            yield _problem("unbounded-budget", message, self.states[number])

    def after_body(self, state: nodes.State, slot: str, before: int) -> tuple[int, int]:
        """What is known of a call's price at a state's exit, and where a fault in it is caught."""
        if before != _OWED:
            return before, before
        after = before
        for instruction in state.body:
            if isinstance(instruction, nodes.Set) and after == _OWED:
                if instruction.slot == slot:
                    after = _ADDED
                elif instruction.slot in self.answers:
                    after = _LOST
        if self.spends_first(state, slot):
            return after, _ADDED
        kept = after != _LOST and (state.handler is None or state.handler.slot not in self.answers)
        return after, _OWED if kept else _LOST

    def spends_first(self, state: nodes.State, slot: str) -> bool:
        """Whether adding to `slot` is tried before anything else can fault.

        What a call reports need not be a number; then adding it faults, and that is as far as a
        program can go.
        """
        for instruction in state.body:
            if isinstance(instruction, nodes.Set) and instruction.slot == slot:
                return True
            spends = isinstance(instruction, nodes.Set) and instruction.slot.startswith("spent.")
            if not spends and not is_harmless(instruction):
                return False
        return False


# --- wording ----------------------------------------------------------------------------------


def _name(state: nodes.State) -> str:
    return f"`{clean(state.name, 80)}`"


def _list(names: list[str] | tuple[str, ...], separator: str = " → ") -> str:
    shown = [f"`{clean(name, 80)}`" for name in names[:_SHOWN_STATES]]
    if len(names) > _SHOWN_STATES:
        shown.append(f"… ({len(names) - _SHOWN_STATES} more)")
    return separator.join(shown)


def _is_part(state: nodes.State, name: str) -> bool:
    """Whether a state is, or is a part of, the author's state of that name."""
    return state.name == name or state.name.startswith(f"{name}/")


def _problem(id: DiagnosticId, what: str, state: nodes.State, help_: str | None = None) -> Diagnostic:
    return Diagnostic(id, f"state {_name(state)} {what}", state.exit.span or state.span, help=help_)


def _cycle(id: DiagnosticId, what: str, function: nodes.Function, cycle: list[int]) -> Diagnostic:
    names = [function.states[number].name for number in cycle]
    return Diagnostic(id, f"{what}: {_list([*names, names[0]])}", function.states[cycle[0]].span)
