"""Fuel accounting in the compiled tier. Translated code takes ticks from an iterator, which is refilled here.

Must not contain: execution and its outcomes (`tier`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from types import CodeType, FrameType

from greenlet import getcurrent

from ...code.opcodes import BY_NAME
from ...machine.machine import DEEPER, SLICE, Machine
from ...machine.outcomes import OutOfFuel
from .functions import Library

TAILCALL = BY_NAME["TAILCALL"].number
# Dead frames of tail calls are searched for from this stack depth on, among the innermost _SAMPLE frames.
DEEP = 5_000
_SAMPLE = 1_000
# Largest batch of a counted loop.
_ROUNDS = 1 << 16

# Reasons why a greenlet stops: no fuel, or a request to settle its frames.
OUT = OutOfFuel()
SETTLE = object()


# Iterating over a tuple is as fast as any iteration, and faster from Python 3.12 on.
_TICKS = (None,) * SLICE


def ticks(count: int) -> Iterator[None]:
    """An iterator over `count` ticks, at most a slice."""
    found = iter(_TICKS)
    found.__setstate__(SLICE - count)  # type: ignore[attr-defined]
    return found


def _drop(ticks: Iterator[None], count: int) -> int:
    """Remove at most `count` ticks; return the number removed."""
    count = max(0, min(count, length_hint(ticks)))
    deque(islice(ticks, count), maxlen=0)
    return count


class Ticks:
    """Fuel accounting of a machine in the compiled tier. host: the greenlet that the machine runs in.

    Translated code takes ticks from the iterator `tick`, which holds at most a slice of the machine's fuel.
    """

    def __init__(self, machine: Machine, library: Library) -> None:
        self.machine = machine
        self.library = library
        self.host = getcurrent()
        # Ticks in `tick` when they were last counted, and ticks that were returned since then.
        self.left = self.returned = 0
        self.deep = DEEP
        self.depth = 0
        self.names = library.names
        self.names |= {"OUT": self.out, "MORE": self.more, "PORTION": self.portion, "GIVE": self.give}

    def allow(self) -> None:
        """Fill `tick` with a slice of the machine's fuel; at least one more tick is left to the machine.

        Loops iterate over `tick`, so it is replaced only when it is exhausted.
        """
        machine, names = self.machine, self.names
        allowed = int(min(machine.limit - machine.ticks, SLICE)) - 1
        left = length_hint(names["tick"])
        if left > allowed:
            left -= _drop(names["tick"], left - allowed)
        if not left:
            left = allowed
            names["tick"] = ticks(left)
        self.left = left

    def count(self) -> None:
        """Add the ticks that were used since the last call to the machine's."""
        left = length_hint(self.names["tick"])
        used = self.left - left - self.returned
        self.machine.ticks += used
        self.depth += used
        self.left, self.returned = left, 0

    def portion(self, rounds: int, each: int, *room: int) -> int:
        """Charge a batch of iterations of a counted loop and return their number, at most `rounds` and each
        of `room`. An iteration costs `each` ticks; the first tick has been charged already.

        The ticks are not taken from `tick` but from the rest of the machine's fuel.
        """
        machine = self.machine
        rounds = min(rounds, _ROUNDS, *room)
        used = rounds * each - 1
        spare = machine.limit - machine.ticks - self.left - 1
        if used > spare:
            self.count()
            spare += _drop(self.names["tick"], self.left)
            self.left = 0
            rounds = min(rounds, int((spare + 1) // each))
            used = rounds * each - 1
        if rounds < 1:  # the interpreter runs the next iterations: `room` may exceed the limit of a list
            self.count()
            self.host.switch(DEEPER)
        machine.ticks += used
        return rounds

    def give(self, ticks: int) -> None:
        """Return ticks that were charged and not used."""
        self.machine.ticks -= ticks

    def out(self) -> None:
        """`tick` is exhausted: charge one more tick and refill it, or stop."""
        machine = self.machine
        self.count()
        machine.ticks += 1
        # Tested first: a host may grant fuel in portions that are smaller than the stack depth.
        if self.depth > self.deep and self.is_worth_settling(sys._getframe(1)):
            self.host.switch(SETTLE)
        elif machine.ticks >= machine.limit:
            self.host.switch(OUT)
        else:
            self.allow()

    def more(self) -> None:
        """`tick` is exhausted: refill it for a loop that takes the tick itself."""
        if length_hint(self.names["tick"]):  # the loop iterated over an older iterator
            return
        self.out()
        self.names["tick"] = ticks(self.left + 1)

    def is_worth_settling(self, frame: FrameType | None) -> bool:
        """Whether most frames are dead frames of tail calls, or the machine's depth limit is near.

        Samples only the innermost frames; `depth` is an upper bound of their number.
        """
        frames = dead = 0
        while frame is not None and frames < _SAMPLE:
            places = self.library.codes.get(frame.f_code)
            if places is not None:
                dead += frames > 0 and self.is_dead(frame.f_code, frame.f_lineno)
                frames += len(places[frame.f_lineno])
            frame = frame.f_back
        settled = len(self.machine.calls)
        if frame is None:
            self.depth = settled + frames
            return False
        if 2 * dead > frames or self.depth + 2 * SLICE > self.machine.room:
            return True
        self.deep = min(2 * self.deep, self.machine.room - 2 * SLICE)
        return False

    def is_dead(self, code: CodeType, line: int) -> bool:
        """Whether a calling frame is dead because its call is a tail call."""
        places = self.library.codes[code][line]
        return not places or (len(places) == 1 and self.is_tail(*places[0][:2]))

    def is_tail(self, function: int, offset: int) -> bool:
        return self.machine.image.functions[function].code[offset] == TAILCALL
