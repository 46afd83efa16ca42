"""Patterns of code by which a loop proves that it respects its limits (`limit_proof`).

Predicates on single expressions and instructions; `limit_proof` draws the conclusions for a function.
"""

from __future__ import annotations

from collections import defaultdict

from .analysis import may_fault, slots_read
from .nodes import Branch, Call, Const, Expr, Function, Instruction, Parallel, Perform, Prim, Set, Slot, State

ITERATION, LAP, STEPS = "iteration", "lap", "steps"


def writers(function: Function) -> dict[str, dict[int, list[Set | None]]]:
    """For each slot the states that write it and with what; None is an answer, result or fault."""
    found: dict[str, dict[int, list[Set | None]]] = defaultdict(lambda: defaultdict(list))
    for number, state in enumerate(function.states):
        for instruction in state.body:
            if isinstance(instruction, Set):
                found[instruction.slot][number].append(instruction)
        if isinstance(state.exit, _ANSWERED):
            found[state.exit.slot][number].append(None)
        if state.handler is not None:
            found[state.handler.slot][number].append(None)
    return {slot: dict(states) for slot, states in found.items()}


_ANSWERED = (Call, Perform, Parallel)


def condition(state: State, exit_: Branch) -> Expr | None:
    """What a branch tests, in terms of the slots as they are where the state ends.

    A slot set in the same body means the expression that it was last set to, as long as nothing
    that expression reads has been set since; None where it has.
    """
    condition = exit_.condition
    if not isinstance(condition, Slot):
        return condition
    written: set[str] = set()
    for instruction in reversed(state.body):
        if isinstance(instruction, Set):
            written.add(instruction.slot)
            if instruction.slot == condition.name:
                return None if written.intersection(slots_read(instruction.value)) else instruction.value
    return condition


def is_number(expr: Expr, number: float) -> bool:
    return isinstance(expr, Const) and type(expr.value) in (int, float) and expr.value == number


def is_slot(expr: Expr, slot: str) -> bool:
    return isinstance(expr, Slot) and expr.name == slot


def _operand(expr: Expr | None, op: str, slot: str) -> Expr | None:
    """The second operand of an operation on a slot and one more operand; None for any other expression."""
    if isinstance(expr, Prim) and expr.op == op and len(expr.args) == 2 and is_slot(expr.args[0], slot):
        return expr.args[1]
    return None


def is_bound(test: Expr | None, slot: str, bound: float) -> bool:
    limit = _operand(test, "ge", slot)
    return limit is not None and is_number(limit, bound)


def compared_with_lap(test: Expr | None) -> str | None:
    """The slot that `test` compares with the lap for equality."""
    if isinstance(test, Prim) and test.op == "eq" and len(test.args) == 2:
        for one, other in (test.args, test.args[::-1]):
            if isinstance(one, Slot) and one.name != LAP and is_slot(other, LAP):
                return one.name
    return None


def is_increment(instruction: Set, slot: str) -> bool:
    added = _operand(instruction.value, "add", slot)
    return isinstance(added, Const) and type(added.value) is int and added.value == 1


def is_spending(instruction: Set, slot: str, answers: set[str]) -> bool:
    added = _operand(instruction.value, "add", slot)
    return added is not None and not answers.isdisjoint(slots_read(added))


def is_harmless(instruction: Instruction, counters: tuple[str, ...] = ()) -> bool:
    """Whether an instruction cannot fault, where `counters` are known to hold numbers."""
    if not isinstance(instruction, Set):
        return False  # a note faults on what cannot leave the machine
    counts = instruction.slot in counters and is_increment(instruction, instruction.slot)
    return counts or not may_fault(instruction.value)


def deadline_of(args: Expr) -> Expr | None:
    """The value of `deadline_ms` in the map `args`; None if it is not certain."""
    return field_of(args, "deadline_ms")


def field_of(args: Expr, name: str) -> Expr | None:
    """The value of a key in the map `args`; None if it is not certain."""
    if isinstance(args, Prim) and args.op == "without_nulls":
        args = args.args[0]
    if isinstance(args, Const) and type(args.value) is dict:
        return Const(args.value[name]) if name in args.value else None
    if not isinstance(args, Prim) or args.op != "map":
        return None
    found = []
    for key, value in zip(args.args[::2], args.args[1::2], strict=True):
        if not isinstance(key, Const):
            return None
        if key.value == name:
            found.append(value)
    # A second one would replace the first.
    return found[0] if len(found) == 1 else None
