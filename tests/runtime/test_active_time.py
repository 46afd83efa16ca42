"""How long a run was active: exact after any cut, by what it says itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.store import journal, locks
from llc.runtime.store.past import History


def at(seconds: float) -> str:
    return f"2024-01-15T10:{int(seconds) // 60:02}:{seconds % 60:06.3f}Z"


def active_ms(folder: Path, *events: tuple[float, dict[str, Any]]) -> int:
    path = folder / "x.events.jsonl"
    path.write_bytes(b"".join(journal.seal({**event, "ts": at(moment)}) for moment, event in events))
    return History.load(str(path)).active_ms


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
    assert active_ms(tmp_path, START, (600, {"event": "alive", "elapsed_ms": 3000})) == 3000
    assert active_ms(tmp_path, START, (600, {"event": "run_interrupted", "duration_ms": 3000})) == 3000


def test_time_that_was_spent_before_a_cut_counts_towards_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed in the middle of a long action has not got that time back."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: a\ntimeout: 1000\nstates:\n"
        "  a: {action: 'echo x >> log; touch here; sleep 600', next: z}\n  z: {terminal: true}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    end = time.monotonic() + 60
    while not (tmp_path / "here").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    process.kill()
    process.wait()
    (path,) = tmp_path.glob(".loops/.running/*/job.events.jsonl")
    with path.open("ab") as file:
        last = journal.last_event(str(path)) or {}
        file.write(journal.seal({"event": "alive", "elapsed_ms": 999_990, "ts": last["ts"]}))
    done = subprocess.run(
        [sys.executable, "-m", "llc", "resume", "job", "--json", "-q"], capture_output=True, text=True
    )
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["terminated_by"]) == ("limit", "timeout")
    assert 999_990 <= answer["duration_ms"] < 1_200_000


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
