"""Strands: calls that run side by side, whose order follows from the order of the answers alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from llc.vm.image import Image
from llc.vm.machine import Done, Effect, Machine, Waiting

MachineOf = Callable[..., Machine]

# Each item is a command; a strand gives its output.
EACH = """
function main(items) locals(found)
  state start
    parallel closure run() over items -> found then end
  state end
    return found
function run(item) locals(answer)
  state ask
    perform shell map("command", item) -> answer then end
  state end
    return answer
"""


def drained(machine: Machine) -> list[Any]:
    """What a machine gives until nothing can run without an answer."""
    outcomes: list[Any] = []
    while machine.is_ready:
        outcomes.append(machine.resume())
    return outcomes


def moved(machine: Machine) -> Machine:
    """The machine elsewhere; its snapshot stays what it was."""
    stored = json.dumps(machine.snapshot())
    again = Machine.restore(Image.from_bytes(machine.image.to_bytes()), json.loads(stored))
    assert json.dumps(again.snapshot()) == stored
    return again


def value(outcome: Any) -> Any:
    assert isinstance(outcome, Done), outcome
    return outcome.value


# --- asking and answering ---------------------------------------------------------------------


def test_all_items_ask_before_one_is_answered(machine_of: MachineOf) -> None:
    """The strands run in the order of the items, each until it asks."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    assert [(effect.seq, effect.args["command"]) for effect in drained(machine)] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]
    assert list(machine.waiting) == [1, 2, 3]
    assert isinstance(machine.resume(), Waiting)


def test_results_stand_in_the_order_of_the_items(machine_of: MachineOf) -> None:
    """Whatever the order of the answers."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    drained(machine)
    assert isinstance(machine.resume(10, 3), Waiting)
    assert isinstance(machine.resume(20, seq=1), Waiting)
    assert list(machine.waiting) == [2]
    assert value(machine.resume(30, 2)) == [20, 30, 10]
    assert machine.waiting == {}


def test_a_host_that_answers_at_once_need_not_know_of_strands(machine_of: MachineOf) -> None:
    """An answer without a number is for the effect that was asked for last."""
    machine = machine_of(EACH, [["a", "b", "c"]])
    outcome = machine.resume()
    asked = []
    while isinstance(outcome, Effect):
        asked.append(outcome.args["command"])
        outcome = machine.resume(outcome.args["command"] * 2)
    assert asked == ["a", "b", "c"]
    assert value(outcome) == ["aa", "bb", "cc"]


def test_no_items_are_no_strands(machine_of: MachineOf) -> None:
    """An empty list, and null, give the empty list at once."""
    assert value(machine_of(EACH, [[]]).resume()) == []
    assert value(machine_of(EACH, [None]).resume()) == []


def test_an_answer_to_what_does_not_wait_is_the_hosts_mistake(machine_of: MachineOf) -> None:
    """A number that was never given, one that was answered; nothing has changed."""
    machine = machine_of(EACH, [["a", "b"]])
    drained(machine)
    with pytest.raises(RuntimeError, match="no effect 3"):
        machine.resume({}, 3)
    machine.resume(1, 1)
    with pytest.raises(RuntimeError, match="no effect 1"):
        machine.resume({}, 1)
    with pytest.raises(TypeError):
        machine.resume(b"", 2)
    assert value(machine.resume(2, 2)) == [1, 2]


def test_null_is_an_answer(machine_of: MachineOf) -> None:
    """`resume(None)` answers, `resume()` does not."""
    machine = machine_of(EACH, [["a", "b"]])
    machine.resume()
    assert isinstance(machine.resume(None), Effect)
    assert value(machine.resume(None)) == [None, None]


# --- snapshots --------------------------------------------------------------------------------


def test_a_snapshot_holds_all_strands(machine_of: MachineOf) -> None:
    """Taken with some answered, some waiting, some not begun."""
    machine = machine_of(EACH, [["a", "b", "c", "d"]])
    machine.resume()
    machine = moved(machine)
    assert [effect.seq for effect in drained(machine)] == [2, 3, 4]
    machine = moved(machine)
    machine.resume("second", 2)
    machine = moved(machine)
    assert {seq: effect.args["command"] for seq, effect in machine.waiting.items()} == {
        1: "a",
        3: "c",
        4: "d",
    }
    machine.resume("first", 1)
    machine.resume("fourth", 4)
    assert value(moved(machine).resume("third", 3)) == ["first", "second", "third", "fourth"]
