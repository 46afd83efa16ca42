"""Values as a flat table of JSON-like nodes, the storage form of images and snapshots.

A *reference* is a scalar that JSON represents exactly (it stands for itself), `{"int": hex}` or
`{"float": "inf" | "-inf" | "nan"}` for other numbers, `{"symbol": name}` with a reference
to the name, `[i]` for node `i`, or `[i, k]` for the list that starts at item `k` of a "cons" node. Nodes:

    ["list", item…]  ["map", key, value, …]  ["function", name, capture…]  ["box", content]
    ["dynamic", content]                      a box with a value for each strand
    ["cons", item…, tail]                     a list of pairs, followed by the list `tail`
    ["queue", front, back]                    the items of two lists; the second is a "list" node
    ["text", string]  ["utf8", hex]           strings that are long, or contain lone surrogates

All items are references. A node refers only to earlier nodes, except that references to and from boxes
are unrestricted: values are immutable, so cycles are possible only through boxes. A value that is shared in
memory is one node, and nesting depth does not become nesting of JSON. Equal values with equal sharing give
equal tables.
"""

from __future__ import annotations

from ...ir.constants import Symbol
from .lists import Pair, Queue, is_list, length, pairs, to_tuple
from .maps import is_map, read
from .values import ATOMS, BOXES, SCALARS, Box, DynamicBox, FunctionValue, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Reference = Any

# JSON readers need not represent larger integers (and Python's rejects very long ones).
_PLAIN_INT = 1 << 63
# Strings of at least this length become nodes, so that a string in many slots is stored once.
_LONG_TEXT = 64
# Maximal number of pairs in a node; lists that share their ends are traversed once.
_RUN = 256


class HeapError(ValueError):
    """A malformed table or reference."""


class HeapWriter:
    """Adds values to one table, `nodes`."""

    def __init__(self, function_name: Callable[[int], str] | None = None) -> None:
        self.nodes: list[list[Any]] = []
        self._function_name = function_name
        self._texts: dict[str, Reference] = {}
        # Functions without captures, by index: whether they are one object depends on the tier.
        self._functions: dict[int, Reference] = {}
        # References by `id`; `_held` keeps the objects alive, so that no id is reused.
        self._containers: dict[int, Reference] = {}
        self._held: list[Value] = []
        self._open: list[Box] = []

    def write(self, value: Value) -> Reference:
        """The reference of a value; adds its nodes to the table."""
        reference = self._write(value)
        while self._open:
            box = self._open.pop()
            index = self._containers[id(box)][0]
            self.nodes[index].append(self._write(box.value))
        return reference

    def _write(self, value: Value) -> Reference:
        """Write lists, maps and captures in post-order; the contents of boxes are written later."""
        if type(value) in ATOMS:
            return self._atom(value)
        stack = [value]
        while stack:
            node = stack[-1]
            if id(node) in self._containers:
                stack.pop()
                continue
            if type(node) in BOXES:
                stack.pop()
                self._add(node, ["dynamic" if type(node) is DynamicBox else "box"])
                self._open.append(node)
                continue
            parts = self._run(node) if type(node) is Pair else _parts(node)
            waiting = [part for part in parts if type(part) not in ATOMS and id(part) not in self._containers]
            if waiting:
                # Reversed, so that the nodes of the first part come first.
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            references = [self._atom(p) if type(p) in ATOMS else self._containers[id(p)] for p in parts]
            if type(node) is Pair:
                self._add(node, ["cons", *references])
                self._add_tails(node, len(parts) - 1)
            elif is_list(node):
                self._add(node, ["queue" if type(node) is Queue else "list", *references])
            elif is_map(node):
                row: list[Any] = ["map"]
                for key, reference in zip(read(node), references, strict=True):
                    row += (self._scalar(key), reference)
                self._add(node, row)
            elif self._function_name is not None:
                if not references and node.function in self._functions:
                    self._containers[id(node)] = self._functions[node.function]
                    self._held.append(node)
                    continue
                self._add(node, ["function", self._function_name(node.function), *references])
                if not references:
                    self._functions[node.function] = self._containers[id(node)]
            else:
                raise HeapError("a function has no place here")
        return self._containers[id(value)]

    def _add(self, value: Value, row: list[Any]) -> None:
        self._containers[id(value)] = [len(self.nodes)]
        self._held.append(value)
        self.nodes.append(row)

    def _run(self, pair: Pair) -> list[Value]:
        """The items of the pairs that are not stored yet, then the list that follows them."""
        parts: list[Value] = []
        tail: Value = pair
        while type(tail) is Pair and len(parts) < _RUN and id(tail) not in self._containers:
            parts.append(tail.head)
            tail = tail.tail
        return [*parts, tail]

    def _add_tails(self, pair: Pair, count: int) -> None:
        """Register references to the other pairs of the last node, a run of `count` pairs."""
        for offset in range(1, count):
            pair = pair.tail
            self._containers[id(pair)] = [len(self.nodes) - 1, offset]

    def _atom(self, value: Value) -> Reference:
        if type(value) is Symbol:
            return {"symbol": self._scalar(value.name)}
        return self._scalar(value)

    def _scalar(self, value: Value) -> Reference:
        kind = type(value)
        if kind is str:
            if len(value) < _LONG_TEXT and value.isascii():
                return value
            return self._text(value)
        if kind is int and not -_PLAIN_INT <= value < _PLAIN_INT:
            return {"int": hex(value)}
        if kind is float and value - value != 0.0:
            return {"float": repr(value)}
        return value

    def _text(self, value: str) -> Reference:
        known = self._texts.get(value)
        if known is not None:
            return known
        try:
            value.encode("utf-8")
            row = ["text", value]
        except UnicodeEncodeError:
            # JSON would combine two lone surrogates into one character.
            row = ["utf8", value.encode("utf-8", "surrogatepass").hex()]
        if row[0] == "text" and len(value) < _LONG_TEXT:
            return value
        reference = self._texts[value] = [len(self.nodes)]
        self.nodes.append(row)
        return reference


