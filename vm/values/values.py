"""The values of programs, and their conversion from and to host data (JSON-like).

null is None; booleans, integers, floats and strings are Python's; a symbol is a `Symbol`; a list is a tuple,
a `Pair`, a `Slice` or a `Queue` (`lists`); a map is a dict with string keys or a `MapVersion` (`maps`); a
function is a `FunctionValue`; a box is a `Box`, the only mutable value and so the only way to a cycle. Values
share structure and may be deep: nothing here recurses over a value.

Truth is Python's: null, false, 0, 0.0, "", the empty list and the empty map are false.

Must not contain: the representations of lists and maps (`lists`, `maps`), arithmetic and text (`primitives`),
storage (`heap`).
"""

from __future__ import annotations

from ...ir.constants import Symbol
from .lists import Pair, Queue, Slice, is_list, iterate, length
from .maps import MapVersion, is_map, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

Value: TypeAlias = "Any"

# Limit of `to_host`: containers and scalars plus the characters of strings, counting shared parts each time.
# The host does not share, so a list that is doubled a few times could otherwise fill its memory.
MAX_HOST_SIZE = 1 << 26
# Nesting limit of data that leaves the machine: hosts and JSON writers are recursive.
MAX_HOST_DEPTH = 500
# Smaller values need no size check.
_FEW = 16
_SHORT = 100_000
# Length limit of `show`.
MAX_SHOWN = 200


class FunctionValue:
    """A function of the image (by index) with the values of its captures."""

    __slots__ = ("captures", "function")

    def __init__(self, function: int, captures: tuple[Value, ...]) -> None:
        self.function = function
        self.captures = captures


class Box:
    """A mutable place for one value. Equality is identity."""

    __slots__ = ("value",)

    def __init__(self, value: Value = None) -> None:
        self.value = value


class DynamicBox(Box):
    """A box with a separate value in each strand; a new strand starts with the value of its parent.

    `value` belongs to the running strand. The machine replaces it when it switches strands
    (`machine/control`).
    """

    __slots__ = ()


# The scalars of JSON, and all values without parts.
SCALARS = frozenset({type(None), bool, int, float, str})
ATOMS = SCALARS | {Symbol}
_TEXT = frozenset({str})
# Types whose values Python compares like the language, within the same type.
_COMPARED = frozenset({type(None), bool, int, str})
_TYPE_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "float",
    str: "string",
    Symbol: "symbol",
    tuple: "list",
    Pair: "list",
    Slice: "list",
    Queue: "list",
    dict: "map",
    MapVersion: "map",
    FunctionValue: "function",
    Box: "box",
    DynamicBox: "box",
}
# The representations of a list other than a tuple.
_SHARED = frozenset({Pair, Slice, Queue})
BOXES = frozenset({Box, DynamicBox})


def type_name(value: Value) -> str:
    """The type of a value, for messages."""
    return _TYPE_NAMES[type(value)]


def kind_of(value: Value) -> str:
    """The type of a value with its article: `an integer`."""
    name = type_name(value)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def equal(left: Value, right: Value) -> bool:
    """Equality by value. A boolean never equals a number, 1 equals 1.0, NaN equals NaN.

    Symbols and boxes are equal by identity. Functions are equal if they have the same code and equal
    captures, because a closure may be created again at each use of its name.
    """
    if type(left) is type(right) and type(left) in _COMPARED:
        return left == right  # type: ignore[no-any-return]
    pairs = [(left, right)]
    # Pairs of containers that were compared already, so that shared parts are compared once.
    seen: set[tuple[int, int]] = set()
    while pairs:
        a, b = pairs.pop()
        if a is b:
            continue
        if type(a) is MapVersion:
            a = a.read()
        if type(b) is MapVersion:
            b = b.read()
        kind, other = type(a), type(b)
        if kind in _SHARED or other in _SHARED:
            if not _lists_agree(a, b, pairs, seen):
                return False
        elif kind is not other:
            if {kind, other} != {int, float} or a != b:
                return False
        elif kind is tuple or kind is dict:
            if len(a) != len(b):
                return False
            if (id(a), id(b)) in seen:
                continue
            seen.add((id(a), id(b)))
            if kind is tuple:
                pairs.extend(zip(a, b, strict=True))
            elif a.keys() == b.keys():
                pairs.extend((item, b[key]) for key, item in a.items())
            else:
                return False
        elif kind is float:
            if a != b and (a == a or b == b):
                return False
        elif kind is FunctionValue:
            if a.function != b.function or len(a.captures) != len(b.captures):
                return False
            pairs.append((a.captures, b.captures))
        elif kind is Symbol or kind in BOXES or a != b:
            return False
    return True


def _lists_agree(a: Value, b: Value, pairs: list[tuple[Value, Value]], seen: set[tuple[int, int]]) -> bool:
    """Whether `a` and `b`, at least one of them a list, can be equal; adds their items to `pairs`."""
    if not is_list(a) or not is_list(b) or length(a) != length(b):
        return False
    compared = (id(a), id(b)) in seen
    seen.add((id(a), id(b)))
    while type(a) is Pair is type(b) and not compared:
        if a is b:
            return True
        if a.head is not b.head:
            pairs.append((a.head, b.head))
        a, b = a.tail, b.tail
        # Lists with a shared end meet at equal lengths, so recording every 64th length suffices.
        if length(a) % 64 == 0:
            compared = (id(a), id(b)) in seen
            seen.add((id(a), id(b)))
    if not compared:
        pairs.extend(zip(iterate(a), iterate(b), strict=True))
    return True


