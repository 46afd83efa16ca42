"""A golden trace contains enough to execute its program again, without or with snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden_cases import CASES, compile_case, trace_of, values_of, worlds

from llc.ir.effects import NOTES
from llc.runtime.journal.position import event_fields
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine

RUNNING = [case for case in CASES if worlds(case)]


def replayed(image: Image, results: list[Any], in_pieces: bool) -> list[dict[str, Any]]:
    """Notes of an execution with recorded results; in_pieces: restore from a snapshot at every effect."""
    machine = Machine(image)
    outcome = machine.resume()
    noted = []
    for result in results:
        noted += machine.take_notes()
        assert isinstance(outcome, Effect)
        if in_pieces:
            machine = Machine.restore(image, json.loads(json.dumps(machine.snapshot())))
        outcome = machine.resume(result)
    noted += machine.take_notes()
    return [{"event": kind, **event_fields(kind, fields)} for kind, fields in noted]


@pytest.mark.parametrize("case", RUNNING, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_a_trace_can_be_replayed(case: Path) -> None:
    """A new machine with the recorded results makes the recorded notes, also if it is restored at every
    effect.
    """
    for world in worlds(case):
        lines = trace_of(world).read_text("utf-8").splitlines()
        events = [event for event in map(json.loads, lines) if "event" in event]
        notes = [event for event in events if event["event"] in NOTES]
        results = [
            event["result"] for event in events if event["event"].endswith("_complete") and "seq" in event
        ]
        image = emit(compile_case(case, values_of(world)).program)
        for in_pieces in (False, True):
            assert replayed(image, results, in_pieces) == notes, (world.name, in_pieces)
