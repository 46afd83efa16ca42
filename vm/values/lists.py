"""The four representations of lists; no other module distinguishes them.

A list is a tuple, a `Pair` whose tail is a list, a `Slice` of an array, or a `Queue`. Host data, JSON and
`list` create tuples. `cons` creates pairs, and `rest` of a long tuple converts a part of the remainder to
pairs, so that walking a list takes linear time however it was built. `append` to a long list creates slices,
so that building a list at its end is linear too; `append` to a list of pairs creates a queue, so that items
can be removed at one end and added at the other. Programs cannot distinguish the representations.

Must not contain: the semantics of list functions (`sequences`).
"""

from __future__ import annotations

from itertools import chain, islice
from sys import getrefcount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    Value = Any
    List = Any

# The rest of a tuple of at least this length begins with pairs; copying a shorter one is faster than walking
# pairs.
_SHORT = 8
# The fraction of a long list that is converted to pairs at once. An iteration copies the list this many
# times, which is cheap compared with creating the pairs, and a reader of the first items does not pay for all
# pairs.
_PART = 8
# Lists of at least this length are shared with the results of `append` and `take`; shorter ones are copied.
LONG = 128
# If one of two appended lists is at least this many times shorter, it is added to the other; otherwise
# copying both is cheap per added item.
_SHORTER = 16


class Pair:
    """A list that consists of `head` and the list `tail`. Immutable.

    `length` is the number of items of the whole list; the function that creates a pair supplies it (`pair`).
    A pair is always true in Python's sense.
    """

    __slots__ = ("head", "length", "tail")

    def __init__(self, head: Value, tail: List, length: int) -> None:
        self.head = head
        self.tail = tail
        self.length = length

    def __repr__(self) -> str:
        return f"<list of {self.length}>"


class Slice:
    """The first `length` items of an array that only grows; longer lists share the array.

    most: the maximal length of the array, twice its initial length, so that a list
    keeps at most as many foreign items alive as it has itself.
    """

    __slots__ = ("array", "length", "most")

    def __init__(self, array: list[Value], length: int, most: int) -> None:
        self.array = array
        self.length = length
        self.most = most

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Value]:
        return islice(self.array, self.length)

    def __repr__(self) -> str:
        return f"<list of {self.length}>"


class Queue:
    """The items of `front` followed by those of the array `back`; neither is empty or a queue.

    `rest` shares the rest of the front; `append` adds to the back. The tail of a pair is never a
    queue: prepending to a queue adds to its front.
    """

    __slots__ = ("back", "front", "length")

    def __init__(self, front: List, back: List, length: int) -> None:
        self.front = front
        self.back = back
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Value]:
        return chain(iterate(self.front), self.back)

    def __repr__(self) -> str:
        return f"<list of {self.length}>"


def pair(head: Value, tail: List) -> List:
    if type(tail) is Queue:
        return Queue(pair(head, tail.front), tail.back, tail.length + 1)
    return Pair(head, tail, length(tail) + 1)


def is_list(value: Value) -> bool:
    kind = type(value)
    return kind is tuple or kind is Pair or kind is Slice or kind is Queue


def length(items: List) -> int:
    return len(items) if type(items) is tuple else items.length


def iterate(items: List) -> Iterator[Value]:
    """The items of a list, in order."""
    return _walk(items) if type(items) is Pair else iter(items)


def _walk(items: List) -> Iterator[Value]:
    while type(items) is Pair:
        yield items.head
        items = items.tail
    yield from items


def to_tuple(items: List) -> tuple[Value, ...]:
    if type(items) is tuple:
        return items
    if type(items) is not Pair:
        return tuple(items)
    found = []
    while type(items) is Pair:
        found.append(items.head)
        items = items.tail
    return (*found, *items)


def append(items: List, tail: List) -> List:
    """The concatenation of two lists.

    A tail of pairs is shared unless it is much shorter; any tail is shared if it is much longer. If the tail
    is much shorter, the array or the pairs of `items` are shared. The stored form of the result (`heap`)
    depends only on lengths, pairs and queues.
    """
    count, others = length(items), length(tail)
    if not count or not others:
        return items if count else tail
    is_added = count >= LONG and others * _SHORTER <= count
    if (type(tail) is Pair and not is_added) or (others >= LONG and count * _SHORTER <= others):
        return pairs(to_tuple(items), tail)
    if not is_added:
        return (*iterate(items), *iterate(tail))
    whole = count + others
    if type(items) is Pair:
        return Queue(items, to_tuple(tail), whole)
    if type(items) is Queue:
        back, more = items.back, to_tuple(tail)
        back = append(back, more) if len(back) >= others else (*back, *more)
        return Queue(items.front, back, whole)
    if type(items) is Slice and whole <= items.most:
        if len(items.array) > count and _is_alone(items):
            del items.array[count:]
        if len(items.array) == count:
            items.array.extend(iterate(tail))
            return Slice(items.array, whole, items.most)
    return Slice([*iterate(items), *iterate(tail)], whole, 2 * whole)


def _references(items: Slice) -> int:
    return getrefcount(items.array)


_ALONE = _references(Slice([], 0, 0))


def _is_alone(items: Slice) -> bool:
    """Whether no other list shares the array; the case after `take` if the longer list is gone."""
    return _references(items) == _ALONE


def take(items: List, count: int) -> List:
    """The first `count` items."""
    if count >= length(items):
        return items
    if count < LONG:
        return tuple(islice(iterate(items), count))
    if type(items) is Slice and 2 * count >= items.most:
        return Slice(items.array, count, items.most)
    return Slice(list(islice(iterate(items), count)), count, 2 * count)


def pairs(items: Sequence[Value], tail: List) -> List:
    """A pair for each item, before `tail`."""
    if type(tail) is Queue:
        return Queue(pairs(items, tail.front), tail.back, len(items) + tail.length)
    made = Pair  # a local name is faster in this loop
    for count, item in enumerate(reversed(items), length(tail) + 1):
        tail = made(item, tail, count)
    return tail


def first(items: List) -> Value:
    """The first item of a non-empty list."""
    return items.head if type(items) is Pair else item(items, 0)


def item(items: List, index: int) -> Value:
    """The item at a valid index."""
    if type(items) is Queue:
        before = length(items.front)
        items, index = (items.front, index) if index < before else (items.back, index - before)
    while index > 0 and type(items) is Pair:
        items, index = items.tail, index - 1
    if type(items) is Pair:
        return items.head
    return items.array[index] if type(items) is Slice else items[index]


def rest(items: List) -> List:
    """All but the first item of a non-empty list."""
    if type(items) is Pair:
        return items.tail
    if type(items) is Queue and type(items.front) is Pair and items.front.length > 1:
        return Queue(items.front.tail, items.back, items.length - 1)
    return _end(items, 1)


def drop(items: List, count: int) -> List:
    """All but the first `count` items; shared if possible."""
    while count > 0 and type(items) is Pair:
        items, count = items.tail, count - 1
    return _end(items, count) if count > 0 else items


def _end(items: tuple[Value, ...] | Slice | Queue, start: int) -> List:
    """The items from an index on. A part of an array becomes pairs, so that most following steps copy
    nothing; a tuple with the other items follows.
    """
    if isinstance(items, Queue):
        before = length(items.front)
        if start >= before:
            return drop(items.back, start - before)
        return Queue(drop(items.front, start), items.back, items.length - start)
    array = items.array if isinstance(items, Slice) else items
    end = len(items)
    left = end - start
    if left < _SHORT:
        return tuple(array[start:end])
    middle = start + max(_SHORT, left // _PART)
    return pairs(array[start:middle], tuple(array[middle:end]))
