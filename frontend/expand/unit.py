"""State of one body under expansion, and the variables that are used before they have a value."""

from __future__ import annotations

from ...ir.spans import Span
from ..core.library import LIBRARY, Primitive
from ..core.nodes import Apply, Binding, Core, Lambda, Library, children
from ..core.scope import Frame, Identifier, Scope


class Unit:
    """A body under expansion.

    index: the current entry. first_use: for variables that a function uses before they have a
    value, the first entry with such a function. positions: the entry that gives a variable its
    value. entries: the expanded entries.
    """

    __slots__ = (
        "defined", "entries", "first_use", "frame", "imported", "index", "is_top", "positions", "scope",
    )  # fmt: skip

    def __init__(self, scope: Scope, *, is_top: bool = False) -> None:
        self.scope = scope
        self.is_top = is_top
        self.frame = scope.frame = Frame(scope, scope.function, is_top)
        self.index = 0
        self.first_use: dict[Binding, int] = {}
        self.positions: dict[Binding, int] = {}
        self.defined: dict[Identifier, Span | None] = {}
        self.imported: dict[Identifier, str] = {}
        self.entries: list[tuple[Binding, Core]] = []


def mark_used_early(unit: Unit) -> None:
    """Mark variables that a function may read before they have a value.

    That needs a call, between the first function that uses the variable and its definition.
    """
    if not unit.first_use:
        return
    calls = [0]
    for _, value in unit.entries:
        calls.append(calls[-1] + _may_call(value))
    for binding, first in unit.first_use.items():
        last = unit.positions.get(binding)
        if last is not None and calls[last + 1] > calls[first]:
            binding.is_early = True


def _may_call(value: Core) -> bool:
    """Whether evaluating something may call a function of the program."""
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, Apply):
            callee = node.callee
            if not (isinstance(callee, Library) and isinstance(LIBRARY.get(callee.name), Primitive)):
                return True
        if not isinstance(node, Lambda):
            todo.extend(children(node))
    return False
