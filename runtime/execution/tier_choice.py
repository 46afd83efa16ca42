"""Choice of a run's tier by `--tier` or `LLC_TIER`, and its report with `--verbose`.

The results of the tiers are identical (`spec/machine.md`), so no record names the tier.
"""

from __future__ import annotations

from ...vm.machine.machine import TIERS, Machine
from ..host import environment
from ..host.errors import UserError, suggest

VARIABLE = "LLC_TIER"


def requested_tier(option: str | None) -> str:
    """The tier of the option, or else of the environment. Raises UserError."""
    name, tier = (
        ("--tier", option) if option is not None else (VARIABLE, environment.environ.get(VARIABLE) or "auto")
    )
    if tier not in TIERS:
        known = "interpreter, direct or auto"
        raise UserError("bad-option", f"{name} is {known}, not `{tier[:40]}`", suggest(tier, TIERS, "tiers"))
    return tier


def describe_tier(machine: Machine, tier: str) -> str:
    """A sentence about the tier of a finished run. tier: the requested tier."""
    if machine.tier == "direct":
        return f"the program ran in the direct tier ({machine.ticks:,} ticks)"
    text = f"the program ran in the interpreter ({machine.ticks:,} ticks)"
    if tier == "interpreter":
        return f"{text}, as requested"
    if machine.obstacle is not None:
        return f"{text}: it cannot be translated: {machine.obstacle}"
    return f"{text}: translation starts after {TIERS['auto']:,} ticks and effects"
