"""Active time of a run: it is exact after a crash at any point."""

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


def at(seconds: float) -> str:
    return f"2024-01-15T10:{int(seconds) // 60:02}:{seconds % 60:06.3f}Z"


def active_ms(folder: Path, *events: tuple[float, dict[str, Any]]) -> int:
    path = folder / "x.events.jsonl"
    path.write_bytes(b"".join(journal.seal({**event, "ts": at(moment)}) for moment, event in events))
    return run_history.load(str(path)).active_ms()


START: tuple[float, dict[str, Any]] = (0, {"event": "run_start"})
RESUME: dict[str, Any] = {"event": "run_resume"}


def ended(seq: int, elapsed_ms: int) -> dict[str, Any]:
    return {"event": "action_complete", "seq": seq, "result": {"elapsed_ms": elapsed_ms}}


def test_what_came_after_the_last_word_counts_by_time_stamps(tmp_path: Path) -> None:
    """An action that was cut off counts as far as the journal goes."""
    assert active_ms(tmp_path, START, (2, ended(1, 1900)), (5, {"event": "process", "seq": 2})) == 4900


def test_the_time_between_a_cut_and_going_on_does_not_count(tmp_path: Path) -> None:
    """Neither what lies between two lives of a run, nor what a clock that is set back says."""
    first = (START, (4, {"event": "process", "seq": 1}))
    assert active_ms(tmp_path, *first, (600, RESUME), (601, {"event": "log"})) == 5000
    assert active_ms(tmp_path, *first, (600, RESUME), (590, {"event": "log"})) == 4000


def test_what_a_run_says_of_its_time_comes_before_time_stamps(tmp_path: Path) -> None:
    """A laptop that was closed for ten minutes was not active, though the time stamps go on."""
    assert active_ms(tmp_path, START, (600, ended(1, 3000)), (601, {"event": "log"})) == 4000
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
def test_the_file_counts_where_it_is_ahead_of_the_journal(tmp_path: Path, line: bytes, expected: int) -> None:
    """One that is behind, damaged or no such file is left aside."""
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
    """kill -9, as soon as the run has said that it was active for so long."""
    process = subprocess.Popen([sys.executable, "-m", "llc", *words])
    end = time.monotonic() + 60
    while not any(active_time.read(str(path)).ms >= ms for path in folder.glob(".loops/.running/*/")):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.02)
    kill_with_keeper(process)
    process.wait()


def answer(*words: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "llc", *words, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)


def test_time_that_was_spent_before_a_kill_counts_towards_the_time_limit(project: Path) -> None:
    """A run that was killed in the middle of a long action has not got that time back."""
    kill_when_active_for(3000, project, "run", "job", "-q")
    assert answer("status", "job")["elapsed_ms"] >= 3000
    ended = answer("resume", "job", "-q")
    assert (ended["status"], ended["terminated_by"]) == ("limit", "timeout")
    (path,) = project.glob(".loops/.history/*/job.events.jsonl")
    events = [event.wire for event in reader.read(str(path)) if isinstance(event, Event)]
    (resumed,) = [event for event in events if event["event"] == "run_resume"]
    assert resumed["elapsed_ms"] >= 3000
    assert len(events) < 20


def test_each_life_of_a_run_adds_its_time(project: Path) -> None:
    """Killed twice in the same action, it knows of both times, also where the file was lost between them."""
    kill_when_active_for(1000, project, "run", "job", "-q")
    kill_when_active_for(2000, project, "resume", "job", "-q")
    (folder,) = project.glob(".loops/.running/*/")
    assert answer("status", "job")["elapsed_ms"] >= 2000
    (folder / "active").unlink()
    assert answer("status", "job")["elapsed_ms"] >= 1000
    assert answer("resume", "job", "-q")["terminated_by"] == "timeout"


def test_a_program_that_only_computes_says_how_long(project: Path) -> None:
    """Time that is spent without any effect is not lost by a kill either."""
    (project / "spin.sexp").write_text("(let again ((n 0)) (again (+ n 1)))\n")
    kill_when_active_for(1000, project, "run", "spin.sexp", "-q", "--fuel", "1000000000000")
    assert answer("status", "spin.sexp")["elapsed_ms"] >= 1000


def test_a_loop_may_run_twice_at_once_where_its_paths_are_apart(tmp_path: Path) -> None:
    """Runs of one name are told apart, each holds its own paths, and ending one leaves the other."""
    root = str(tmp_path)
    one, first = locks.start(root, "job", ["a"], {"program": "job"})
    two, second = locks.start(root, "job", ["b"], {"program": "job"})
    assert one.id != two.id
    assert locks.is_live(one)
    assert locks.is_live(two)
    first.close()
    assert not locks.is_live(one)
    assert locks.is_live(two)
    second.close()