def _parts(node: Value) -> Sequence[Value]:
    if type(node) is Queue:
        return node.front, node.back
    if is_list(node):
        return to_tuple(node)
    if is_map(node):
        return list(read(node).values())
    return node.captures  # type: ignore[no-any-return]


class HeapReader:
    """Reads the values of a table. Raises HeapError for anything that `HeapWriter` does not write.

    find_function: returns the index of a function by its name and number of captures, and raises
    HeapError if there is none. Without it the table may contain only plain data.
    """

    def __init__(self, nodes: Any, find_function: Callable[[Any, int], int] | None = None) -> None:
        if type(nodes) is not list:
            raise HeapError("the table is not a list")
        self._find_function = find_function
        # Nodes that are read already; boxes are created first, because references to them are unrestricted.
        self._values: dict[int, Value] = {}
        # The number of pairs in each "cons" node, and its pairs after the first reference to one of them.
        self._runs: dict[int, int] = {}
        self._tails: dict[int, dict[int, Value]] = {}
        boxes: list[tuple[Box, Reference]] = []
        for index, node in enumerate(nodes):
            if type(node) is not list or not node:
                raise HeapError(f"node {index} is malformed")
            if node[0] in ("box", "dynamic"):
                if find_function is None or len(node) != 2:
                    raise HeapError(f"node {index} is malformed")
                box = self._values[index] = Box() if node[0] == "box" else DynamicBox()
                boxes.append((box, node[1]))
        for index, node in enumerate(nodes):
            if node[0] not in ("box", "dynamic"):
                self._values[index] = self._node(index, node)
        for box, content in boxes:
            box.value = self.read(content)

    def read(self, reference: Any) -> Value:
        """The value of a reference."""
        kind = type(reference)
        if kind in SCALARS:
            return reference
        if kind is list and 0 < len(reference) <= 2 and all(type(index) is int for index in reference):
            try:
                if len(reference) == 2:
                    return self._pairs(reference[0])[reference[1]]
                return self._values[reference[0]]
            except (KeyError, IndexError):
                raise HeapError(f"no node {reference} to refer to") from None
        if kind is dict and len(reference) == 1:
            ((tag, text),) = reference.items()
            if tag == "float" and text in ("inf", "-inf", "nan"):
                return float(text)
            if tag == "int" and type(text) is str:
                return _hex_int(text)
            if tag == "symbol" and type(text) in (str, list):
                name = self.read(text)
                if type(name) is str:
                    return Symbol(name)
        raise HeapError("malformed reference")

    def _pairs(self, index: int) -> dict[int, Value]:
        """The pairs of a "cons" node after its first, by item number."""
        pairs = self._tails.get(index)
        if pairs is None:
            pairs = self._tails[index] = {}
            tail = self._values[index]
            for offset in range(1, self._runs.get(index, 0)):
                tail = tail.tail
                pairs[offset] = tail
        return pairs

    def _node(self, index: int, node: list[Any]) -> Value:
        tag = node[0]
        if tag == "list":
            return tuple(map(self.read, node[1:]))
        if tag == "cons" and len(node) >= 3:
            *items, tail = map(self.read, node[1:])
            if is_list(tail) and type(tail) is not Queue:
                self._runs[index] = len(items)
                return pairs(items, tail)
        elif tag == "queue" and len(node) == 3:
            front, back = map(self.read, node[1:])
            if front and type(front) in (tuple, Pair) and back and type(back) is tuple:
                return Queue(front, back, length(front) + len(back))
        elif tag == "map" and len(node) % 2 == 1:
            keys = [self.read(key) for key in node[1::2]]
            if all(type(key) is str for key in keys) and len(set(keys)) == len(keys):
                return dict(zip(keys, map(self.read, node[2::2]), strict=True))
        elif tag == "function" and len(node) >= 2 and self._find_function is not None:
            captures = tuple(map(self.read, node[2:]))
            return FunctionValue(self._find_function(node[1], len(captures)), captures)
        elif tag in ("text", "utf8") and len(node) == 2 and type(node[1]) is str:
            if tag == "text":
                return node[1]
            try:
                return bytes.fromhex(node[1]).decode("utf-8", "surrogatepass")
            except ValueError:
                pass
        raise HeapError(f"node {index} is malformed")


def _hex_int(text: str) -> int:
    try:
        value = int(text, 16)
    except ValueError:
        raise HeapError("malformed integer") from None
    if hex(value) != text:
        raise HeapError("malformed integer")
    return value
