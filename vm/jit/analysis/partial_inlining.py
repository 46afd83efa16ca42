"""Partial inlining: the part of a recursive function that returns without a call.

A recursive function is inlined only up to this part: the conditions that it tests first, and the states
that return immediately. On all other paths the function is called, and tests its conditions again. The
conditions must therefore be pure and must not fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.function import Function
from ..model.type_lattice import INTEGERS, Kind, of_result
from .type_inference import KnownTypes

# Limits of the inlined part: number of states, and words of code.
_MAX_STATES = 6
_MAX_WORDS = 60
# Primitives that cannot fault: for integers, and for any values.
_SAFE_FOR_INTEGERS = frozenset(
    {
        "add",
        "sub",
        "num_eq",
        "lt",
        "le",
        "gt",
        "ge",
        "is_zero",
        "is_positive",
        "is_negative",
        "is_even",
        "is_odd",
    }
)
_SAFE_FOR_ALL = frozenset(
    {
        "eq",
        "not",
        "is_null",
        "is_nil",
        "is_string",
        "is_map",
        "is_symbol",
        "is_boolean",
        "is_function",
        "is_pair",
    }
    | {"is_list", "select"}
)


def find_leaves(
    function: Function, known: KnownTypes, constants: Sequence[Kind]
) -> tuple[set[int], set[int]] | None:
    """The states that test conditions, and those that return; None if partial inlining does not apply."""
    tests: set[int] = set()
    leaves: set[int] = set()
    others: set[int] = set()
    todo = [0]
    while todo:
        state = todo.pop()
        if state in tests | leaves | others:
            continue
        path = _path_to_return(function, state, set())
        if path is not None and state:
            leaves |= path
        elif len(tests) < _MAX_STATES and _is_pure_test(function, state, known, constants):
            tests.add(state)
            todo += function.edges[state]
        else:
            others.add(state)
    # A state cannot be in both sets: it would be entered with and without its tick.
    if not leaves or not others or leaves & (tests | others):
        return None
    words = sum(function.code.bounds(state)[1] - function.code.bounds(state)[0] for state in tests | leaves)
    return (tests, leaves) if words <= _MAX_WORDS else None


def _path_to_return(function: Function, state: int, seen: set[int]) -> set[int] | None:
    """The states from `state` on, if they return without calls or back edges and read only slots that they
    store.
    """
    if state in seen or len(seen) > _MAX_STATES:
        return None
    instructions = function.states[state]
    stored: set[int] = set()
    given = function.code.parameters + function.code.captures
    for _, row, words in instructions:
        if row.name == "STORE":
            if words[0] < given:
                return None
            stored.add(words[0])
        elif row.name == "LOAD" and words[0] >= given and words[0] not in stored:
            return None
    found = {state}
    match instructions[-1][1].name:
        case "RETURN" | "FAIL":
            return found
        case "JUMP" | "BRANCH":
            for target in function.edges[state]:
                path = _path_to_return(function, target, seen | found) if target > state else None
                if path is None:
                    return None
                found |= path
            return found
        case _:
            return None


def _is_pure_test(function: Function, state: int, known: KnownTypes, constants: Sequence[Kind]) -> bool:
    """Whether a state only selects its successor and cannot fault."""
    before = known.at_entry.get(state)
    if before is None or any(target <= state for target in function.edges[state]):
        return False
    stack: list[Kind] = []
    for _, row, words in function.states[state][:-1]:
        match row.name:
            case "LOAD":
                stack.append(before[words[0]])
            case "CONST":
                stack.append(constants[words[0]])
            case "PRIM":
                name = function.image.constants[words[0]]
                taken = stack[len(stack) - words[1] :]
                del stack[len(stack) - words[1] :]
                if (name in _SAFE_FOR_INTEGERS and INTEGERS.issuperset(taken)) or name in _SAFE_FOR_ALL:
                    stack.append(of_result(name, taken))
                else:
                    return False
            case _:
                return False
    return function.states[state][-1][1].name in ("BRANCH", "JUMP")
