"""The text of a Python function, built from statements, with the frames of the machine at each line."""

from __future__ import annotations

import re
from types import FrameType

from ..model.function import Function, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

# A line, or a compound statement: (head such as `if x`, body).
Statement: TypeAlias = "str | tuple[str, list[Statement]] | Arrival"

MARK = "\x01"
_MARK = re.compile(MARK + "(\\d+)\x02")
_INDENT = " "
# Offsets are smaller; a mark above this value also encodes the ticks charged in advance (`Function.ahead`).
PREPAID = 1 << 50


class Text:
    """The text of a function called `name`.

    places: the frames of the machine at each line. uses: the versions of functions that it calls.
    """

    def __init__(self, name: str, function: Function, statements: list[Statement]) -> None:
        self.name = name
        self.uses: set[str] = set()
        lines: list[str] = []
        # Line numbers start at 1.
        offsets = [0]
        todo: list[tuple[int, Statement]] = [(0, statement) for statement in reversed(statements)]
        offset = 0
        while todo:
            depth, statement = todo.pop()
            if isinstance(statement, tuple):
                head, body = statement
                todo += [(depth + 1, inner) for inner in reversed(body or ["pass"])]
                line = f"{head}:"
            elif isinstance(statement, Arrival):
                if not statement.is_needed:
                    line = "pass"
                else:
                    line = f"at = {statement.target}"
            else:
                line = statement
            for index, part in enumerate(_MARK.split(_INDENT * depth + line)):
                if index % 2:
                    offset = int(part)
                else:
                    lines.append(part)
                    offsets.append(offset)
        self.places = Places(function, offsets)
        self.source = "\n".join(lines) + "\n"


class Places:
    """The frames of the machine at each line of a text, from `Function.frames`."""

    def __init__(self, function: Function, offsets: list[int]) -> None:
        self.function = function
        self.offsets = offsets
        self.cache: dict[int, tuple[Place, ...]] = {}

    def unused_ticks(self, line: int, frame: FrameType) -> int:
        """The number of ticks that were charged in advance for code after a line (`counted_loops`)."""
        number = self.offsets[line] // PREPAID
        return self.function.prepaid_ticks[number - 1].ticks(frame.f_locals) if number else 0

    def has_prepaid(self, line: int) -> bool:
        """Whether ticks may have been charged in advance for code after a line."""
        return self.offsets[line] >= PREPAID

    def __getitem__(self, line: int) -> tuple[Place, ...]:
        offset = self.offsets[line] % PREPAID
        frames = self.cache.get(offset)
        if frames is None:
            frames = self.cache[offset] = self.function.frames(offset)
        return frames


def mark(offset: int) -> str:
    """Marker of the instruction at an offset, written before its expression."""
    return f"{MARK}{offset}\x02"


class Arrival:
    """The assignment `at = target`, emitted only if `at` is read."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.is_needed = False


class ArrivalDemand(Arrival):
    """Marks that later arrivals at a state must also assign `at`."""

    def __init__(self) -> None:
        super().__init__(-1)


def grow(name: str, base: str) -> str:
    """The statement that begins a growing list (`uniqueness.grow`); the empty list needs no call."""
    if base in ("NIL", "None"):
        made = f"[{base}], MAX_ITEMS"
    elif base.isidentifier():
        made = f"([NIL], MAX_ITEMS) if {base} is NIL else GROW({base})"
    else:
        made = f"GROW({base})"
    return f"{name}, m{name[1:]} = {made}"


def tick(offset: int) -> list[Statement]:
    return [("for _ in tick", ["break"]), ("else", [f"({mark(offset)}OUT())"])]
