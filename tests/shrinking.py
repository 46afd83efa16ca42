"""Shrink a generated program to the smallest one that still fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

Node = str | list[Any]
Path = tuple[int, ...]


def shrink(text: str, is_bad: Callable[[str], bool], seconds: float = 60) -> str:
    """Remove parts of `text` while `is_bad` holds, until nothing can be removed or the time is over."""
    program = parse(text)
    end = time.monotonic() + seconds
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for path in sorted(paths(program), key=len):
            for candidate in smaller_programs(program, path):
                if time.monotonic() > end:
                    return to_text(program)
                if is_bad(to_text(candidate)):
                    program, is_smaller = candidate, True
                    break
            if is_smaller:
                break
    return to_text(program)


def parse(text: str) -> list[Node]:
    tokens = re.findall(r'"[^"]*"|[()]|[^\s()]+', text)
    open_forms: list[list[Node]] = [[]]
    for token in tokens:
        if token == "(":
            open_forms.append([])
        elif token == ")":
            form = open_forms.pop()
            open_forms[-1].append(form)
        else:
            open_forms[-1].append(token)
    return open_forms[0]


def to_text(program: list[Node]) -> str:
    def node_text(node: Node) -> str:
        return node if isinstance(node, str) else f"({' '.join(map(node_text, node))})"

    return "\n".join(map(node_text, program))


def paths(node: Node, path: Path = ()) -> Iterator[Path]:
    if isinstance(node, list):
        for index, part in enumerate(node):
            yield (*path, index)
            yield from paths(part, (*path, index))


def smaller_programs(program: list[Node], path: Path) -> Iterator[list[Node]]:
    """Programs without the node at a path, and with one of its parts or a constant in its place."""
    node: Any = program
    for index in path:
        node = node[index]
    yield replaced(program, path, [])
    if isinstance(node, list) and len(path) > 1:
        for part in [*node, "0", "nil"]:
            yield replaced(program, path, [part])


def replaced(node: Any, path: Path, replacement: list[Node]) -> Any:
    index = path[0]
    middle = replacement if len(path) == 1 else [replaced(node[index], path[1:], replacement)]
    return [*node[:index], *middle, *node[index + 1 :]]
