"""Histories of whole runs on a simulated machine, with fixed seeds; `make sim` takes others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from llc.runtime.journal import reader
from llc.runtime.journal.journal import Journal
from llc.runtime.journal.run_history import RunHistory
from llc.runtime.runs import checkpoints
from llc.runtime.runs.checkpoints import Checkpoints

from .__main__ import smallest
from .disk import Disk, Node
from .mutants import DATABASE_MUTANTS, MUTANTS, ROOT, changes_of
from .simulation import SimulatedHost, Simulation, Violation, host, installed, simulate

SEEDS = 200
# Seeds with which a defect was found; what they do changes with the simulation. `mutants.py` has each defect.
PAST = (6, 22, 100, 113, 133, 288, 683, 681, 1310, 7074)


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    with installed():
        yield


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_promises_hold(first: int) -> None:
    """Kills, losses of power, errors of the disk, clocks that jump: each run ends as without them."""
    for seed in range(first, first + 50):
        simulation = simulate(seed)
        assert simulation.error is None, shown(simulation)


@pytest.mark.parametrize("seed", PAST)
def test_past_failures(seed: int) -> None:
    simulation = simulate(seed)
    assert simulation.error is None, shown(simulation)


def test_checkpoints_have_the_history_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """After kills, cuts and resumes the history in each checkpoint is what reading the journal amounts to."""
    fold = Checkpoints._fold
    checked: list[int] = []
    differing: list[str] = []

    def compare(self: Checkpoints, journal: Journal) -> dict[str, Any] | None:
        data = fold(self, journal)
        expected = json.dumps(RunHistory.of(reader.read(journal.path)).to_data())
        if data is not None and json.dumps(data) != expected:
            differing.append(f"{json.dumps(data)}\n{expected}")
        checked.append(journal.lines)
        return data

    monkeypatch.setattr(Checkpoints, "_fold", compare)
    monkeypatch.setattr(checkpoints, "SPACE", 512)
    for seed in range(40):
        simulate(seed)
    assert differing == []
    assert len(checked) > 100


def test_a_seed_is_one_history() -> None:
    """The same seed gives the same trace, call by call."""
    first, second = simulate(11), simulate(11)
    assert first.trace
    assert first.trace == second.trace
    assert simulate(12).trace != first.trace


def test_a_failure_becomes_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults without which it fails as well are left out."""
    inject = Simulation._inject

    def broken(self: Simulation, fault: object) -> None:
        inject(self, fault)  # type: ignore[arg-type]
        if getattr(fault, "kind", "") == "clock":
            raise self._fails("the clock must not jump")

    monkeypatch.setattr(Simulation, "_inject", broken)
    # So early that it happens whatever the other faults do.
    plans = (Simulation(seed).plan for seed in range(2000))
    seed = next(
        seed
        for seed, plan in enumerate(plans)
        if len(plan) > 3 and any(fault.kind == "clock" and fault.at < 60 for fault in plan)
    )
    failed = simulate(seed)
    needed = smallest(failed)
    assert [failed.plan[number].kind for number in needed] == ["clock"]
    assert isinstance(failed.error, Violation)


def test_what_a_loss_of_power_leaves() -> None:
    """What was synced is there; of the rest anything; names and content are two things."""
    contents, names = set(), set()
    for seed in range(200):
        disk = Disk(0.0)
        node = Node(0o100000, 0o600, 0.0)
        disk.change((disk.root, "a", node))
        disk.sync_names(disk.root)
        disk.write(node, 0, b"one", 0.0)
        disk.sync(node)
        disk.write(node, 3, b"two", 0.0)
        disk.write(node, 6, b"six", 0.0)
        disk.change((disk.root, "b", node))
        disk.lose_power(Random(seed))
        assert disk.root.names["a"] is node
        assert bytes(node.data).startswith(b"one")
        contents.add(bytes(node.data))
        names.add("b" in disk.root.names)
    assert names == {True, False}
    assert {b"one", b"onetwo", b"onetwosix", b"one\0\0\0six", b"onet"} <= contents


def test_every_change_can_be_made() -> None:
    """`python -m simulation.mutants` changes texts of the sources, each of which is there once."""
    assert [
        name
        for name in MUTANTS | DATABASE_MUTANTS
        for file, old, _ in changes_of(name)
        if (ROOT / file).read_text("utf-8").count(old) != 1
    ] == []


def test_every_member_of_the_host_is_simulated() -> None:
    """`installed` checks nothing by itself: a member without a simulation would be an AttributeError."""
    from llc.runtime.host.protocol import PARTS

    simulated = SimulatedHost()
    assert [
        f"{part}.{name}"
        for part, names in PARTS.items()
        for name in names
        if not hasattr(getattr(simulated, part), name) and name != "fork"
    ] == []
    assert isinstance(host, SimulatedHost)


def shown(simulation: Simulation, flag: str = "") -> str:
    again = f"again: cd tests && python -m simulation{flag} --seed {simulation.seed}"
    return "\n".join(
        [*simulation.trace[-40:], f"{type(simulation.error).__name__}: {simulation.error}", again]
    )
