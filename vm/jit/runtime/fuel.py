"""The ticks of a machine in the direct tier: texts take them from what is at hand (`text.tick`), and ask here
where that is at an end.

Must not be in here: what runs, and what becomes of it when it stops (`tier`).
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
from .library import Library

TAILCALL = BY_NAME["TAILCALL"].number
# Frames left over from tail calls are looked for from this depth on, among so many.
DEEP = 5_000
_SAMPLE = 1_000
# The most rounds at one go of a loop that counts.
_ROUNDS = 1 << 16

# Why a greenlet stops: for want of fuel, or to have its frames settled.
OUT = OutOfFuel()
SETTLE = object()


# Python goes over a tuple as quickly as over anything, from 3.12 on more so.
_TICKS = (None,) * SLICE


def ticks(count: int) -> Iterator[None]:
    """So many ticks, at most a slice of them."""
    found = iter(_TICKS)
    found.__setstate__(SLICE - count)  # type: ignore[attr-defined]
    return found


def _drop(ticks: Iterator[None], count: int) -> int:
    """Take so many ticks away, or all there are; how many."""
    count = max(0, min(count, length_hint(ticks)))
    deque(islice(ticks, count), maxlen=0)
    return count


class Ticks:
    """Those at hand, and those used. host: the greenlet that the machine runs in."""

    def __init__(self, machine: Machine, library: Library) -> None:
        self.machine = machine
        self.library = library
        self.host = getcurrent()
        # What was at hand when it was last counted: ticks, and pairs of them; and how many came back since.
        self.left = self.left_two = self.returned = 0
        self.deep = DEEP
        self.depth = 0
        self.names = library.names
        self.names |= {
            "OUT": self.out,
            "MORE": self.more,
            "MORE_TWO": self.more_two,
            "BACK": self.back,
            "PORTION": self.portion,
            "GIVE": self.give,
        }

    # Loops go over `tick`, or over `tick_two` if they use two at once (`doubled`). So one is replaced only
    # once nothing is left of it.

    def allow(self) -> None:
        """Have as many ticks at hand as the machine may use, or fewer; at least one more is left to it."""
        machine, names = self.machine, self.names
        allowed = int(min(machine.limit - machine.ticks, SLICE)) - 1
        left, left_two = length_hint(names["tick"]), length_hint(names["tick_two"])
        if left and left + 2 * left_two <= allowed and (left_two or not self.library.doubles):
            self.left, self.left_two = left, left_two
            return
        if left + 2 * left_two > allowed:
            left_two -= _drop(names["tick_two"], (left + 2 * left_two - allowed + 1) // 2)
            left -= _drop(names["tick"], left + 2 * left_two - allowed)
        room = allowed - left - 2 * left_two
        if not left:
            left = room - room // 2 if self.library.doubles and not left_two else room
            names["tick"] = ticks(left)
            room -= left
        if not left_two:
            left_two = room // 2
            names["tick_two"] = ticks(left_two)
        self.left, self.left_two = left, left_two

    def count(self) -> None:
        """Count the ticks that were used."""
        left, left_two = length_hint(self.names["tick"]), length_hint(self.names["tick_two"])
        used = self.left - left + 2 * (self.left_two - left_two) - self.returned
        self.machine.ticks += used
        self.depth += used
        self.left, self.left_two, self.returned = left, left_two, 0

    def back(self) -> None:
        """A tick that was taken is not used."""
        self.returned += 1

    def portion(self, rounds: int, each: int, paid: int, *room: int) -> int:
        """How many rounds of a loop that counts are done now, for which there must be room. Their ticks, so
        many for each, are used, but for those that have been or are as the loop goes round.

        These are not those at hand, but others that the machine may use.
        """
        machine = self.machine
        rounds = min(rounds, _ROUNDS, *room)
        used = rounds * each - paid
        spare = machine.limit - machine.ticks - self.left - 2 * self.left_two - 1
        if used > spare:
            self.count()
            spare += _drop(self.names["tick"], self.left) + 2 * _drop(self.names["tick_two"], self.left_two)
            self.left = self.left_two = 0
            rounds = min(rounds, int((spare + paid) // each))
            used = rounds * each - paid
        if rounds < 1:  # the interpreter does the next ones; what is given may be longer than a list may be
            self.count()
            machine.ticks -= paid - 1
            self.host.switch(DEEPER)
        machine.ticks += used
        return rounds

    def give(self, ticks: int) -> None:
        """Ticks that were used are not."""
        self.machine.ticks -= ticks

    def out(self) -> None:
        """A tick that was not there any more."""
        machine = self.machine
        self.count()
        machine.ticks += 1
        # Looked at first: a host may give fuel in portions that are smaller than any depth.
        if self.depth > self.deep and self.is_worth_settling(sys._getframe(1)):
            self.host.switch(SETTLE)
        elif machine.ticks >= machine.limit:
            self.host.switch(OUT)
        else:
            self.allow()

    def more(self) -> None:
        """A tick that was not there any more for a loop that takes it itself when this returns."""
        if length_hint(self.names["tick"]):  # the loop went over ticks of an earlier time
            return
        self.out()
        self.names["tick"] = ticks(self.left + 1)

    def more_two(self) -> None:
        """Two ticks that were not there any more for a loop that takes both when this returns."""
        names, machine = self.names, self.machine
        if length_hint(names["tick_two"]):
            return
        self.count()
        if not (self.depth > self.deep and self.is_worth_settling(sys._getframe(1))):
            _drop(names["tick"], self.left // 2 + 1)
            self.allow()
            if self.left_two:
                return
        # One at a time from here on: the loop is entered anew at its head.
        machine.ticks += 1
        if machine.ticks >= machine.limit:
            self.host.switch(OUT)
        self.host.switch(SETTLE)

    def is_worth_settling(self, frame: FrameType | None) -> bool:
        """Whether most of many frames are left over from tail calls, or the machine's bound is near.

        Looks at the innermost ones only; `depth` is how many there may be at most.
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
        """Whether nothing of a frame that called another is needed: it did so by a tail call."""
        places = self.library.codes[code][line]
        return not places or (len(places) == 1 and self.is_tail(*places[0][:2]))

    def is_tail(self, function: int, offset: int) -> bool:
        return self.machine.image.functions[function].code[offset] == TAILCALL
