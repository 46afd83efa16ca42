"""Shrink a generated program to the smallest one that still fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

Node = str | list[Any]
Path = tuple[int, ...]


def smallest(text: str, is_bad: Callable[[str], bool], seconds: float = 60) -> str:
    """`text` without all that can be left out while it is bad, as far as the time allows."""
    program = parsed(text)
    end = time.monotonic() + seconds
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for path in sorted(paths(program), key=len):
            for less in shorter(program, path):
                if time.monotonic() > end:
                    return printed(program)
                if is_bad(printed(less)):
                    program, is_smaller = less, True
                    break
            if is_smaller:
                break
    return printed(program)


def parsed(text: str) -> list[Node]:
    words = re.findall(r'"[^"]*"|[()]|[^\s()]+', text)
    open_forms: list[list[Node]] = [[]]
    for word in words:
        if word == "(":
            open_forms.append([])
        elif word == ")":
            form = open_forms.pop()
            open_forms[-1].append(form)
        else:
            open_forms[-1].append(word)
    return open_forms[0]


def printed(program: list[Node]) -> str:
    def spelled(node: Node) -> str:
        return node if isinstance(node, str) else f"({' '.join(map(spelled, node))})"

    return "\n".join(map(spelled, program))


def paths(node: Node, path: Path = ()) -> Iterator[Path]:
    if isinstance(node, list):
        for index, part in enumerate(node):
            yield (*path, index)
            yield from paths(part, (*path, index))


def shorter(program: list[Node], path: Path) -> Iterator[list[Node]]:
    """The program without the node there, and with a part of it or a plain value in its place."""
    node: Any = program
    for index in path:
        node = node[index]
    yield changed(program, path, [])
    if isinstance(node, list) and len(path) > 1:
        for part in [*node, "0", "nil"]:
            yield changed(program, path, [part])


def changed(node: Any, path: Path, given: list[Node]) -> Any:
    index = path[0]
    middle = given if len(path) == 1 else [changed(node[index], path[1:], given)]
    return [*node[:index], *middle, *node[index + 1 :]]
