"""Processes left by an earlier run: ended only if they certainly belong to llc."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import is_running

from llc.runtime.host import leftovers, processes
from llc.runtime.host.leftovers import end_leftover
from llc.runtime.host.processes import new_start_time, start_time, tick_now

EFFECT = "lint-20240115-103000-ab12/3"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command as a shell action is started; the command prints a line when it is ready."""
    started: list[subprocess.Popen[str]] = []

    def start(command: str, effect: str = EFFECT) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["bash", "-c", command],
            env={**os.environ, "LLC_EFFECT_ID": effect},
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_start_time_of_a_new_process_equals_the_one_in_proc() -> None:
    """It is computed from the clock if possible, and read from /proc when a run is resumed."""
    for _ in range(20):
        since = tick_now()
        process = subprocess.Popen(["sleep", "60"])
        computed = new_start_time(process.pid, since)
        from_proc = start_time(process.pid)
        process.kill()
        process.wait()
        assert computed == from_proc


def test_inaccurate_clock_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """If start times do not match the clock, each of them is read."""
    monkeypatch.setattr(processes, "_is_clock_right", None)
    monkeypatch.setattr(processes, "_TICK_NS", 7_777_777)
    for _ in range(3):
        process = subprocess.Popen(["sleep", "60"])
        computed, from_proc = new_start_time(process.pid, tick_now()), start_time(process.pid)
        process.kill()
        process.wait()
        assert computed == from_proc


def test_running_process_group_is_ended(start: Start) -> None:
    """Its leader and its children."""
    process = start("sleep 60 & echo $!; exec sleep 60")
    assert end_leftover(process.pid, start_time(process.pid), EFFECT) is True
    assert process.wait() == -signal.SIGTERM


def test_process_group_that_ignores_term_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace period."""
    monkeypatch.setattr(leftovers, "GRACE", 0.2)
    process = start("trap '' TERM; echo; while :; do sleep 60; done")
    assert end_leftover(process.pid, start_time(process.pid), EFFECT) is True
    assert process.wait() == -signal.SIGKILL


def test_children_without_their_leader_are_ended(start: Start, tmp_path: Path) -> None:
    """They are found by the effect's id in their environment."""
    process = start(f"sleep 60 & echo $! > {tmp_path / 'pid'}; echo; sleep 0.1")
    started_at = start_time(process.pid)
    process.wait()
    child = int((tmp_path / "pid").read_text())
    assert is_running(child)
    assert end_leftover(process.pid, started_at, EFFECT) is True
    assert not is_running(child)


def test_no_leftover_process_is_no_error(start: Start) -> None:
    """The result states that nothing was running."""
    process = start("echo")
    started_at = start_time(process.pid)
    process.wait()
    assert end_leftover(process.pid, started_at, EFFECT) is False


def test_reused_pid_is_not_ended(start: Start) -> None:
    """A different start time means a different process."""
    process = start("echo; exec sleep 60")
    boot, _, ticks = start_time(process.pid).partition(":")
    assert end_leftover(process.pid, f"{boot}:{int(ticks) - 1}", EFFECT) is False
    assert process.poll() is None


def test_process_of_an_earlier_boot_is_not_ended(start: Start) -> None:
    """Pids and start times restart with each boot."""
    process = start("echo; exec sleep 60")
    ticks = start_time(process.pid).partition(":")[2]
    assert end_leftover(process.pid, f"another-boot:{ticks}", EFFECT) is False
    assert process.poll() is None


def test_unknown_start_time_ends_nothing(start: Start) -> None:
    """If the system did not provide a start time, no process is ended."""
    process = start("echo; exec sleep 60")
    assert end_leftover(process.pid, "", EFFECT) is False
    assert process.poll() is None


def test_foreign_process_group_is_not_ended(start: Start, tmp_path: Path) -> None:
    """If the leader is gone, only processes with the effect's id are ended."""
    process = start(f"sleep 60 & echo $! > {tmp_path / 'pid'}; echo", effect="other-run/1")
    started_at = start_time(process.pid)
    process.wait()
    child = int((tmp_path / "pid").read_text())
    assert end_leftover(process.pid, started_at, EFFECT) is False
    assert is_running(child)
    os.kill(child, signal.SIGKILL)


def test_start_time_identifies_a_process(start: Start) -> None:
    """It identifies the process during its lifetime; a later process has a different one."""
    first = start("echo; exec sleep 60")
    started_at = start_time(first.pid)
    time.sleep(0.02)
    second = start("echo; exec sleep 60")
    assert start_time(first.pid) == started_at != start_time(second.pid)
    assert start_time(2**22 + 1) == ""
