"""Model of take-over and scope locks, in every order of its transactions."""

from __future__ import annotations

import pytest

from .takeover_model import Broken, Model, explore


def test_the_protocol_holds() -> None:
    """Three workers and two runs with one path, with two faults: every state, up to renaming."""
    assert explore(Model(workers=3, runs=2, faults=2)) > 40_000


def test_more_effects_and_runs() -> None:
    """With fewer workers, journals are longer and more runs wait."""
    assert explore(Model(workers=2, runs=2, effects=2, faults=1)) > 1_000
    assert explore(Model(workers=2, runs=3, faults=1)) > 1_000


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ("epoch", "cannot end"),
        ("position", "the journal of run 0 is s0 s0"),
        ("scope", "two runs with one path are driven at once"),
        ("burial", "two runs with one path are driven at once"),
        ("fence", "two runs with one path are driven at once"),
        ("lock", "was taken from a worker that is up"),
        ("server start", "was taken from a worker that is up"),
        ("doubt", "the journal of run 0 is s0 s0"),
        ("start", "the journal of run 0 is r0"),
        ("read back", "cannot end"),
    ],
)
def test_each_part_is_needed(part: str, problem: str) -> None:
    """Without the part an invariant breaks, and the error shows the steps."""
    with pytest.raises(Broken, match=problem) as caught:
        explore(Model(workers=2, runs=2, faults=1, without=frozenset([part])))
    assert len(caught.value.args[1]) >= 2
