"""Data: the atoms and forms that S-expression text is read as.

A datum has a position: in the text or, when a form created it, in the text it was created from. Data
are compared without their positions. They can be deep, so nothing here recurses. Must not contain:
reading (`reader`) and printing (`printer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ...ir.constants import Symbol
from ...ir.spans import Lines, Span

Value: TypeAlias = bool | int | float | str | Symbol | None


# The forms that a mark is short for.
_MARKED = frozenset(map(Symbol, ("quote", "quasiquote", "unquote", "unquote-splicing")))
# A position: a span, or lines with two offsets. Spans are computed on demand, because most are not needed.
Place: TypeAlias = Span | tuple[Lines, int, int] | None


class _Placed:
    """Common part of atoms and forms, which are immutable."""

    __slots__ = ("_place",)
    _place: Place

    @property
    def span(self) -> Span | None:
        place = self._place
        if type(place) is tuple:
            lines, start, end = place
            span = self._place = lines.span(start, end)
            return span
        assert not isinstance(place, tuple)
        return place

    @property
    def place(self) -> Place:
        """The position, for data created from this one; cheaper than `span`."""
        return self._place

    def __eq__(self, other: object) -> bool:
        if not isinstance(self, Datum) or not isinstance(other, Datum):
            return NotImplemented
        return _is_equal(self, other)

    def __hash__(self) -> int:
        # Forms that differ at a deeper level share a hash, which is harmless.
        if isinstance(self, Form):
            return hash((len(self.items), self.tail is None))
        assert isinstance(self, Atom)
        value = self.value
        return hash((type(value), value if value == value else "nan"))

    def __repr__(self) -> str:
        if isinstance(self, Form):
            return f"<form of {len(self.items)} at {self.span}>"
        assert isinstance(self, Atom)
        return f"<atom {self.value!r:.200} at {self.span}>"


class Atom(_Placed):
    """`null`, a boolean, a number, a string or a symbol: `value` is what it is to the machine."""

    __slots__ = ("value",)
    value: Value

    def __init__(self, value: Value, place: Place = None) -> None:
        self.value = value
        self._place = place


class Form(_Placed):
    """A list: the data between two brackets. The empty list is `nil`.

    items: its data in order. tail: the `Atom` after a dot, in `(a . more)`; None in a proper list. A form
    after a dot is appended to the list, so a tail is never a form. bracket: the opening bracket, "(" or
    "["; not compared.
    """

    __slots__ = ("bracket", "items", "tail")
    items: tuple[Datum, ...]
    tail: Atom | None
    bracket: str

    def __init__(
        self, items: tuple[Datum, ...], place: Place = None, bracket: str = "(", tail: Datum | None = None
    ) -> None:
        if tail is not None:
            if not items:
                raise ValueError("a tail needs an item before it")
            if isinstance(tail, Form):
                items += tail.items
                tail = tail.tail
        assert tail is None or isinstance(tail, Atom)
        self.items = items
        self._place = place
        self.bracket = bracket
        self.tail = tail

    @property
    def head(self) -> Symbol | None:
        """The symbol the form begins with, None where it begins with something else."""
        items = self.items
        if items and type(items[0]) is Atom:
            value = items[0].value
            return value if isinstance(value, Symbol) else None
        return None

    @property
    def is_marked(self) -> bool:
        """Whether it was written with a mark, as in `'x`, so that it has no brackets of its own."""
        if len(self.items) != 2 or self.head not in _MARKED:
            return False
        span, head = self.span, self.items[0].span
        return span is not None and head is not None and (span.line, span.column) == (head.line, head.column)

    def __len__(self) -> int:
        return len(self.items)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Datum]:
        return iter(self.items)


Datum: TypeAlias = Atom | Form


def _is_equal(left: Datum, right: Datum) -> bool:
    pairs = [(left, right)]
    while pairs:
        left, right = pairs.pop()
        if left is right:
            continue
        if isinstance(left, Form):
            if not isinstance(right, Form) or len(left.items) != len(right.items):
                return False
            if (left.tail is None) != (right.tail is None):
                return False
            if left.tail is not None and right.tail is not None:
                pairs.append((left.tail, right.tail))
            pairs.extend(zip(left.items, right.items, strict=True))
        elif not isinstance(right, Atom) or not _is_same(left.value, right.value):
            return False
    return True


def _is_same(left: Value, right: Value) -> bool:
    """Identity of values: 1, 1.0 and true differ; not-a-number equals itself."""
    if type(left) is not type(right):
        return False
    return left == right or (left != left and right != right)
