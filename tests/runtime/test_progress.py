"""Progress of a run, computed from its notes: one loop, inner loops, concurrent loops, after a fault."""

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
    """The place of the run after each note."""
    progress = Progress()
    seen = []
    for kind, fields in notes:
        progress.note(kind, fields)
        seen.append(progress.place)
    return seen


def test_an_inner_loop_has_its_own_place() -> None:
    """Its state has the name of the loop and its iteration; after the loop the place is that of the outer
    loop.
    """
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


def test_a_loop_ended_by_a_fault_is_left() -> None:
    """The next note of the outer loop gives the place."""
    assert places(enter("go", 3), enter("a", 1, "inner"), ("route", {"from": "go", "to": "b"})) == [
        ("go", 3),
        ("inner/a", 1),
        ("go", 3),
    ]


def test_concurrent_loops_take_turns() -> None:
    """The place is that of the last note of an unfinished loop."""
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
def test_progress_is_restored_from_json(before: list[Note], after: list[Note]) -> None:
    """Later notes have the same effect as without a checkpoint."""
    progress = Progress()
    for note in before:
        progress.note(*note)
    restored = Progress.from_data(json.loads(json.dumps(progress.to_data())))
    for note in after:
        progress.note(*note)
        restored.note(*note)
    assert restored.to_data() == progress.to_data()
