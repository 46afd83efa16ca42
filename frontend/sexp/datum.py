"""Data: what S-expression text reads as, before any of it means anything.

A datum knows where it stands, in the text or, when a form made it, in the text it was made from.
Data are compared by what they are, without their places; they may be deep, so nothing here recurses.
Must not be in here: how text becomes data (`reader`) and data become text (`printer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ...ir.spans import Lines, Span
from ...ir.symbols import Symbol

Value: TypeAlias = bool | int | float | str | Symbol | None


# A place: a span; or lines with two offsets, which become a span when somebody asks, for most never do.
Place: TypeAlias = Span | tuple[Lines, int, int] | None


class _Placed:
    """What atoms and forms share; neither changes once it is made."""

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
        """For a datum made from this one: cheaper than `span`."""
        return self._place

    def __eq__(self, other: object) -> bool:
        if not isinstance(self, Datum) or not isinstance(other, Datum):
            return NotImplemented
        return _is_equal(self, other)

    def __hash__(self) -> int:
        # Forms that differ further down share a hash, which is no harm.
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

    @property
    def is_symbol(self) -> bool:
        return type(self.value) is Symbol


class Form(_Placed):
    """A list: what stands between two brackets. The empty one is `nil`.

    items: its data in order. tail: what stands after a dot, an `Atom`, in `(a . more)`; None in a
    proper list. A form after a dot goes on with the list, as reading does, so a tail is never a form.
    bracket: how it opens, "(" or "["; no part of what it is.
    """

    __slots__ = ("bracket", "items", "tail")
    items: tuple[Datum, ...]
    tail: Atom | None
    bracket: str

    def __init__(
        self,
        items: tuple[Datum, ...],
        place: Place = None,
        bracket: str = "(",
        tail: Datum | None = None,
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
    """1, 1.0 and true are three values; not-a-number is itself."""
    if type(left) is not type(right):
        return False
    return left == right or (left != left and right != right)
