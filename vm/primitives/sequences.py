"""Primitives over lists that call no function.

null counts as the empty list. Results are bounded (`bounds`). Must not contain: the representation
of lists (`lists`); functions that call functions, which are written in the language (`stdlib/`).
"""

from __future__ import annotations

from math import isfinite
from operator import indexOf

from ..values import bounds, lists
from ..values.faults import PrimitiveFault
from ..values.lists import Pair, Queue, is_list
from ..values.maps import is_map, read
from ..values.values import ATOMS, equal, show
from .numbers import inexact
from .operands import any_list, count, expected, items, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Value = Any


def _out_of_range(index: int, values: Value) -> PrimitiveFault:
    return PrimitiveFault("out-of-range", f"{show(index)} is beyond a list of {lists.length(values)} items")


def _filled(values: Value) -> Value:
    if type(values) is Pair or type(values) is Queue:
        return values
    if not any_list(values):
        raise PrimitiveFault("empty-list", "the list is empty")
    return values


def _list_and_count(left: Value, right: Value) -> tuple[Value, int]:
    """A list and a number in either order; Lisps differ in the order."""
    if type(left) is int or is_list(right):
        left, right = right, left
    return any_list(left), count(right)


# --- making and taking apart ------------------------------------------------------------------


def cons(item: Value, tail: Value) -> Value:
    count = lists.length(tail if type(tail) is Pair else any_list(tail)) + 1
    if count > bounds.MAX_ITEMS:
        bounds.check_items(count)
    if type(tail) is Queue:
        return lists.pair(item, tail)
    return Pair(item, () if tail is None else tail, count)


def _at(values: Value, index: int) -> Value:
    if index >= lists.length(values):
        raise _out_of_range(index, values)
    return lists.item(values, index)


def nth(left: Value, right: Value) -> Value:
    if type(left) is int and type(right) is tuple and -1 < left < len(right):
        return right[left]
    return _at(*_list_and_count(left, right))


def second(values: Value) -> Value:
    if type(values) is Pair and type(values.tail) is Pair:
        return values.tail.head
    return _at(any_list(values), 1)


def length(values: Value) -> int:
    if type(values) is str:
        raise expected("a list", values, "`string-length` counts characters")
    return lists.length(any_list(values))


def take(left: Value, right: Value) -> Value:
    values, size = _list_and_count(left, right)
    return lists.take(values, size)


def drop(left: Value, right: Value) -> Value:
    values, size = _list_and_count(left, right)
    return lists.drop(values, min(size, lists.length(values)))


def list_tail(values: Value, size: Value) -> Value:
    values = any_list(values)
    if count(size) > lists.length(values):
        raise _out_of_range(size, values)
    return lists.drop(values, size)


def append(*parts: Value) -> Value:
    if len(parts) == 2:
        start, tail = any_list(parts[0]), any_list(parts[1])
        if (count := lists.length(start) + lists.length(tail)) > bounds.MAX_ITEMS:
            bounds.check_items(count)
        return lists.append(start, tail)
    if not parts:
        return ()
    found = [any_list(part) for part in parts]
    bounds.check_items(sum(map(lists.length, found)))
    start, *middle, tail = found if len(found) > 1 else ((), *found)
    if middle:
        start = lists.append(start, tuple(item for part in middle for item in lists.iterate(part)))
    return lists.append(start, tail)


