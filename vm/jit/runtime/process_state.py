"""What is the whole process's and must be otherwise while machines run in the direct tier.

Machines of several threads run at once, so the first of them sets it and the last puts it back.
"""

from __future__ import annotations

import gc
import sys
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Python's own bound must not be met: depth is bounded by the machine's.
_RECURSION = 1 << 30
# After how many objects Python looks for cycles, to which nothing but boxes leads: with its own number
# that takes most of the time in which a long list is made.
_OBJECTS = 100_000


class Running:
    """Entered by each that runs; `with` it, calls may be deep and many objects be made."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.count = 0
        self.limit = 0
        self.objects = 0

    def __enter__(self) -> None:
        with self.lock:
            if not self.count:
                self.limit = sys.getrecursionlimit()
                sys.setrecursionlimit(_RECURSION)
                self.objects = gc.get_threshold()[0]
                if 0 < self.objects < _OBJECTS:
                    gc.set_threshold(_OBJECTS)
            self.count += 1

    def __exit__(self, *error: Any) -> None:
        with self.lock:
            self.count -= 1
            if not self.count:
                sys.setrecursionlimit(self.limit)
                gc.set_threshold(self.objects)


class Shallow:
    """In its place for a loop of states, which is one function: it neither goes deep nor makes much."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None: ...


RUNNING = Running()
SHALLOW = Shallow()
