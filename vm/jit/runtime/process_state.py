"""Process-wide settings of Python while machines run in the compiled tier.

Machines can run in several threads: the first one changes the settings, and the last one restores them.
"""

from __future__ import annotations

import gc
import sys
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Python's recursion limit must not be reached: the machine limits the depth.
_RECURSION = 1 << 30
# Threshold of the cyclic garbage collector. Only boxes can form cycles; with Python's default, most of the
# time to build a long list is spent on collection.
_OBJECTS = 100_000


class Running:
    """Context in which calls may be deep and many objects may be created."""

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
    """Substitute for a program that is a single loop function, which neither recurses nor creates many
    objects.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None: ...


RUNNING = Running()
SHALLOW = Shallow()