def make_range(start: Value, end: Value = None, step: Value = 1) -> Value:
    """The range from `start` to `end` (exclusive); a single argument is the end of a range from 0."""
    if end is None:
        start, end = 0, start
    if type(start) is int is type(end) and step == 1 and type(step) is int:
        bounds.check_items(max(0, end - start))
        return tuple(range(start, end))
    if any(type(number(part)) is float for part in (start, end, step)):
        start, end, step = inexact(start), inexact(end), inexact(step)
        if not all(map(isfinite, (start, end, step, end - start))):
            raise expected("finite numbers for a range", (start, end, step))
    if step == 0:
        raise PrimitiveFault("type-error", "the step of a range is not 0")
    size = max(0, -int((start - end) // step))
    bounds.check_items(size)
    if type(start) is int:
        return tuple(range(start, end, step))
    return tuple(start + index * step for index in range(size))


# --- searching --------------------------------------------------------------------------------


def _tails(values: Value) -> Iterator[Value]:
    while values:
        yield values
        values = lists.rest(values)


def member(item: Value, values: Value) -> Value:
    for tail in _tails(any_list(values)):
        if equal(item, lists.first(tail)):
            return tail
    return False


def index_of(item: Value, values: Value) -> Value:
    if type(item) is str:  # in Python too, a string equals no value of another type
        try:
            return indexOf(values if type(values) is tuple else lists.iterate(any_list(values)), item)
        except ValueError:
            return None
    for index, other in enumerate(lists.iterate(any_list(values))):
        if equal(item, other):
            return index
    return None


def assoc(key: Value, entries: Value) -> Value:
    for entry in lists.iterate(any_list(entries)):
        if not is_list(entry) or not entry:
            raise expected("entries that are lists beginning with their key", entry)
        if equal(key, lists.first(entry)):
            return entry
    return False


class _Keys:
    """Hashable keys that are equal exactly if the values are (`equal`)."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        # Keys by `id`; the current value keeps its parts alive.
        self._known: dict[int, Any] = {}

    def of(self, value: Value) -> Any:
        if type(value) in ATOMS:
            return self._atom(value)
        stack = [value]
        while stack:
            node = stack[-1]
            if id(node) in self._known:
                stack.pop()
                continue
            parts = items(node) if is_list(node) else list(read(node).values()) if is_map(node) else ()
            waiting = [part for part in parts if type(part) not in ATOMS and id(part) not in self._known]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            keys = [self._atom(part) if type(part) in ATOMS else self._known[id(part)] for part in parts]
            if is_list(node):
                key: Any = ("list", *keys)
            elif is_map(node):
                key = frozenset(zip(read(node), keys, strict=True))
            else:
                key = ("object", id(node))
            # A container is represented by a number, so that keys are never nested deeply.
            self._known[id(node)] = ("part", self._numbers.setdefault(key, len(self._numbers)))
        return self._known[id(value)]

    @staticmethod
    def _atom(value: Value) -> Any:
        if type(value) is float and value != value:
            return "nan", None
        return "number" if type(value) in (int, float) else type(value), value


def unique(values: Value) -> Value:
    keys = _Keys()
    seen: dict[Any, Value] = {}
    for item in lists.iterate(any_list(values)):
        seen.setdefault(keys.of(item), item)
    return tuple(seen.values())


# --- other shapes -----------------------------------------------------------------------------


def flatten(values: Value) -> Value:
    # Length of each list after flattening, computed before any list is built; 0 for empty parts, which may be
    # shared many times.
    sizes: dict[int, int] = {}
    stack = [any_list(values)]
    while stack:
        node = stack[-1]
        if id(node) in sizes:
            stack.pop()
            continue
        inner = [item for item in lists.iterate(node) if is_list(item)]
        waiting = [item for item in inner if id(item) not in sizes]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        sizes[id(node)] = lists.length(node) - len(inner) + sum(sizes[id(item)] for item in inner)
        bounds.check_items(sizes[id(node)])
    flat = []
    rests = [lists.iterate(any_list(values))]
    while rests:
        for item in rests[-1]:
            if not is_list(item):
                flat.append(item)
            elif sizes[id(item)]:
                rests.append(lists.iterate(item))
                break
        else:
            rests.pop()
    return tuple(flat)


def make_zip(values: Value, *others: Value) -> Value:
    return tuple(zip(*(lists.iterate(any_list(part)) for part in (values, *others)), strict=False))


def make_sorted(values: Value) -> Value:
    found = items(values)
    kinds = {"number" if type(item) in (int, float) else type(item) for item in found}
    if len(kinds) > 1 or not kinds <= {"number", str}:
        odd = next(item for item in found if type(item) not in (int, float, str) or len(kinds) > 1)
        raise expected("only numbers or only strings to sort", odd, "`sort` takes a comparison for others")
    return tuple(sorted(found))


# --- kinds ------------------------------------------------------------------------------------


def is_empty(value: Value) -> bool:
    if value is None or type(value) is str or is_list(value) or is_map(value):
        return not value
    raise expected("a list, a map or a string", value)


HANDLERS: dict[str, Callable[..., Value]] = {
    "list": lambda *values: values,
    "cons": cons,
    "first": lambda values: lists.first(_filled(values)),
    "rest": lambda values: lists.rest(_filled(values)),
    "second": second,
    "third": lambda values: _at(any_list(values), 2),
    "rest_of_rest": lambda values: list_tail(values, 2),
    "last": lambda values: _at(_filled(values), lists.length(values) - 1),
    "array": items,
    "nth": nth,
    "length": length,
    "append": append,
    "reverse": lambda values: items(values)[::-1],
    "take": take,
    "drop": drop,
    "list_tail": list_tail,
    "range": make_range,
    "member": member,
    "index_of": index_of,
    "assoc": assoc,
    "unique": unique,
    "flatten": flatten,
    "zip": make_zip,
    "sorted": make_sorted,
    "is_list": is_list,
    "is_pair": lambda value: is_list(value) and bool(value),
    "is_nil": lambda value: value is None or value == (),
    "is_empty": is_empty,
}
