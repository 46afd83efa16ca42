"""How large a value may become, and how deep calls go: bounds that hold by default and that a host may set.

A program that doubles something in a loop faults here before it fills the machine's memory. Code
that makes a text, an integer or a list checks first.

The bounds belong to the process. They are part of what a program does: a run that is resumed under
lower bounds may fault where it did not.
"""

from __future__ import annotations

import sys

from .faults import PrimitiveFault

# Characters of a text, bits of an integer, items of a list, calls inside one another.
MAX_TEXT = 1 << 27
MAX_BITS = 1 << 17
MAX_ITEMS = 1 << 23
MAX_CALLS = 1 << 20


def allow_digits() -> None:
    """Let Python read and write every integer that a program may have in decimal.

    Its own limit, 4,300 digits, is for integers from outside without a bound; `MAX_BITS` is the bound here.
    """
    digits = MAX_BITS * 30103 // 100_000 + 2
    if 0 < sys.get_int_max_str_digits() < digits:
        sys.set_int_max_str_digits(digits)


allow_digits()


def set_bounds(
    text: int | None = None, bits: int | None = None, items: int | None = None, calls: int | None = None
) -> None:
    """Other bounds from now on; None leaves one as it is. ValueError below 1."""
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
