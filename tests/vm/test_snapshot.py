"""Snapshots: a restored machine has the same results; forged snapshots are rejected."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws import tried
from random_ir_programs import PROGRAMS
from tiers import outcome_data

from llc.ir.nodes import Program
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.machine.machine import Done, Effect, Fault, OutOfFuel
from llc.vm.machine.snapshot import FORMAT, SnapshotError
from llc.vm.tiered import Machine

# --- runs -------------------------------------------------------------------------------------

TICKS = 60


def answer(effect: Effect) -> Any:
    """The answer of the world depends only on the effect, so that all runs get the same."""
    return {"a": effect.seq, "b": [effect.kind, effect.args]} if effect.seq % 3 else None


def uninterrupted_trace(image: Image) -> list[Any]:
    """Trace of an uninterrupted run: notes, effects, outcome, ticks."""
    machine = Machine(image, [1], fuel=TICKS)
    trace: list[Any] = []
    result = None
    while True:
        outcome = machine.resume(result)
        trace += map(repr, machine.take_notes())
        if isinstance(outcome, OutOfFuel):
            return [*trace, machine.ticks]
        trace.append(outcome_data(outcome))
        if not isinstance(outcome, Effect):
            return [*trace, machine.ticks]
        result = answer(outcome)


def restored(machine: Machine, data: bytes) -> Machine:
    """A machine restored from the snapshot and a copy of the image; its snapshot is the same."""
    snapshot = machine.snapshot()
    stored = json.dumps(snapshot)
    copy_ = Machine.restore(Image.from_bytes(data), json.loads(stored), fuel=0)
    assert json.dumps(copy_.snapshot()) == stored
    return copy_


def interrupted_trace(image: Image, quantum: int) -> list[Any]:
    """Trace of a run that is restored before its first step, at every effect and whenever fuel ends."""
    data = image.to_bytes()
    machine = restored(Machine(image, [1]), data)
    trace: list[Any] = []
    waiting: Effect | None = None
    while True:
        machine.refuel(min(quantum, TICKS - machine.ticks))
        outcome = machine.resume(answer(waiting) if waiting else None)
        waiting = None
        if isinstance(outcome, Done | Fault):
            trace += map(repr, machine.take_notes())
            return [*trace, outcome_data(outcome), machine.ticks]
        # Pending notes are part of the snapshot.
        machine = restored(machine, data)
        trace += map(repr, machine.take_notes())
        if isinstance(outcome, Effect):
            waiting = machine.effect
            assert waiting is not None
            assert outcome_data(waiting) == outcome_data(outcome)
            trace.append(outcome_data(outcome))
        elif machine.ticks >= TICKS:
            return [*trace, machine.ticks]


@given(PROGRAMS, st.integers(1, 5))
@settings(max_examples=tried(30), deadline=None, suppress_health_check=list(HealthCheck))
def test_restoring_at_every_stop_changes_nothing(program: Program, quantum: int) -> None:
    """With a JSON snapshot at every effect and end of fuel, trace, result and ticks are the same."""
    image = emit(program)
    assert interrupted_trace(image, quantum) == uninterrupted_trace(image)


# --- content ----------------------------------------------------------------------------------

TEXT = """
function main() locals(b, f, r, unset)
  state make
    b = box(null)
    f = closure inner(b)
    setbox b list(f, b)
    note cycle map("cycle", 1)
    call f(7) -> r then end
  state end
    return r
function inner(n) captures(b) locals(x)
  state ask
    perform shell map("command", "ls") -> x then end
  state end
    return list(n, x)
