"""Size limits of values and depth limits of calls, with defaults that a host can change.

A program that doubles something in a loop faults at these limits before it fills the memory. Code
that creates a text, an integer or a list checks its size first.

The limits apply to the process. They are part of the behaviour of a program: a run that is resumed with
lower limits can fault where it did not before.
"""

from __future__ import annotations

import sys

from .faults import PrimitiveFault

# Characters of a text, bits of an integer, items of a list, nested calls.
MAX_TEXT = 1 << 27
MAX_BITS = 1 << 17
MAX_ITEMS = 1 << 23
MAX_CALLS = 1 << 20


def allow_digits() -> None:
    """Raise Python's limit for decimal conversion to the largest integer of a program.

    Python's default limit, 4,300 digits, protects against unbounded input; here `MAX_BITS` is the limit.
    """
    digits = MAX_BITS * 30103 // 100_000 + 2
    if 0 < sys.get_int_max_str_digits() < digits:
        sys.set_int_max_str_digits(digits)


allow_digits()


def set_bounds(
    text: int | None = None, bits: int | None = None, items: int | None = None, calls: int | None = None
) -> None:
    """Set limits; None leaves a limit unchanged. Raises ValueError for values below 1."""
    global MAX_TEXT, MAX_BITS, MAX_ITEMS, MAX_CALLS
    if any(bound is not None and bound < 1 for bound in (text, bits, items, calls)):
        raise ValueError("a bound is at least 1")
    MAX_TEXT = MAX_TEXT if text is None else text
    MAX_BITS = MAX_BITS if bits is None else bits
    MAX_ITEMS = MAX_ITEMS if items is None else items
    MAX_CALLS = MAX_CALLS if calls is None else calls
    allow_digits()


def check_text(characters: int) -> None:
    if characters > MAX_TEXT:
        raise PrimitiveFault("too-large", f"a text of more than {MAX_TEXT} characters")


def check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise PrimitiveFault("too-large", f"an integer of more than {MAX_BITS} bits")


def check_items(count: int) -> None:
    if count > MAX_ITEMS:
        raise PrimitiveFault("too-large", f"a list of more than {MAX_ITEMS} items")
