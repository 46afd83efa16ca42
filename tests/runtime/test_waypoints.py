"""Waypoints: a point of a run read from the nearest waypoint equals the one from the whole journal."""

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
BESIDE = """(define (both n) (begin (log-message "at" n) (sleep 0.001) (log-message "on" n) (sleep 0.001) n))
(parallel-map both (range 0 80))
"""
WORLD = """
- {state: work, output: "some output that is not very long but longer than nothing\\n"}
- {state: again, exit_code: 1}
"""


@pytest.fixture(autouse=True)
def _often(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and waypoints every few steps."""
    for name, value in {"SPACE": 2_000, "SHARE": 0, "WAYPOINT_SPACE": 6_000, "WAYPOINT_SHARE": 0}.items():
        monkeypatch.setattr(checkpoints, name, value)
    monkeypatch.setattr(files, "fdatasync", lambda fd: None)
    (project_dir / ".loops" / "many.yaml").write_text(LOOP)
    (project_dir / "beside.sexp").write_text(BESIDE)
    (project_dir / "world.yaml").write_text(WORLD)


def recorded(name: str) -> find.RunFiles:
    script = "world.yaml" if name == "many" else None
    launch_run.outcome(options.Values("beside.sexp" if script is None else name, quiet=True, script=script))
    return find.find_run(name)


def whole_timeline(run: find.RunFiles) -> Timeline:
    recording = run.recording()
    with bounded(recording.about):
        return Timeline(recording, run.load_image())


def shown(timeline: Timeline, seq: int) -> tuple[int, dict[str, Any]]:
    number = timeline.find_place(str(seq))
    assert number is not None
    with bounded(timeline.recording.about):
        return timeline.count, timeline.at(number).to_json()


@pytest.mark.parametrize("name", ["many", "beside"])
def test_a_point_is_the_same_from_a_waypoint(name: str) -> None:
    """Each point has the same number, notes, effect, result, slots and place; also of calls side by side."""
    run = recorded(name)
    whole = whole_timeline(run)
    near = 0
    some = sorted(whole.recording.asked_at)[::7]
    for seq in some:
        around = excerpt.timeline_around(run, seq)
        assert around is not None
        near += waypoint_before(RunFolder.at(ROOT, run.folder), seq) is not None
        assert shown(around, seq) == shown(whole, seq)
    assert near > len(some) // 4


@pytest.mark.parametrize("seq", [3, 290])
def test_only_what_is_near_is_read(monkeypatch: pytest.MonkeyPatch, seq: int) -> None:
    """Of a long run, a point near its begin or its end takes a small part of the journal."""
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


def test_a_waypoint_that_is_not_sound_is_passed_over() -> None:
    """Then the point is that of the whole journal; lines that are torn or damaged cost only themselves."""
    run = recorded("many")
    expected = shown(whole_timeline(run), 250)
    path = Path(run.folder, checkpoints.WAYPOINTS)
    lines = path.read_bytes().splitlines(keepends=True)
    for change in UNSOUND:
        path.write_bytes(b"".join(journal.seal({**_event(line), **change}) for line in lines))
        found = excerpt.timeline_around(run, 250)
        assert found is None or shown(found, 250) == expected, change
    path.write_bytes(b"".join(lines)[:-9] + lines[0] + b"\x00\xff")
    found = excerpt.timeline_around(run, 250)
    assert found is not None
    assert shown(found, 250) == expected


def _event(line: bytes) -> dict[str, Any]:
    found = journal.unseal(line[:-1])
    assert found is not None
    return {name: value for name, value in found.items() if name != "crc"}


def test_a_journal_that_was_cut_has_no_waypoints_beyond() -> None:
    """One that does not fit the journal is not used; one before the cut still is."""
    run = recorded("many")
    expected = shown(whole_timeline(run), 20)[1]
    data = Path(run.journal).read_bytes()
    Path(run.journal).write_bytes(data[: data.index(b"\n", len(data) // 2) + 1])
    assert excerpt.timeline_around(run, 290) is None
    assert shown(whole_timeline(run), 20)[1] == expected
