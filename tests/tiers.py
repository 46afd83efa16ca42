"""Observable behaviour of a run in one tier, or alternating between the tiers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from shrinking import shrink

from llc.vm.code.image import Image
from llc.vm.jit.codegen.translate import ONLY_INTERPRETED
from llc.vm.machine.machine import Done, Effect, OutOfFuel, Waiting
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault

# Number of generated programs per law; `make fuzz` runs many, with longer runs.
COUNT = int(os.environ.get("LLC_FUZZ", "30"))
TICKS = 80 if COUNT < 1000 else 300
LAWS = settings(
    deadline=None, max_examples=COUNT, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


def outcome_data(outcome: Any) -> Any:
    """An outcome as comparable data with all of its fields."""
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
    """Observable behaviour of a run: outcomes, notes, ticks and the snapshot at each stop.

    Args:
        tier_of: The tier for the n-th stretch; at a change the machine is restored from JSON.
        can_fail: Whether the program may be untranslatable.
    """
    stretch = 0
    tier = tier_of(0)
    machine = Machine(image, args, fuel=TICKS if quantum is None else quantum, tier=tier)
    seen: list[Any] = []
    answer: tuple[Any, ...] = ()
    while True:
        outcome = machine.resume(*answer)
        answer = ()
        seen += [outcome_data(outcome), list(machine.notes), machine.ticks]
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
            remaining = int(machine.limit - machine.ticks)
            machine = Machine.restore(image, json.loads(json.dumps(machine.snapshot())), remaining, tier)
        if isinstance(outcome, OutOfFuel):
            if machine.ticks >= TICKS:
                return seen
            machine.refuel(quantum)
        elif not machine.is_ready:
            seq = max(machine.waiting)
            answer = ({"a": seq, "b": [1, "x"]} if seq % 3 else None, seq)


def without_snapshots(entries: list[Any]) -> list[Any]:
    """A history without its snapshots, whose positions depend on the stops."""
    return [entry for entry in entries if not isinstance(entry, str) or not entry.startswith("{")]


def assert_tiers_agree(
    image: Image, quantum: int, args: list[Any], turns: int, can_fail: bool = False
) -> None:
    """All tiers, and runs that switch tiers by the bits of `turns`, have the same history."""

    def alternate(stretch: int) -> str:
        return "direct" if turns >> (stretch % 24) & 1 else "interpreter"

    expected = history(image, args, quantum, lambda _: "interpreter")
    assert history(image, args, quantum, lambda _: "direct", can_fail) == expected
    assert history(image, args, quantum, lambda _: "auto", can_fail) == expected
    assert without_snapshots(history(image, args, quantum, alternate, can_fail)) == without_snapshots(
        expected
    )
    # Without fuel limits the JIT tier runs from effect to effect in a greenlet.
    expected = history(image, args, None, lambda _: "interpreter")
    assert history(image, args, None, lambda _: "direct", can_fail) == expected


def assert_flow_tiers_agree(image_of: Callable[[str], Image], text: str, quantum: int, turns: int) -> None:
    """Like `assert_tiers_agree` for the text of a flow; a counterexample is shrunk."""

    def is_bad(text: str) -> bool:
        try:
            image = image_of(text)
        except Exception:  # not a valid program
            return False
        try:
            assert_tiers_agree(image, quantum, [], turns)
        except Exception:
            return True
        return False

    try:
        assert_tiers_agree(image_of(text), quantum, [], turns)
    except Exception as error:
        raise AssertionError(
            f"tiers disagree with {quantum} ticks at a time:\n{shrink(text, is_bad)}"
        ) from error


def events_until_fuel_ends(image: Image, args: list[Any], fuel: int, tier: str) -> Any:
    """Events of a run, and its snapshot when the fuel is used up; effects are answered."""
    machine = Machine(image, args, fuel=fuel, tier=tier)
    events = []
    answer: tuple[Any, ...] = ()
    while True:
        outcome = machine.resume(*answer)
        events += [outcome_data(outcome), list(machine.notes), machine.ticks]
        if machine.ended:
            return events
        if isinstance(outcome, OutOfFuel):
            return [*events, json.dumps(machine.snapshot())]
        seq = max(machine.waiting)
        answer = (seq, seq)


def assert_tiers_agree_at_any_tick(image: Image, args: list[Any], max_fuel: int) -> None:
    """Whenever the fuel ends, the tiers stop in the same state with equal slots."""
    for fuel in range(1, max_fuel):
        expected = events_until_fuel_ends(image, args, fuel, "interpreter")
        assert events_until_fuel_ends(image, args, fuel, "direct") == expected, fuel
        if expected[2] < fuel:
            return