def from_host(data: Any) -> Value:
    """The value of JSON-like data: lists (or tuples) and dicts with string keys over scalars.

    Raises TypeError for anything else, ValueError for cyclic data.
    """
    if type(data) in SCALARS:
        return data
    if (
        type(data) is dict
        and SCALARS.issuperset(map(type, data.values()))
        and _TEXT.issuperset(map(type, data))
    ):
        return data.copy()
    done: dict[int, Value] = {}
    begun: set[int] = set()
    stack = [data]
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        waiting = [item for item in _items(node) if type(item) not in SCALARS and id(item) not in done]
        if waiting:
            if id(node) in begun:
                raise ValueError("the data contains itself")
            begun.add(id(node))
            stack.extend(waiting)
            continue
        stack.pop()
        if type(node) is dict:
            done[id(node)] = {key: done.get(id(item), item) for key, item in node.items()}
        else:
            done[id(node)] = tuple(done.get(id(item), item) for item in node)
    return done[id(data)]


def _items(node: Any) -> Any:
    """The contents of a host container; raises TypeError for other objects."""
    kind = type(node)
    if kind is list or kind is tuple:
        return node
    if kind is not dict:
        raise TypeError(f"a {kind.__name__} is not a value")
    for key in node:
        if type(key) is not str:
            raise TypeError(f"a map's keys are strings, not {type(key).__name__}")
    return node.values()


def to_host(value: Value, most_depth: int | None = None) -> Any:
    """A value as JSON-like data: lists become lists, maps fresh dicts, symbols their names.

    Raises TypeError if it contains a function or a box, which have no meaning outside the machine, and
    ValueError if it is larger than `MAX_HOST_SIZE` or deeper than `most_depth`. Parts that are shared in the
    value are shared in the result.
    """
    if type(value) in SCALARS:
        return value
    if type(value) is Symbol:
        return value.name
    done: dict[int, tuple[Any, int, int]] = {}
    total = 0
    stack = [value]
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        kind = type(node)
        entries = read(node) if is_map(node) else None
        if entries is not None:
            items: Any = entries.values()
        elif kind is tuple:
            items = node
        elif is_list(node):
            items = tuple(iterate(node))
        else:
            raise TypeError(f"{kind_of(node)} cannot leave the machine")
        waiting = [item for item in items if type(item) not in ATOMS and id(item) not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        size = 1 + sum(map(len, entries)) if entries is not None else 1
        depth = 0
        converted = []
        for item in items:
            if type(item) is Symbol:
                item = item.name
            if type(item) in SCALARS:
                size += 1 + len(item) if type(item) is str else 1
                converted.append(item)
            else:
                host, weight, below = done[id(item)]
                size += weight
                depth = max(depth, below)
                converted.append(host)
        # Lists with a shared end are copied, so their total size is checked before the next copy.
        total += len(converted)
        if max(size, total) > MAX_HOST_SIZE:
            raise ValueError("the value is too large to leave the machine")
        if most_depth is not None and depth >= most_depth:
            raise ValueError(
                f"the value is nested too deep to leave the machine: more than {most_depth} levels"
            )
        host = dict(zip(entries, converted, strict=True)) if entries is not None else converted
        done[id(node)] = (host, size, depth + 1)
    return done[id(value)][0]


def small_map(value: Value, levels: int = 2) -> dict[str, Any] | None:
    """The result of `to_host` for a map with few entries and short texts; None for other values.

    Most effects and notes are such maps, and this function takes a fifth of the time.
    """
    if type(value) is not dict or len(value) > _FEW or len("".join(value)) > _SHORT:
        return None
    made = value.copy()
    for key, item in value.items():
        kind = type(item)
        if kind is str:
            if len(item) > _SHORT:
                return None
        elif kind not in SCALARS:
            inner = small_map(item, levels - 1) if levels > 1 else None
            if inner is None:
                return None
            made[key] = inner
    return made


def show(value: Value) -> str:
    """A value for a message: JSON-like, at most `MAX_SHOWN` characters."""
    parts: list[str] = []
    room = MAX_SHOWN
    # Work stack of the remaining parts; (True, text) is written as it is.
    todo: list[tuple[bool, Value]] = [(False, value)]
    while todo and room > 0:
        is_text, item = todo.pop()
        if type(item) is MapVersion:
            item = item.read()
        kind = type(item)
        if is_text:
            text = item
        elif is_list(item) or kind is dict:
            text, close = ("{", "}") if kind is dict else ("[", "]")
            todo.append((True, close))
            # At most `room` items can be shown.
            ahead: list[tuple[bool, Value]] = []
            for count, entry in enumerate(item if kind is dict else iterate(item)):
                if count > room:
                    break
                if count:
                    ahead.append((True, ", "))
                ahead.append((False, entry))
                if kind is dict:
                    ahead += [(True, ": "), (False, item[entry])]
            todo += reversed(ahead)
        else:
            text = _show_scalar(item, room)
        parts.append(text)
        room -= len(text)
    if room >= 0 and not todo:
        return "".join(parts)
    return "".join(parts)[: MAX_SHOWN - 1] + "…"


def _show_scalar(value: Value, room: int) -> str:
    kind = type(value)
    if kind is str:
        from json import dumps

        # Cut before quoting, because quoting a long text is slow. Lone surrogates must not reach a terminal.
        cut = value[: room + 1].encode("utf-8", "replace").decode()
        return dumps(cut, ensure_ascii=False)
    if kind is int and value.bit_length() > 600:
        return f"<integer of {value.bit_length()} bits>"
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is Symbol:
        name: str = value.name[: room + 1]
        return "'" + name.encode("utf-8", "replace").decode()
    if kind is FunctionValue or kind in BOXES:
        return f"<{type_name(value)}>"
    return str(value)
