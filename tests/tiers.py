"""Observable behaviour of a run in one tier, or alternating between the tiers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from smaller import smallest

from llc.vm.code.image import Image
from llc.vm.jit.codegen.translate import ONLY_INTERPRETED
from llc.vm.machine.machine import Done, Effect, OutOfFuel, Waiting
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault

# How many programs each law is tried on: `make fuzz` asks for many, and for longer runs of them.
COUNT = int(os.environ.get("LLC_FUZZ", "30"))
TICKS = 80 if COUNT < 1000 else 300
LAWS = settings(
    deadline=None, max_examples=COUNT, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


def told(outcome: Any) -> Any:
    """An outcome as data to compare, with all it says."""
    match outcome:
        case Effect():
            return ("effect", outcome.seq, outcome.kind, repr(outcome.args), outcome.span)
        case Done():
            return ("done", repr(outcome.value))
        case Fault():
            facts = (outcome.kind, outcome.message, outcome.span, outcome.backtrace, outcome.omitted)
            return ("fault", *facts, repr(outcome.details))
        case Waiting():
            return "waiting"
        case _:
            return "out of fuel"


def history(
    image: Image, args: list[Any], quantum: int | None, tier_of: Callable[[int], str], can_fail: bool = False
) -> list[Any]:
    """All there is to see of a run: outcomes, notes, ticks and, at each stop, its snapshot.

    tier_of(n): the tier for the n-th stretch; where it changes, the machine goes through JSON. can_fail:
    whether the program may be one that cannot be translated.
    """
    stretch = 0
    tier = tier_of(0)
    machine = Machine(image, args, fuel=TICKS if quantum is None else quantum, tier=tier)
    seen: list[Any] = []
    given: tuple[Any, ...] = ()
    while True:
        outcome = machine.resume(*given)
        given = ()
        seen += [told(outcome), list(machine.notes), machine.ticks]
        obstacle = machine.obstacle
        assert can_fail or obstacle is None or ONLY_INTERPRETED in obstacle, obstacle
        if machine.ended:
            return seen
        if quantum is not None or tier_of(stretch + 1) != tier:
            stored = json.dumps(machine.snapshot())
            seen.append(stored)
        machine.take_notes()
        stretch += 1
        if tier_of(stretch) != tier:
            tier = tier_of(stretch)
            left = int(machine.limit - machine.ticks)
            machine = Machine.restore(image, json.loads(json.dumps(machine.snapshot())), left, tier)
        if isinstance(outcome, OutOfFuel):
            if machine.ticks >= TICKS:
                return seen
            machine.refuel(quantum)
        elif not machine.is_ready:
            seq = max(machine.waiting)
            given = ({"a": seq, "b": [1, "x"]} if seq % 3 else None, seq)


def seen_by(found: list[Any]) -> list[Any]:
    """A history without its snapshots, which are taken where it pleases whoever asks."""
    return [one for one in found if not isinstance(one, str) or not one.startswith("{")]


def assert_alike(image: Image, quantum: int, args: list[Any], turns: int, can_fail: bool = False) -> None:
    """Both tiers, and runs that go from one to the other by the bits of `turns`, give one history."""

    def turning(stretch: int) -> str:
        return "direct" if turns >> (stretch % 24) & 1 else "interpreter"

    plain = history(image, args, quantum, lambda _: "interpreter")
    assert history(image, args, quantum, lambda _: "direct", can_fail) == plain
    assert history(image, args, quantum, lambda _: "auto", can_fail) == plain
    assert seen_by(history(image, args, quantum, turning, can_fail)) == seen_by(plain)
    # Greenlets that nobody looks into go on from effect to effect.
    whole = history(image, args, None, lambda _: "interpreter")
    assert history(image, args, None, lambda _: "direct", can_fail) == whole


def assert_flow_alike(image_of: Callable[[str], Image], text: str, quantum: int, turns: int) -> None:
    """The same of a flow's text; one that does not run alike is told as short as it can be."""

    def is_bad(text: str) -> bool:
        try:
            image = image_of(text)
        except Exception:  # no program at all, or none that can be compiled
            return False
        try:
            assert_alike(image, quantum, [], turns)
        except Exception:
            return True
        return False

    try:
        assert_alike(image_of(text), quantum, [], turns)
    except Exception as error:
        raise AssertionError(
            f"runs otherwise, {quantum} ticks at a time:\n{smallest(text, is_bad)}"
        ) from error


def stopped(image: Image, args: list[Any], fuel: int, tier: str) -> Any:
    """Where a run is when it has used so much fuel, or has ended before; effects are answered."""
    machine = Machine(image, args, fuel=fuel, tier=tier)
    seen = []
    given: tuple[Any, ...] = ()
    while True:
        outcome = machine.resume(*given)
        seen += [told(outcome), list(machine.notes), machine.ticks]
        if machine.ended:
            return seen
        if isinstance(outcome, OutOfFuel):
            return [*seen, json.dumps(machine.snapshot())]
        seq = max(machine.waiting)
        given = (seq, seq)


def assert_alike_at_any_tick(image: Image, args: list[Any], most: int) -> None:
    """Wherever fuel ends, the tiers stand at the same state with the same slots."""
    for fuel in range(1, most):
        plain = stopped(image, args, fuel, "interpreter")
        assert stopped(image, args, fuel, "direct") == plain, fuel
        if plain[2] < fuel:
            return
