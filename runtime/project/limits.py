"""Limits of a run that its program cannot change: fuel, depth of calls, size of values.

`--fuel`, `--max-depth` and `--max-size` set them, else `LLC_FUEL`, `LLC_MAX_DEPTH` and `LLC_MAX_SIZE`, else
there are defaults. A run records its limits, because its results depend on them: a resumed or replayed run
has the same. Only fuel, which no program can see, can be changed on resume. `spec/flows.md`.
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

# Hours of pure computation; a run that performs effects comes nowhere near it.
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
    """The most iterations of the program, as "", and of each loop that it runs within itself."""
    most = {loop["name"]: loop["limits"].get("max_iterations") for loop in meta.get("loops", ())}
    return {**most, "": meta["limits"].get("max_iterations")}


def budget_limits(meta: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, float | None]:
    """For each unit of a budget the lower one of the limits of the program and of the run, if it has any."""
    limits = meta.get("limits", {})
    found: dict[str, float | None] = {}
    for unit in UNITS:
        known = [limits.get(f"budget_{unit}"), given.get(unit)]
        found[unit] = min((bound for bound in known if isinstance(bound, int | float)), default=None)
    return found


class Bounds:
    """fuel: ticks a run may use in all. depth: calls inside one another. size: items of a list; texts and
    integers are bounded in proportion.
    """

    def __init__(self, fuel: int | None = None, depth: int | None = None, size: int | None = None) -> None:
        self.fuel = fuel or FUEL
        self.depth = depth or DEPTH
        self.size = size or SIZE

    @classmethod
    def asked(cls, values: Values) -> Bounds:
        """What a command's options say, else the environment. Raises UserError."""
        return cls(*(getattr(values, name) or _variable(variable) for name, variable in _VARIABLES))

    @classmethod
    def recorded(cls, start: dict[str, Any], fuel: int | None = None) -> Bounds:
        """What a run began with, by its `run_start`; `fuel` is given anew."""
        limits = start.get("limits")
        found = limits if isinstance(limits, dict) else {}
        given = [value if type(value) is int and value > 0 else None for value in map(found.get, _RECORDED)]
        return cls(fuel or _variable("LLC_FUEL") or given[0], *given[1:])

    def as_record(self) -> dict[str, int]:
        """Those that are not the default, for `run_start`."""
        pairs = zip(_RECORDED, ((self.fuel, FUEL), (self.depth, DEPTH), (self.size, SIZE)), strict=True)
        return {name: value for name, (value, default) in pairs if value != default}

    def apply(self) -> None:
        """Set them in this process. The machine itself is given its fuel."""
        bounds.set_bounds(
            text=self.size * _CHARACTERS,
            bits=max(_LEAST_BITS, self.size // _PER_BIT),
            items=self.size,
            calls=self.depth,
        )


class keeping:
    """Context in which bounds may be applied; afterwards those hold that did before."""

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
