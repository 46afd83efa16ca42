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

from .__main__ import needed_faults
from .disk import Disk, Node
from .mutants import DATABASE_MUTANTS, MUTANTS, ROOT, changes_of
from .simulation import SimulatedHost, Simulation, Violation, host, installed, simulate

SEEDS = 200
# Seeds of former defects; their effect changes with the simulation. `mutants.py` has each defect.
PAST_FAILURES = (6, 22, 100, 113, 133, 288, 683, 681, 1310, 7074)


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    with installed():
        yield


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_promises_hold(first: int) -> None:
    """With kills, losses of power, disk errors and clock jumps, each run ends as without faults."""
    for seed in range(first, first + 50):
        simulation = simulate(seed)
        assert simulation.error is None, failure_text(simulation)


@pytest.mark.parametrize("seed", PAST_FAILURES)
def test_past_failures(seed: int) -> None:
    simulation = simulate(seed)
    assert simulation.error is None, failure_text(simulation)


def test_checkpoints_have_the_history_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """After kills and resumes, each checkpoint has the history computed from its journal."""
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


def test_seed_determines_the_history() -> None:
    """The same seed gives the same trace, call by call."""
    first, second = simulate(11), simulate(11)
    assert first.trace
    assert first.trace == second.trace
    assert simulate(12).trace != first.trace


def test_failure_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults without which it also fails are removed."""
    inject = Simulation._inject

    def inject_and_fail(self: Simulation, fault: object) -> None:
        inject(self, fault)  # type: ignore[arg-type]
        if getattr(fault, "kind", "") == "clock":
            raise self._fails("the clock must not jump")

    monkeypatch.setattr(Simulation, "_inject", inject_and_fail)
    # Early enough to happen whatever the other faults do.
    plans = (Simulation(seed).plan for seed in range(2000))
    seed = next(
        seed
        for seed, plan in enumerate(plans)
        if len(plan) > 3 and any(fault.kind == "clock" and fault.at < 60 for fault in plan)
    )
    failed = simulate(seed)
    needed = needed_faults(failed)
    assert [failed.plan[number].kind for number in needed] == ["clock"]
    assert isinstance(failed.error, Violation)


def test_state_after_a_loss_of_power() -> None:
    """Synced data exist; any part of the rest may exist; names and contents are independent."""
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


def test_every_mutation_can_be_applied() -> None:
    """`python -m simulation.mutants` replaces texts of the sources, each of which must occur once."""
    assert [
        name
        for name in MUTANTS | DATABASE_MUTANTS
        for file, old, _ in changes_of(name)
        if (ROOT / file).read_text("utf-8").count(old) != 1
    ] == []


def test_every_member_of_the_host_is_simulated() -> None:
    """`installed` checks nothing: a missing member would be an AttributeError."""
    from llc.runtime.host.protocol import PARTS

    simulated = SimulatedHost()
    assert [
        f"{part}.{name}"
        for part, names in PARTS.items()
        for name in names
        if not hasattr(getattr(simulated, part), name) and name != "fork"
    ] == []
    assert isinstance(host, SimulatedHost)


def failure_text(simulation: Simulation, flag: str = "") -> str:
    command = f"again: cd tests && python -m simulation{flag} --seed {simulation.seed}"
    return "\n".join(
        [*simulation.trace[-40:], f"{type(simulation.error).__name__}: {simulation.error}", command]
    )
