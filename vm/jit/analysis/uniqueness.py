"""Uniqueness: values that can be changed in place because no other reference to them exists.

Values are immutable (`vm.values`), and a run can be inspected only between states. A list that
grows in each iteration of a loop can therefore be a Python list during the loop, and a map that only one
slot references can be changed in place if that slot is about to be assigned the new map.

Must not contain: code generation (`codegen/instructions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import getrefcount

from ...values import bounds, lists
from ...values.values import Value
from ..model.function import Function, Part
from ..model.trees import Node, trees


# The value of `getrefcount` for an object that only one local of generated code references.
def _alone() -> int:
    value: dict[str, int] = {}
    return getrefcount(value)


ALONE = _alone()


class InPlace:
    """Slots and instructions with in-place updates.

    Attributes:
        growing: parameters whose list only grows from iteration to iteration and is reversed at the end.
        loop_lists: other slots of that sort, in a loop that stores to them; the flag says whether the value
            at the entry can be such a list.
        inlined_lists: parameters like `growing`, of inlined functions that begin with an empty list.
        maps: `put` instructions whose map is dead afterwards: offset → slot of the map.
        boxes: `put` instructions whose map is the content of a box that is assigned the new map: offset →
            slots of the box and of the new map, -1 for none.
    """

    def __init__(self, function: Function) -> None:
        self.growing: set[int] = set()
        self.loop_lists: dict[int, bool] = {}
        self.inlined_lists: set[int] = set()
        self.maps: dict[int, int] = {}
        self.boxes: dict[int, tuple[int, int]] = {}
        used = {function.image.constants[words[0]] for words in function.primitives()}
        if function.code.handlers or not used & {"put", "cons"}:
            return
        self.function = function
        states = trees(function)
        for nodes in states:
            self.boxes |= _boxed_puts(nodes)
        for state, nodes in enumerate(states):
            self.maps.update(self.final_puts(state, nodes))
        if any(function.restarts):
            own = [number for number in range(len(states)) if function.part_of[number].call < 0]
            self.growing = {
                slot
                for slot in range(function.code.parameters)
                if all(self.only_grows(slot, state, states[state]) for state in own)
                and any(_is_cons(node, slot) for state in own for node in states[state])
            }
        stores = [node for nodes in states for node in nodes if node.name == "STORE"]
        if len([part for part in function.parts if part.call < 0]) > 1:
            return  # a function that restarts can be entered from another one (`Function.merge`)
        for slot in {node.slot for node in stores if _is_cons(node.operands[0], node.slot)}:
            is_given = self.may_be_read_unset(slot, states, True)
            is_own = slot < len(function.code.slots)
            if (is_given and not is_own) or self.may_be_read_unset(slot, states, False):
                continue
            if self.only_grows_in_loop(slot, states):
                self.loop_lists[slot] = is_given
        for part in function.parts:
            if part.call >= 0 and part.leaf_states is None:
                self.inlined_lists.update(self.inlined_growing(part, states))

    # --- lists ------------------------------------------------------------------------------

    def inlined_growing(self, part: Part, states: list[list[Node]]) -> Iterator[int]:
        """The parameters of an inlined function that begin with an empty, growing list."""
        own = [state for state, other in enumerate(self.function.part_of) if other is part]
        if not any(self.function.restarts[state] for state in own):
            return
        given = states[part.call][-1].operands[-part.code.parameters :] if part.code.parameters else []
        for number, node in enumerate(given):
            slot = part.slot + number
            if (
                self.is_nil(node)
                and all(self.only_grows(slot, state, states[state], part.slot) for state in own)
                and any(_is_cons(node, slot) for state in own for node in states[state])
            ):
                yield slot

    def only_grows(self, slot: int, state: int, nodes: list[Node], before: int = 0) -> bool:
        """Whether a state uses a parameter only to prepend an item for the next iteration.

        before: the number of slots before those of the parameter's function.
        """
        is_restart = self.function.restarts[state]
        # The extended list, and the slot that contains it until the next iteration begins.
        grown: Node | None = None
        held = -1
        if self.function.result_slot(state) == slot:
            return False
        for node in nodes:
            if node.name == "STORE":
                (value,) = node.operands
                if value is grown and grown is not None and held < 0 and node.slot != slot:
                    held = node.slot
                    continue
                if node.slot in (slot, held):
                    return False
            first = len(node.operands) - node.words[0] if is_restart and node is nodes[-1] else None
            for number, one in enumerate(node.operands):
                is_old = one.loads(slot)
                is_new = grown is not None and (one is grown or one.loads(held))
                if first is not None and (is_old or is_new or number == first + slot - before):
                    if number != first + slot - before or not (is_new or (is_old and grown is None)):
                        return False
                elif is_old and grown is None and _is_cons(node, slot) and number == 1:
                    grown = node
                elif is_new or (is_old and (node.name != "reverse" or grown is not None)):
                    return False
        return grown is None or is_restart

    def only_grows_in_loop(self, slot: int, states: list[list[Node]]) -> bool:
        """Whether all stores to a slot start a new list or prepend an item."""
        function = self.function
        part = next(part for part in reversed(function.parts) if part.slot <= slot)
        if part.leaf_states is not None or slot - part.slot < part.code.parameters + part.code.captures:
            return False
        for state, nodes in enumerate(states):
            if function.result_slot(state) == slot:
                return False
            stored = [node.operands[0] for node in nodes if node.name == "STORE" and node.slot == slot]
            if not all(_is_cons(node, slot) or self.is_nil(node) for node in stored):
                return False
            for node in nodes:
                is_grown = _is_cons(node, slot) and any(node is one for one in stored)
                for number, one in enumerate(node.operands):
                    if one.loads(slot) and node.name != "reverse" and not (is_grown and number == 1):
                        return False
        return True

    def is_nil(self, node: Node) -> bool:
        return node.name == "CONST" and self.function.image.constants[node.slot] in (None, ())

    def may_be_read_unset(self, slot: int, states: list[list[Node]], first: bool) -> bool:
        """Whether a slot can be read before its first store. first: the slot is unassigned at the entry."""
        function = self.function
        part = next(part for part in reversed(function.parts) if part.slot <= slot)
        unset = {function.start: first or part.call >= 0}
        todo = [function.start]
        while todo:
            state = todo.pop()
            is_empty = unset[state]
            for node in states[state]:
                if is_empty and any(one.loads(slot) for one in node.operands):
                    return True
                if node.name == "STORE" and node.slot == slot:
                    is_empty = False
            for target in function.edges[state]:
                is_begun = target == part.state and (
                    function.restarts[state] or function.part_of[state] is not part
                )
                if unset.get(target) is None or (not unset[target] and (is_empty or is_begun)):
                    unset[target] = is_empty or is_begun
                    todo.append(target)
        return False

    # --- maps -------------------------------------------------------------------------------

    def final_puts(self, state: int, nodes: list[Node]) -> Iterator[tuple[int, int]]:
        """The `put` instructions of a state whose map slot is dead afterwards, each with that slot."""
        part = self.function.part_of[state]
        is_end = nodes[-1].name in ("RETURN", "TAILCALL")
        parameters = range(part.slot, part.slot + part.code.parameters)
        for index, node in enumerate(nodes):
            if node.name != "put" or node.operands[0].name != "LOAD":
                continue
            slot = node.operands[0].slot
            later = nodes[index + 1 :]
            if any(one.mentions(slot) for one in node.below) or any(
                one.loads(slot) for one in node.operands[1:]
            ):
                continue
            if any(one.loads(slot) for one in later):
                continue
            is_stored = any(one.name == "STORE" and one.slot == slot for one in later)
            if is_stored or (is_end and (not self.function.restarts[state] or slot in parameters)):
                yield node.offset, slot


def _boxed_puts(nodes: list[Node]) -> dict[int, tuple[int, int]]:
    """The `put` instructions of a state between `unbox` and SETBOX of the same box, directly or through a
    slot that stores the new map because it is used again.
    """
    found = {}
    for index, node in enumerate(nodes):
        if node.name != "put" or node.operands[0].name not in ("unbox", "unbox_set"):
            continue
        (box,) = node.operands[0].operands[:1]
        after = nodes[index + 1 :]
        kept = -1
        if after[0].name == "STORE" and not node.below:
            kept = after[0].slot
            after = after[3:]
            if any(one.loads(kept) for one in node.operands) or box.loads(kept):
                continue
        elif len(node.below) != 1:
            continue
        if box.name == "LOAD" and after and after[0].name == "SETBOX":
            place, value = after[0].operands
            if place.loads(box.slot) and (value is node or value.loads(kept)):
                found[node.offset] = box.slot, kept
    return found


def _is_cons(node: Node, slot: int) -> bool:
    return node.name == "cons" and node.operands[1].loads(slot)


# --- lists that grow, as texts call for them ------------------------------------------------------


def grow(base: Value) -> tuple[list[Value], int]:
    """The Python list for a growing list: the prepended items so far, after `base`; and its maximal
    length.
    """
    return [base], bounds.MAX_ITEMS - (0 if base is None else lists.length(base))


def finished_list(items: list[Value] | Value) -> Value:
    """The list value of a growing list; other values are unchanged."""
    if type(items) is not list:
        return items
    return lists.pairs(items[:0:-1], items[0] or ()) if len(items) > 1 else items[0]


def reversed_list(items: list[Value]) -> Value:
    """The reversed list value of a growing list."""
    if items[0]:
        return (*lists.to_tuple(items[0])[::-1], *items[1:])
    return tuple(items[1:])


def raise_full() -> None:
    bounds.check_items(bounds.MAX_ITEMS + 1)
