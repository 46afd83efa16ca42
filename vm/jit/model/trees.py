"""Expression trees: the instructions of a state, each with its operands."""

from __future__ import annotations

from collections.abc import Iterator

from .function import Function


class Node:
    """An instruction, its operands, and the operand stack below them."""

    __slots__ = ("below", "name", "offset", "operands", "words")

    def __init__(
        self, offset: int, name: str, words: tuple[int, ...], operands: list[Node], below: list[Node]
    ) -> None:
        self.offset = offset
        self.name = name
        self.words = words
        self.operands = operands
        self.below = below

    @property
    def slot(self) -> int:
        return self.words[0]

    def loads(self, slot: int) -> bool:
        return self.name == "LOAD" and self.words[0] == slot

    def all(self) -> Iterator[Node]:
        """The node and all nodes of its operands."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo += node.operands

    def mentions(self, slot: int) -> bool:
        return any(node.loads(slot) for node in self.all())


def trees(function: Function) -> list[list[Node]]:
    """The instruction trees of each state, the exit last. A primitive is named directly, without PRIM."""
    if len(function.trees) == len(function.states):
        return function.trees
    constants = function.image.constants
    states = function.trees = []
    for instructions in function.states:
        found: list[Node] = []
        stack: list[Node] = []
        for offset, row, words in instructions:
            count = len(stack) if row.is_exit else row.popped(words)
            taken = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            name = str(constants[words[0]]) if row.name == "PRIM" else row.name
            found.append(Node(offset, name, words, taken, list(stack)))
            if row.pushes:
                stack.append(found[-1])
        states.append(found)
    return states
