"""Type flags: locals that record whether a slot contains an integer, or a pair.

If the type of a slot's value is tested more often than the slot changes, it is tested once, when the slot is
assigned. A true flag is reliable; a false flag means nothing, because the generic code of a primitive accepts
any type.
"""

from __future__ import annotations

import re
from collections.abc import Container

from ..analysis.liveness import Liveness
from ..analysis.type_inference import WANTS
from ..model.function import Function
from ..model.trees import Node
from ..model.type_lattice import INTEGERS, Kind
from .python_text import Statement

# Primitives that test their operands for integers, or for pairs.
_TESTED = {name: "int" for name, kind in WANTS.items() if kind == "int"}
_TESTED |= {"first": "Pair", "rest": "Pair", "is_nil": "Pair"}
_LETTERS = {"int": "t", "Pair": "p"}
_BOTH = re.compile(r"type\((\w+)\) is int is type\((\w+)\)")
_NIL = re.compile(r"(\w+) is NIL or \1 is None")


class Flags:
    """The flags of a text. names: flag by the local of the slot and the type. Empty without a function."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], str] = {}

    def select(self, live: Liveness, nodes: list[list[Node]], excluded: Container[str]) -> None:
        """Select the slots for which a flag is worthwhile. Slots whose locals change in other ways
        (`excluded`), and slots that can be tested before their first assignment, get none. nodes: the
        function's `trees`.
        """
        function, known = live.function, live.known
        tests: dict[tuple[int, str], int] = {}
        assignments: dict[int, int] = {}
        for state in live.graph.order:
            stored: set[int] = set()
            for node in nodes[state]:
                if node.name == "STORE":
                    stored.add(live.root[node.slot])
                kind = _TESTED.get(node.name)
                for one in node.operands if kind is not None else ():
                    if one.name != "LOAD":
                        continue
                    slot = live.root[one.slot]
                    if slot in stored or known.at_entry[state][one.slot] == "any":
                        tests[slot, str(kind)] = tests.get((slot, str(kind)), 0) + 1
            for slot in stored | self.assignments(function, live, state, nodes[state][-1]):
                assignments[slot] = assignments.get(slot, 0) + 1
        slots_to_clear = {slot for part in function.parts for slot in part.slots_to_clear}
        for (slot, type_), count in tests.items():
            name = function.names[slot]
            unsure = (
                live.live_in[function.start] >> slot & 1 or slot in slots_to_clear or slot not in assignments
            )
            if count > max(1, assignments.get(slot, 0)) and not unsure and name not in excluded:
                self.names[name, type_] = f"{_LETTERS[type_]}{slot}"

    def assignments(self, function: Function, live: Liveness, state: int, last: Node) -> set[int]:
        """The slots that the exit of a state assigns."""
        result = function.result_slot(state)
        part = function.part_of[state] if function.restarts[state] else function.inlined_calls.get(state)
        if part is None:
            return set() if result is None else {live.root[result]}
        slots = live.slots(part)[: part.code.parameters + part.code.captures]
        assignments = (
            last.operands[-part.code.parameters :]
            if function.restarts[state] and part.code.parameters
            else []
        )
        same = {slot for slot, node in zip(slots, assignments, strict=False) if node.loads(slot)}
        return {slot for slot in slots if live.root[slot] == slot} - same

    def replace_tests(self, text: str) -> str:
        """A condition or a test with types replaced by flags."""
        if not self.names:
            return text
        both = _BOTH.fullmatch(text) or _BOTH.match(text)
        if both and any((name, "int") in self.names for name in both.groups()):
            text = _BOTH.sub(r"type(\1) is int and type(\2) is int", text, count=1)
        nil = _NIL.fullmatch(text)
        if nil and (flag := self.names.get((nil[1], "Pair"))):
            return f"not {flag} and ({text})"
        for (name, type_), flag in self.names.items():
            text = text.replace(f"type({name}) is {type_}", flag)
        return text

    def update(self, name: str, kind: Kind) -> list[Statement]:
        """The statements that follow an assignment to a local."""
        found: list[Statement] = []
        for type_ in _LETTERS:
            flag = self.names.get((name, type_))
            if flag is not None:
                text = f"type({name}) is {type_}"
                if kind != "any":
                    text = str(kind in INTEGERS if type_ == "int" else kind == "pair")
                found.append(f"{flag} = {text}")
        return found
