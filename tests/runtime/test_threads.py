"""Worker threads: every job runs, a limit bounds the number of threads, and idle threads end."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from llc.runtime.execution import io_threads
from llc.runtime.execution.effect_pool import EffectPool
from llc.runtime.execution.io_threads import Threads


def test_close_waits_for_all_jobs() -> None:
    """A thousand jobs in three threads run once each."""
    threads = Threads(3)
    done: list[int] = []
    for number in range(1000):
        threads.do(lambda number=number: done.append(number))  # type: ignore[misc]
    threads.close()
    assert sorted(done) == list(range(1000))


def test_dismissed_threads_finish_their_jobs() -> None:
    """`dismiss` does not wait; all jobs are done."""
    threads = Threads()
    gate = threading.Event()
    done: list[int] = []
    for number in range(3):
        threads.do(lambda number=number: (gate.wait(), done.append(number)))  # type: ignore[misc]
    running = threads.dismiss()
    assert not done
    gate.set()
    for thread in running:
        thread.join(30)
    assert sorted(done) == [0, 1, 2]


def test_the_number_of_threads_is_limited() -> None:
    """Of ten blocking jobs with two threads, two start."""
    threads = Threads(2)
    gate = threading.Event()
    started: list[int] = []

    def work() -> None:
        started.append(threading.get_ident())
        gate.wait()

    for _ in range(10):
        threads.do(work)
    while len(started) < 2:
        time.sleep(0.001)
    time.sleep(0.02)
    assert len(set(started)) == len(started) == 2
    gate.set()
    threads.close()
    assert len(started) == 10
    assert len(set(started)) == 2


def test_without_a_limit_each_job_has_its_own_thread() -> None:
    """Fifty jobs meet at a barrier."""
    threads = Threads()
    meeting = threading.Barrier(50)
    for _ in range(50):
        threads.do(lambda: meeting.wait(30))
    threads.close()
    assert not meeting.broken


def test_a_free_thread_is_reused() -> None:
    """Successive jobs run in one thread."""
    threads = Threads()
    used: set[int] = set()
    for _ in range(20):
        done = threading.Event()
        threads.do(lambda done=done: (used.add(threading.get_ident()), done.set()))  # type: ignore[misc]
        done.wait()
        while threads._free < 1:
            time.sleep(0.0001)
    assert len(used) == 1
    threads.close()


def test_an_idle_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that arrives at that moment gets another thread."""
    monkeypatch.setattr(io_threads, "LINGER", 0.002)
    threads = Threads(2)
    done: list[int] = []
    for number in range(100):
        threads.do(lambda number=number: done.append(number))  # type: ignore[misc]
        time.sleep(0.0015 + number % 3 * 0.0005)
    end = time.monotonic() + 60
    while threads._threads and time.monotonic() < end:
        time.sleep(0.01)
    assert not threads._threads
    assert done == list(range(100))
    threads.close()


def test_a_wake_after_close_writes_to_no_other_file(tmp_path: Path) -> None:
    """The descriptor number of the closed pipe may belong to another file."""
    pool = EffectPool(1)
    pool._sleeps = True  # as the thread saw it before the driver took its message, which was the last
    pool.close()
    others = [os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT) for number in range(4)]
    try:
        pool.wake()
        assert [os.fstat(other).st_size for other in others] == [0] * 4
    finally:
        for other in others:
            os.close(other)
