"""Histories of runs in a database with fixed seeds, over a real server; `make sim` takes others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import clustered
from .simulation import Simulation, installed
from .test_simulation import failure_text

# Seeds of former defects: a segment whose answer was lost, one taken by a dead worker, one delivered twice;
# `mutants.py` has each of these. 14: a worker that was declared dead in an outage starts a segment. 295: an
# owner removes its folder while another one searches it for actions.
PAST_FAILURES = (25, 33, 144, 14, 295)


@pytest.fixture(scope="module")
def simulate() -> Iterator[object]:
    with installed(), clustered() as made:
        yield made


@pytest.mark.parametrize("seed", [*range(6), *PAST_FAILURES])
def test_promises_hold(seed: int, simulate: object) -> None:
    """Workers and clients are killed, frozen, disconnected; the server restarts, answers are lost: each run
    ends.
    """
    simulation: Simulation = simulate(seed, None)  # type: ignore[operator]
    assert simulation.error is None, failure_text(simulation, " --database")
