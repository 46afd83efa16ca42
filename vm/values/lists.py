"""The two forms of a list, and the only code that knows them apart.

A list is a tuple, or a `Pair` whose tail is a list. Host data, JSON and `list` make tuples; `cons`
makes pairs, and `rest` of a long tuple turns a part of what is left into pairs, so that walking a list is
linear however it was made. Programs cannot tell the forms apart: they are equal, shown, stored and
counted alike.

Must not contain: what a list function means to a program (`sequences`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    Value = Any
    List = Any

# From this length the rest of a tuple begins with pairs; a shorter one is copied quicker than walked.
_SHORT = 8
# Such a part of a long one is made into pairs: iteration copies that many times its length, which
# is cheap compared with the pairs, and a reader that looks ahead does not pay for them all.
_PART = 8


class Pair:
    """A list that begins with `head`; `tail` is a list. It is immutable.

    `length` counts the items of the whole list: the maker of a pair knows it (`pair`). Truth is Python's:
    a pair is true.
    """

    __slots__ = ("head", "length", "tail")

    def __init__(self, head: Value, tail: List, length: int) -> None:
        self.head = head
        self.tail = tail
        self.length = length

    def __repr__(self) -> str:
        return f"<list of {self.length}>"


def pair(head: Value, tail: List) -> Pair:
    return Pair(head, tail, length(tail) + 1)


def is_list(value: Value) -> bool:
    return type(value) is tuple or type(value) is Pair


def length(items: List) -> int:
    return items.length if type(items) is Pair else len(items)


def iterate(items: List) -> Iterator[Value]:
    """The items of a list, in order."""
    return iter(items) if type(items) is tuple else _walk(items)


def _walk(items: List) -> Iterator[Value]:
    while type(items) is Pair:
        yield items.head
        items = items.tail
    yield from items


def to_tuple(items: List) -> tuple[Value, ...]:
    if type(items) is tuple:
        return items
    found = []
    while type(items) is Pair:
        found.append(items.head)
        items = items.tail
    return (*found, *items)


def from_iterable(items: Iterable[Value], tail: List = ()) -> List:
    """The items before those of `tail`, which is shared and not copied where it is made of pairs."""
    return (*items, *tail) if type(tail) is tuple else pairs(tuple(items), tail)


def pairs(items: Sequence[Value], tail: List) -> List:
    """A pair for each item, before `tail`."""
    count = length(tail)
    for item in reversed(items):
        count += 1
        tail = Pair(item, tail, count)
    return tail


def first(items: List) -> Value:
    """The first item of a list that is not empty."""
    return items.head if type(items) is Pair else items[0]


def rest(items: List) -> List:
    """All but the first item of a list that is not empty."""
    return items.tail if type(items) is Pair else _end(items, 1)


def drop(items: List, count: int) -> List:
    """All but the first `count` items; shared where it can be."""
    while count > 0 and type(items) is Pair:
        items, count = items.tail, count - 1
    return _end(items, count) if count > 0 else items


def _end(items: tuple[Value, ...], start: int) -> List:
    """The items of a tuple from an index on: a part of them as pairs, so that most steps from here copy
    nothing, before a tuple of the others."""
    left = len(items) - start
    if left < _SHORT:
        return items[start:]
    middle = start + max(_SHORT, left // _PART)
    return pairs(items[start:middle], items[middle:])
