"""Active time of a run; it is exact after a crash at any point."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from keepers import kill_with_keeper

from llc.runtime.journal import active_time, journal, reader, run_history
from llc.runtime.journal.events import Event
from llc.runtime.runs import locks


def timestamp(seconds: float) -> str:
    return f"2024-01-15T10:{int(seconds) // 60:02}:{seconds % 60:06.3f}Z"


def active_ms(folder: Path, *events: tuple[float, dict[str, Any]]) -> int:
    path = folder / "x.events.jsonl"
    path.write_bytes(b"".join(journal.seal({**event, "ts": timestamp(moment)}) for moment, event in events))
    return run_history.load(str(path)).active_ms()


START: tuple[float, dict[str, Any]] = (0, {"event": "run_start"})
RESUME: dict[str, Any] = {"event": "run_resume"}


def action_complete(seq: int, elapsed_ms: int) -> dict[str, Any]:
    return {"event": "action_complete", "seq": seq, "result": {"elapsed_ms": elapsed_ms}}


def test_time_stamps_extend_the_last_recorded_duration(tmp_path: Path) -> None:
    """An interrupted action counts up to the last event of the journal."""
    assert (
        active_ms(tmp_path, START, (2, action_complete(1, 1900)), (5, {"event": "process", "seq": 2})) == 4900
    )


def test_time_between_crash_and_resume_does_not_count(tmp_path: Path) -> None:
    """A clock that was set back does not change the active time either."""
    first = (START, (4, {"event": "process", "seq": 1}))
    assert active_ms(tmp_path, *first, (600, RESUME), (601, {"event": "log"})) == 5000
    assert active_ms(tmp_path, *first, (600, RESUME), (590, {"event": "log"})) == 4000


def test_recorded_durations_take_precedence_over_time_stamps(tmp_path: Path) -> None:
    """While a laptop sleeps, the run is not active although the time stamps advance."""
    assert active_ms(tmp_path, START, (600, action_complete(1, 3000)), (601, {"event": "log"})) == 4000
    assert active_ms(tmp_path, START, (600, {"event": "run_interrupted", "duration_ms": 3000})) == 3000
    resumed = {**RESUME, "elapsed_ms": 9000}
    assert active_ms(tmp_path, START, (1, {"event": "log"}), (600, resumed), (602, {"event": "log"})) == 11000


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (journal.seal({"event": "active", "elapsed_ms": 7000}), 7000),
        (journal.seal({"event": "active", "elapsed_ms": 1}), 2000),
        (journal.seal({"event": "active", "elapsed_ms": "7000"}), 2000),
        (journal.seal({"event": "active", "elapsed_ms": 7000})[:-9], 2000),
        (b"", 2000),
        (bytes(range(256)), 2000),
    ],
)
def test_active_file_counts_if_it_is_ahead_of_the_journal(tmp_path: Path, line: bytes, expected: int) -> None:
    """A file that is behind the journal, damaged or in another format is ignored."""
    (tmp_path / "active").write_bytes(line)
    assert active_ms(tmp_path, START, (2, {"event": "process", "seq": 1})) == expected


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: a\ntimeout: 4\nstates:\n"
        "  a: {action: 'echo x >> log; exec sleep 600', next: z}\n  z: {terminal: true}\n"
    )
    return project_dir


def kill_when_active_for(ms: int, folder: Path, *words: str) -> None:
    """Kill -9 a run as soon as it has recorded `ms` milliseconds of active time."""
    process = subprocess.Popen([sys.executable, "-m", "llc", *words])
    end = time.monotonic() + 60
    while not any(active_time.read(str(path)).ms >= ms for path in folder.glob(".loops/.running/*/")):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.02)
    kill_with_keeper(process)
    process.wait()


def llc_json(*words: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "llc", *words, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)


def test_time_before_a_kill_counts_towards_the_timeout(project: Path) -> None:
    kill_when_active_for(3000, project, "run", "job", "-q")
    assert llc_json("status", "job")["elapsed_ms"] >= 3000
    outcome = llc_json("resume", "job", "-q")
    assert (outcome["status"], outcome["terminated_by"]) == ("limit", "timeout")
    (path,) = project.glob(".loops/.history/*/job.events.jsonl")
    events = [event.wire for event in reader.read(str(path)) if isinstance(event, Event)]
    (resumed,) = [event for event in events if event["event"] == "run_resume"]
    assert resumed["elapsed_ms"] >= 3000
    assert len(events) < 20


def test_active_time_adds_up_over_several_kills(project: Path) -> None:
    """After two kills in the same action both times count, also if the file was lost in between."""
    kill_when_active_for(1000, project, "run", "job", "-q")
    kill_when_active_for(2000, project, "resume", "job", "-q")
    (folder,) = project.glob(".loops/.running/*/")
    assert llc_json("status", "job")["elapsed_ms"] >= 2000
    (folder / "active").unlink()
    assert llc_json("status", "job")["elapsed_ms"] >= 1000
    assert llc_json("resume", "job", "-q")["terminated_by"] == "timeout"


def test_active_time_of_a_program_without_effects_is_recorded(project: Path) -> None:
    (project / "spin.sexp").write_text("(let again ((n 0)) (again (+ n 1)))\n")
    kill_when_active_for(1000, project, "run", "spin.sexp", "-q", "--fuel", "1000000000000")
    assert llc_json("status", "spin.sexp")["elapsed_ms"] >= 1000


def test_loop_can_run_twice_at_once_with_disjoint_scopes(tmp_path: Path) -> None:
    """The runs have different ids, each holds its own paths, and ending one does not affect the other."""
    root = str(tmp_path)
    first_run, first_lock = locks.start(root, "job", ["a"], {"program": "job"})
    second_run, second_lock = locks.start(root, "job", ["b"], {"program": "job"})
    assert first_run.id != second_run.id
    assert locks.is_live(first_run)
    assert locks.is_live(second_run)
    first_lock.close()
    assert not locks.is_live(first_run)
    assert locks.is_live(second_run)
    second_lock.close()
