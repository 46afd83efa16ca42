"""Conversion of JSON texts and plain data to document trees, which the schema engine reads.

Every node has the span of the whole text. That is exact enough for a JSON Lines file, whose lines are short.
"""

from __future__ import annotations

import json
from typing import Any

from .document import Mapping, Node, Scalar, Sequence


class DuplicateKey(ValueError):
    """An object contains a key twice."""


def parse_json(text: str) -> Any:
    """Parse a JSON text. Raises `ValueError`, `DuplicateKey` or `RecursionError`."""
    return json.loads(text, object_pairs_hook=_reject_duplicate_keys)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise DuplicateKey(name)
        result[name] = value
    return result


def to_tree(value: Any, start: int = 0, end: int = 0) -> Node:
    """Convert plain data to a tree. All nodes span the offsets from `start` to `end`."""
    node: Node
    if isinstance(value, dict):
        node = Mapping(start)
        for key, item in value.items():
            name = str(key)
            node.entries[name] = Scalar(name, name, False, start, end), to_tree(item, start, end)
    elif isinstance(value, list | tuple):
        node = Sequence(start)
        node.items = [to_tree(item, start, end) for item in value]
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=repr)
        return Scalar(value, text, not isinstance(value, str), start, end)
    node.end = end
    return node
