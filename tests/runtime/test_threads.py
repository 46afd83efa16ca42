"""Worker threads: they run every job, at most a set number at once, and end when idle."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from llc.runtime.execution import io_threads
from llc.runtime.execution.effect_pool import EffectPool
from llc.runtime.execution.io_threads import Threads


def test_all_is_done_before_it_is_closed() -> None:
    """A thousand things by three threads, each of them once."""
    some = Threads(3)
    done: list[int] = []
    for number in range(1000):
        some.do(lambda number=number: done.append(number))  # type: ignore[misc]
    some.close()
    assert sorted(done) == list(range(1000))


def test_dismissed_they_end_by_themselves() -> None:
    """Whoever dismisses them does not wait for what is under way; all of it is done."""
    some = Threads()
    gate = threading.Event()
    done: list[int] = []
    for number in range(3):
        some.do(lambda number=number: (gate.wait(), done.append(number)))  # type: ignore[misc]
    left = some.dismiss()
    assert not done
    gate.set()
    for thread in left:
        thread.join(30)
    assert sorted(done) == [0, 1, 2]


def test_at_most_so_many_are_there() -> None:
    """Ten things that wait for each other's beginning, by two threads: two of them begin."""
    some = Threads(2)
    gate = threading.Event()
    begun: list[int] = []

    def work() -> None:
        begun.append(threading.get_ident())
        gate.wait()

    for _ in range(10):
        some.do(work)
    while len(begun) < 2:
        time.sleep(0.001)
    time.sleep(0.02)
    assert len(set(begun)) == len(begun) == 2
    gate.set()
    some.close()
    assert len(begun) == 10
    assert len(set(begun)) == 2


def test_each_has_its_own_where_there_is_no_bound() -> None:
    """Fifty that meet: none of them waits for another's end."""
    some = Threads()
    meeting = threading.Barrier(50)
    for _ in range(50):
        some.do(lambda: meeting.wait(30))
    some.close()
    assert not meeting.broken


def test_one_that_is_free_is_taken_before_another_is_started() -> None:
    """Things that come one after another are done by one thread."""
    some = Threads()
    by: set[int] = set()
    for _ in range(20):
        done = threading.Event()
        some.do(lambda done=done: (by.add(threading.get_ident()), done.set()))  # type: ignore[misc]
        done.wait()
        while some._free < 1:
            time.sleep(0.0001)
    assert len(by) == 1
    some.close()


def test_one_that_has_nothing_to_do_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """And another one is there for what comes then, however close to that moment it comes."""
    monkeypatch.setattr(io_threads, "LINGER", 0.002)
    some = Threads(2)
    done: list[int] = []
    for number in range(100):
        some.do(lambda number=number: done.append(number))  # type: ignore[misc]
        time.sleep(0.0015 + number % 3 * 0.0005)
    end = time.monotonic() + 60
    while some._threads and time.monotonic() < end:
        time.sleep(0.01)
    assert not some._threads
    assert done == list(range(100))
    some.close()


def test_the_end_of_an_effect_told_after_its_pool_was_closed(tmp_path: Path) -> None:
    """The number of the closed pipe is that of another file by then, which stays as it is."""
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
