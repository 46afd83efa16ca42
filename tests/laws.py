"""How many examples of a law the tests try; `make fuzz` tries `LLC_LAWS` times as many."""

from __future__ import annotations

import os

_FACTOR = int(os.environ.get("LLC_LAWS", "1"))


def tried(count: int) -> int:
    """The number of examples where `make test` tries `count`."""
    return count * _FACTOR
