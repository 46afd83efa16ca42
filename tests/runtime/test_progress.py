"""Progress of a run, read from its notes: one loop, sub-loops, concurrent loops, after a fault."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llc.runtime.journal.position import Progress

Note = tuple[str, dict[str, Any]]


def enter(state: str, iteration: int, loop: str | None = None) -> Note:
    fields: dict[str, Any] = {"state": state, "iteration": iteration}
    return "state_enter", fields if loop is None else {"loop": loop, **fields}


def places(*notes: Note) -> list[tuple[str | None, int]]:
    """Where the run is after each note."""
    progress = Progress()
    found = []
    for kind, fields in notes:
        progress.note(kind, fields)
        found.append(progress.place)
    return found


def test_a_loop_within_has_its_own_place() -> None:
    """Its state with its name and its iteration; then again those of what is around it."""
    assert places(
        ("loop_start", {"loop": "outer"}),
        enter("go", 7),
        ("loop_start", {"loop": "inner"}),
        enter("check", 1, "inner"),
        ("evaluate", {"loop": "inner", "state": "check"}),
        enter("check", 2, "inner"),
        ("loop_complete", {"loop": "inner"}),
        ("evaluate", {"state": "go"}),
    ) == [
        (None, 0),
        ("go", 7),
        ("go", 7),
        *[("inner/check", 1)] * 2,
        ("inner/check", 2),
        ("go", 7),
        ("go", 7),
    ]


def test_a_loop_that_a_fault_ended_is_over() -> None:
    """It says nothing any more; what is around it does."""
    assert places(enter("go", 3), enter("a", 1, "inner"), ("route", {"from": "go", "to": "b"})) == [
        ("go", 3),
        ("inner/a", 1),
        ("go", 3),
    ]


def test_loops_side_by_side_take_turns() -> None:
    """The place is that of the loop last heard of that is not over."""
    assert places(
        enter("x", 1, "a"),
        enter("y", 2, "b"),
        enter("z", 3, "a"),
        ("loop_complete", {"loop": "a"}),
        ("loop_complete", {"loop": "b"}),
    ) == [("a/x", 1), ("b/y", 2), ("a/z", 3), ("b/y", 2), (None, 0)]


NOTES = st.lists(
    st.one_of(
        st.builds(enter, st.sampled_from("st"), st.integers(1, 3), st.sampled_from([None, "a", "b"])),
        st.builds(lambda loop: ("loop_complete", {"loop": loop}), st.sampled_from("ab")),
        st.just(("route", {"from": "s", "to": "t"})),
    ),
    max_size=12,
)


@given(NOTES, NOTES)
def test_progress_goes_on_from_its_data(before: list[Note], after: list[Note]) -> None:
    """As a checkpoint keeps it: through JSON, it is the same progress."""
    progress = Progress()
    for note in before:
        progress.note(*note)
    again = Progress.from_data(json.loads(json.dumps(progress.to_data())))
    for note in after:
        progress.note(*note)
        again.note(*note)
    assert again.to_data() == progress.to_data()