"""


@pytest.fixture
def stopped(image_of: Callable[[str], Image]) -> Machine:
    """A machine at an effect inside a call, with a pending note and a cyclic value."""
    machine = Machine(image_of(TEXT))
    machine.resume()
    return machine


def test_snapshot_uses_names_of_the_program(stopped: Machine) -> None:
    """Names instead of offsets; null slots are omitted; shared values are one node."""
    assert stopped.snapshot() == {
        "format": FORMAT,
        "program": "test",
        "program_hash": stopped.image.program_hash,
        "seq": 1,
        "ticks": 2,
        "effect": {"kind": "shell", "args": [3]},
        "notes": [["cycle", [4]]],
        "frames": [
            {"function": "main", "state": "make", "slots": {"b": [0], "f": [1]}},
            {"function": "inner", "state": "ask", "slots": {"n": 7, "b": [0]}},
        ],
        "heap": [
            ["box", [2]],
            ["function", "inner", [0]],
            ["list", [1], [0]],
            ["map", "command", "ls"],
            ["map", "cycle", 1],
        ],
    }


def test_a_restored_machine_keeps_sharing_and_cycles(stopped: Machine) -> None:
    """The box in both frames is one box, and contains itself."""
    machine = Machine.restore(stopped.image, stopped.snapshot())
    outer, inner = machine.frames()
    box = outer.slots["b"]
    assert inner.slots["b"] is box
    assert box.value[1] is box
    assert box.value[0] is outer.slots["f"]


def test_a_snapshot_can_be_taken_before_the_first_step(image_of: Callable[[str], Image]) -> None:
    """It contains the arguments; the entry function costs only one tick."""
    image = image_of("function main(n)\n state s\n return n")
    machine = Machine.restore(image, json.loads(json.dumps(Machine(image, [[1, 2]]).snapshot())))
    outcome = machine.resume()
    assert isinstance(outcome, Done)
    assert (outcome.value, machine.ticks) == ([1, 2], 1)


def test_deep_programs_are_stored_without_recursion(image_of: Callable[[str], Image]) -> None:
    """20,000 frames, and a closure chain and a list of that depth, through JSON."""
    image = image_of("""
        function main(n) locals(r)
          state s
            call closure down(null)(n, []) -> r then end
          state end
            return r
        function down(n, deep) captures(last) locals(r)
          state s
            branch eq(n, 0) bottom more
          state more
            deep = list(deep)
            last = closure down(last)
            call closure down(last)(sub(n, 1), deep) -> r then end
          state end
            return add(r, 1)
          state bottom
            perform clock map() -> r then give
          state give
            return 0
    """)
    machine = Machine(image, [20_000])
    machine.resume()
    machine = Machine.restore(image, json.loads(json.dumps(machine.snapshot())))
    assert len(machine.calls) == 20_002
    outcome = machine.resume(None)
    assert isinstance(outcome, Done)
    assert outcome.value == 20_000


# --- errors -----------------------------------------------------------------------------------


def test_snapshot_of_another_program_is_an_error(stopped: Machine, image_of: Callable[[str], Image]) -> None:
    """The program hash is compared."""
    with pytest.raises(SnapshotError, match="another program"):
        Machine.restore(image_of(TEXT.replace("7", "8")), stopped.snapshot())


@pytest.mark.parametrize("version", [0, FORMAT + 1, 10**30])
def test_snapshot_of_another_format_is_an_error(stopped: Machine, version: int) -> None:
    """The message lists the supported formats."""
    with pytest.raises(SnapshotError, match=f"format {version}.* 1 to {FORMAT}"):
        Machine.restore(stopped.image, {**stopped.snapshot(), "format": version})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ([], None),
        (["format"], "1"),
        (["format"], True),
        (["seq"], -1),
        (["seq"], 0),
        (["seq"], True),
        (["seq"], 10**400),
        (["ticks"], None),
        (["ticks"], 1.0),
        (["frames"], []),
        (["frames"], {}),
        (["frames", 0], None),
        (["frames", 0, "function"], "nothing"),
        (["frames", 0, "function"], ["main"]),
        (["frames", 0, "state"], "nothing"),
        (["frames", 0, "state"], {}),
        (["frames", 0, "state"], "end"),
        (["frames", 1, "state"], "end"),
        (["frames", 0, "slots"], None),
        (["frames", 0, "slots", "nothing"], 1),
        (["frames", 0, "slots", "r"], [99]),
        (["effect"], 5),
        (["effect", "kind"], "clock"),
        (["effect", "kind"], []),
        (["effect", "args"], 5),
        (["effect", "args"], [0]),
        (["effect", "args"], [1]),
        (["notes"], None),
        (["notes"], [["cycle"]]),
        (["notes"], [[1, [3]]]),
        (["notes"], [["cycle", 1]]),
        (["heap"], None),
        (["heap", 1], ["function", "inner"]),
        (["heap", 1], ["function", "nothing", 1]),
        (["heap", 1], ["function", 1, 1]),
        (["trails"], 5),
        (["trails"], [5]),
        (["trails"], [{"place": 1, "trace": [["main", "end"]], "at": 0, "omitted": 0}]),
        (["trails"], [{"place": "a", "trace": [], "at": 0, "omitted": 0}]),
        (["trails"], [{"place": "a", "trace": [["main", "end"]], "at": 99, "omitted": 0}]),
        (["trails"], [{"place": "a", "trace": [["main", "nothing"]], "at": 0, "omitted": 0}]),
        (["trails"], [{"place": "a", "trace": [["main", "end"]] * 17, "at": 0, "omitted": 0}]),
    ],
)
def test_malformed_snapshot_is_an_error(stopped: Machine, path: list[Any], value: Any) -> None:
    """Each part must be valid."""
    snapshot: Any = {"": stopped.snapshot()}
    where = snapshot
    for key in ["", *path][:-1]:
        where = where[key]
    where[["", *path][-1]] = value
    with pytest.raises(SnapshotError):
        Machine.restore(stopped.image, snapshot[""])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=2)
    | st.sampled_from(["list", "map", "box", "function", "main", "inner", "ask", "make", "end", "b", "shell"])
    | st.integers(0, 5).map(lambda index: [index]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("bfnrx"), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
@settings(max_examples=tried(66), deadline=None, suppress_health_check=list(HealthCheck))
def test_forged_snapshot_is_rejected_or_runs(stopped: Machine, data: st.DataObject) -> None:
    """Parts are replaced, removed or duplicated: SnapshotError, or a machine that runs to an outcome."""
    snapshot = copy.deepcopy(stopped.snapshot())
    for _ in range(data.draw(st.integers(1, 3))):
        where: Any = snapshot
        while True:
            key = data.draw(st.sampled_from(list(where) if isinstance(where, dict) else range(len(where))))
            if isinstance(where[key], dict | list) and where[key] and data.draw(st.integers(0, 3)):
                where = where[key]
                continue
            match data.draw(st.sampled_from(["replace", "replace", "remove", "double"])):
                case "replace":
                    where[key] = data.draw(JSON)
                case "remove" if len(where) > 1:
                    del where[key]
                case "double" if isinstance(where, list):
                    where.insert(key, where[key])
            break
    try:
        machine = Machine.restore(stopped.image, snapshot, fuel=100)
    except SnapshotError:
        return
    json.dumps(machine.snapshot())
    result = None
    for _ in range(100):
        outcome = machine.resume(result)
        if not isinstance(outcome, Effect):
            return
        result = {}
