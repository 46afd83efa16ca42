"""A full disk, on a real file system: the run performs nothing more and continues when space is free."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

# Each output is new, and large enough for a file of its own.
LOOP = """
name: job
initial: make
max_iterations: 40
states:
  make:
    action: |
      echo "$LLC_EFFECT_ID" >> "$LOG"
      n=${captured.n.output:default=0}
      seq $n 7000 | head -c 33000
    capture: made
    next: count
  count:
    action: |
      echo "$LLC_EFFECT_ID" >> "$LOG"
      expr ${captured.n.output:default=0} + 1
    capture: n
    evaluate: {type: output_numeric, operator: ge, target: 12}
    on_success: done
    on_failure: make
  done: {terminal: true}
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project on a file system of its own, with room for a part of what its run keeps."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        (folder / ".loops").mkdir()
        (folder / ".loops" / "job.yaml").write_text(LOOP)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("LOG", str(tmp_path / "log"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield folder
    finally:
        os.chdir(tmp_path)
        subprocess.run(["umount", folder], check=True)


def llc(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def log() -> Counter[str]:
    """How often each effect was performed."""
    return Counter(Path(os.environ["LOG"]).read_text().split())


def grow(folder: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)


def test_a_run_stops_where_the_disk_is_full_and_goes_on_when_there_is_room(disk: Path) -> None:
    """Nothing that had its result is performed again; what could not be recorded was the last one."""
    done = llc("run", "job", "-q", "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "journal"
    assert "no space left on device" in error["message"]
    assert error["help"].startswith("recorded results are not lost; fix the cause, then: llc resume job-")
    performed = len(log())
    assert 2 <= performed < 24
    counts = log()
    for _ in range(3):
        again = llc("resume", "job", "-q")
        assert again.returncode == 1
        assert "no space left on device" in again.stderr
        assert "Traceback" not in again.stderr
        assert log() == counts, "a resume without room performs nothing"
    grow(disk, "4m")
    ended = llc("resume", "job", "-q", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["iterations"] == 12
    counts = log()
    assert len(counts) == 24
    assert sum(count > 1 for count in counts.values()) <= 1
    assert llc("replay", "job").returncode == 0


@pytest.mark.parametrize("words", [["run", "job"], ["run", "job", "--background"]])
def test_a_run_that_cannot_be_recorded_does_not_begin(disk: Path, words: list[str]) -> None:
    """It says so, performs nothing, and leaves no run behind."""
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 512):
            pass
    done = llc(*words, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "error"
    assert "no space left on device" in done.stderr
    assert not Path(os.environ["LOG"]).exists()
    (disk / "filler").unlink()
    assert llc("status").stdout.startswith("no run is unfinished")


def test_looking_at_runs_needs_no_room(disk: Path) -> None:
    """Status, logs, history, trace and list answer on a full disk."""
    llc("run", "job", "-q")
    for words in (
        ["status", "job"],
        ["logs", "job", "-n", "3"],
        ["list", "--running"],
        ["history"],
        ["trace", "job"],
    ):
        done = llc(*words)
        assert done.returncode == 0, (words, done.stderr)
    assert "crashed" in llc("status", "job").stdout
