"""Limits of a run that its program cannot change: fuel, call depth, size of values.

The options `--fuel`, `--max-depth` and `--max-size` set them; without an option, `LLC_FUEL`, `LLC_MAX_DEPTH`
and `LLC_MAX_SIZE`; otherwise the defaults apply. A run records its limits because its results depend on them,
so a resumed or replayed run has the same limits. Only fuel, which no program can observe, can be changed on
resume. See `spec/flows.md`.
"""

from __future__ import annotations

from ...ir.effects import UNITS
from ...vm.values import bounds
from ..host import environment
from ..host.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .options import Values

# Hours of pure computation; far more than a run that performs effects uses.
FUEL = 10_000_000_000
DEPTH = bounds.MAX_CALLS
SIZE = bounds.MAX_ITEMS
# Characters of a text per item of a list; items of a list per bit of an integer.
_CHARACTERS = bounds.MAX_TEXT // bounds.MAX_ITEMS
_PER_BIT = bounds.MAX_ITEMS // bounds.MAX_BITS
# Fewer bits would refuse ordinary integers.
_LEAST_BITS = 1024

_VARIABLES = (("fuel", "LLC_FUEL"), ("max_depth", "LLC_MAX_DEPTH"), ("max_size", "LLC_MAX_SIZE"))


def iteration_limits(meta: Mapping[str, Any]) -> dict[str, int | None]:
    """The iteration limits of each inner loop, by name, and of the program itself, under ""."""
    inner = {loop["name"]: loop["limits"].get("max_iterations") for loop in meta.get("loops", ())}
    return {**inner, "": meta["limits"].get("max_iterations")}


def budget_limits(meta: Mapping[str, Any], run_limits: Mapping[str, Any]) -> dict[str, float | None]:
    """The lower limit of program and run for each budget unit; None for a unit without a limit."""
    limits = meta.get("limits", {})
    lower: dict[str, float | None] = {}
    for unit in UNITS:
        both = [limits.get(f"budget_{unit}"), run_limits.get(unit)]
        lower[unit] = min((bound for bound in both if isinstance(bound, int | float)), default=None)
    return lower


class Bounds:
    """Limits of one run; None for the default.

    fuel: total number of ticks. depth: maximum call depth. size: maximum number of items of a list; the
    limits of texts and integers are proportional to it.
    """

    def __init__(self, fuel: int | None = None, depth: int | None = None, size: int | None = None) -> None:
        self.fuel = fuel or FUEL
        self.depth = depth or DEPTH
        self.size = size or SIZE

    @classmethod
    def of_options(cls, values: Values) -> Bounds:
        """The limits from a command's options, or else from the environment. Raises UserError."""
        return cls(*(getattr(values, name) or _variable(variable) for name, variable in _VARIABLES))

    @classmethod
    def of_record(cls, start: dict[str, Any], fuel: int | None = None) -> Bounds:
        """The limits that a `run_start` event records; `fuel`, if set, replaces the recorded fuel."""
        limits = start.get("limits")
        record = limits if isinstance(limits, dict) else {}
        values = [value if type(value) is int and value > 0 else None for value in map(record.get, _RECORDED)]
        return cls(fuel or _variable("LLC_FUEL") or values[0], *values[1:])

    def as_record(self) -> dict[str, int]:
        """The limits that differ from the defaults, for `run_start`."""
        pairs = zip(_RECORDED, ((self.fuel, FUEL), (self.depth, DEPTH), (self.size, SIZE)), strict=True)
        return {name: value for name, (value, default) in pairs if value != default}

    def apply(self) -> None:
        """Set the limits in this process, except fuel, which the machine receives separately."""
        bounds.set_bounds(
            text=self.size * _CHARACTERS,
            bits=max(_LEAST_BITS, self.size // _PER_BIT),
            items=self.size,
            calls=self.depth,
        )


class restoring_bounds:
    """Context manager that restores the bounds of this process on exit."""

    def __enter__(self) -> None:
        names = ("text", "bits", "items", "calls")
        self._before = {name: getattr(bounds, f"MAX_{name.upper()}") for name in names}

    def __exit__(self, *error: object) -> None:
        bounds.set_bounds(**self._before)


_RECORDED = ("fuel", "depth", "size")


def _variable(name: str) -> int | None:
    text = environment.environ.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text)):
        raise UserError("bad-option", f"{name} is a number of 1 or more, not `{text[:40]}`")
    return int(text)
