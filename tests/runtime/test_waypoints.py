"""Waypoints: a point read from the nearest waypoint equals the point read from the complete journal."""

from __future__ import annotations

import zlib
from binascii import b2a_base64
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.host import files
from llc.runtime.host.paths import ROOT
from llc.runtime.journal import journal
from llc.runtime.journal.reader import EventFile
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options
from llc.runtime.recordings import excerpt, find, replay_command
from llc.runtime.recordings.recording import bounded
from llc.runtime.recordings.timeline import Timeline
from llc.runtime.runs import checkpoints
from llc.runtime.runs.checkpoint_reader import waypoint_before

LOOP = """name: many
initial: work
states:
  work: {action: "echo ${state.iteration}", capture: last, on_success: again, on_failure: again}
  again: {action: "test -e never", on_success: done, on_failure: work}
  done: {terminal: true}
max_iterations: 150
"""
CONCURRENT = """
(define (both n) (begin (log-message "at" n) (sleep 0.001) (log-message "on" n) (sleep 0.001) n))
(parallel-map both (range 0 80))
"""
WORLD = """
- {state: work, output: "some output that is not very long but longer than nothing\\n"}
- {state: again, exit_code: 1}
"""


@pytest.fixture(autouse=True)
def _frequent_waypoints(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and waypoints every few steps."""
    for name, value in {"SPACE": 2_000, "SHARE": 0, "WAYPOINT_SPACE": 6_000, "WAYPOINT_SHARE": 0}.items():
        monkeypatch.setattr(checkpoints, name, value)
    monkeypatch.setattr(files, "fdatasync", lambda fd: None)
    (project_dir / ".loops" / "many.yaml").write_text(LOOP)
    (project_dir / "concurrent.sexp").write_text(CONCURRENT)
    (project_dir / "world.yaml").write_text(WORLD)


def recorded(name: str) -> find.RunFiles:
    script = "world.yaml" if name == "many" else None
    launch_run.outcome(
        options.Values("concurrent.sexp" if script is None else name, quiet=True, script=script)
    )
    return find.find_run(name)


def complete_timeline(run: find.RunFiles) -> Timeline:
    recording = run.recording()
    with bounded(recording.about):
        return Timeline(recording, run.load_image())


def shown(timeline: Timeline, seq: int) -> tuple[int, dict[str, Any]]:
    number = timeline.find_place(str(seq))
    assert number is not None
    with bounded(timeline.recording.about):
        return timeline.count, timeline.at(number).to_json()


@pytest.mark.parametrize("name", ["many", "concurrent"])
def test_a_point_is_the_same_from_a_waypoint(name: str) -> None:
    """Number, notes, effect, result, slots and place are the same, also for concurrent calls."""
    run = recorded(name)
    complete = complete_timeline(run)
    near = 0
    some = sorted(complete.recording.asked_at)[::7]
    for seq in some:
        around = excerpt.timeline_around(run, seq)
        assert around is not None
        near += waypoint_before(RunFolder.at(ROOT, run.folder), seq) is not None
        assert shown(around, seq) == shown(complete, seq)
    assert near > len(some) // 4


@pytest.mark.parametrize("seq", [3, 290])
def test_only_nearby_events_are_read(monkeypatch: pytest.MonkeyPatch, seq: int) -> None:
    """A point near the start or the end of a long run needs a small part of the journal."""
    recorded("many")
    read = 0
    at = EventFile.at

    def counted(file: EventFile, offset: int) -> Any:
        nonlocal read
        read += 1
        return at(file, offset)

    monkeypatch.setattr(find.RunFiles, "recording", None)
    monkeypatch.setattr(EventFile, "at", counted)
    timeline = replay_command.load_around("many", str(seq))
    assert timeline is not None
    assert shown(timeline, seq)[0] == 301
    assert 0 < read < 300


def forged(facts: dict[str, Any]) -> str:
    return b2a_base64(zlib.compress(journal.to_json(facts)), newline=False).decode()


UNSOUND: list[dict[str, Any]] = [
    {"facts": "no base64"},
    {"facts": forged({})},
    {"facts": forged({"image": 5, "progress": [], "snapshot": {}})},
    {"facts": forged({"image": "program.llb", "progress": [], "snapshot": {}})},
    {"facts": forged({"image": "program-2.llb", "progress": [None, 0, 0], "snapshot": {"format": 1}})},
    {"run": "many-20200101-000000-0000"},
    {"format": 2},
    {"results": 10**15},
    {"results": -1},
    {"seq": -5},
    {"journal": {"offset": 100, "lines": 1, "crc": "00000000"}},
    {"journal": None},
    {"event": "other"},
]


def test_an_invalid_waypoint_is_ignored() -> None:
    """The point is then read from the complete journal; a damaged line affects no other."""
    run = recorded("many")
    expected = shown(complete_timeline(run), 250)
    path = Path(run.folder, checkpoints.WAYPOINTS)
    lines = path.read_bytes().splitlines(keepends=True)
    for change in UNSOUND:
        path.write_bytes(b"".join(journal.seal({**_event(line), **change}) for line in lines))
        timeline = excerpt.timeline_around(run, 250)
        assert timeline is None or shown(timeline, 250) == expected, change
    path.write_bytes(b"".join(lines)[:-9] + lines[0] + b"\x00\xff")
    timeline = excerpt.timeline_around(run, 250)
    assert timeline is not None
    assert shown(timeline, 250) == expected


def _event(line: bytes) -> dict[str, Any]:
    event = journal.unseal(line[:-1])
    assert event is not None
    return {name: value for name, value in event.items() if name != "crc"}


def test_waypoints_after_the_end_of_a_truncated_journal_are_ignored() -> None:
    """Waypoints before the end are still used."""
    run = recorded("many")
    expected = shown(complete_timeline(run), 20)[1]
    data = Path(run.journal).read_bytes()
    Path(run.journal).write_bytes(data[: data.index(b"\n", len(data) // 2) + 1])
    assert excerpt.timeline_around(run, 290) is None
    assert shown(complete_timeline(run), 20)[1] == expected
