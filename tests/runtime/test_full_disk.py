"""A full disk, on a real file system: the run performs no further effect and continues when space is free."""

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

# Each output is different and large enough to be stored in its own file.
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
    """A project on its own file system, with space for only a part of the records of its run."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not permitted")
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


def execution_counts() -> Counter[str]:
    """Number of executions of each effect."""
    return Counter(Path(os.environ["LOG"]).read_text().split())


def enlarge(folder: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)


def test_run_stops_on_a_full_disk_and_resumes(disk: Path) -> None:
    """No effect with a recorded result is repeated; only the last effect may lack its record."""
    done = llc("run", "job", "-q", "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "journal"
    assert "no space left on device" in error["message"]
    assert error["help"].startswith("recorded results are not lost; fix the cause, then: llc resume job-")
    performed = len(execution_counts())
    assert 2 <= performed < 24
    counts = execution_counts()
    for _ in range(3):
        resumed = llc("resume", "job", "-q")
        assert resumed.returncode == 1
        assert "no space left on device" in resumed.stderr
        assert "Traceback" not in resumed.stderr
        assert execution_counts() == counts, "a resume on a full disk performs nothing"
    enlarge(disk, "4m")
    finished = llc("resume", "job", "-q", "--json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["iterations"] == 12
    counts = execution_counts()
    assert len(counts) == 24
    assert sum(count > 1 for count in counts.values()) <= 1
    assert llc("replay", "job").returncode == 0


@pytest.mark.parametrize("words", [["run", "job"], ["run", "job", "--background"]])
def test_run_without_space_for_its_record_does_not_start(disk: Path, words: list[str]) -> None:
    """The error is reported, no effect is performed, and no run is left."""
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


def test_inspection_needs_no_disk_space(disk: Path) -> None:
    """Status, logs, history, trace and list work on a full disk."""
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
