"""The parts of DBOS that `database.engine` uses are as it expects; another version is rejected."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable

import dbos
import pytest
from dbos._core import ActiveWorkflowById
from dbos._queue import queue_thread
from dbos._sys_db import SystemDatabase

from llc.runtime.database.engine import POLL_S, POLLER, StopEvents, _WakeUp, check_hooks
from llc.runtime.host.errors import UserError


class Launched:
    _background_jobs_stop_event = threading.Event()
    background_thread_stop_events = (threading.Event(),)


class Store:
    _claim_gate = SystemDatabase._claim_gate


def test_installed_version_is_supported() -> None:
    check_hooks(Store(), ActiveWorkflowById(), Launched())
    assert 'name=f"queue-worker-{queue_name}"' in inspect.getsource(queue_thread)


@pytest.mark.parametrize("gate", [None, lambda queue_name: [], lambda queue_name, partition_key, more: []])
def test_another_signature_is_an_error(gate: Callable[..., object] | None) -> None:
    """A worker does not start with a queue whose limits it cannot set."""
    store = Store()
    store._claim_gate = gate  # type: ignore[method-assign, assignment]
    with pytest.raises(UserError, match="is not supported"):
        check_hooks(store, ActiveWorkflowById(), Launched())


def _wait(event: threading.Event, seconds: float, name: str = POLLER) -> list[bool]:
    """Wait in a thread of this name; returns the result at its end."""
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(event.wait(seconds)), name=name)
    thread.start()
    thread.join(60)
    return results


def test_a_wait_ends_when_it_is_woken_or_stopped() -> None:
    """The wait for the next poll ends early; a short wait of another purpose is not affected."""
    wake, event = _WakeUp(), threading.Event()
    wake.attach(event)
    wake.set()
    assert _wait(event, POLL_S * 1000) == [False]
    assert event.wait(0.0) is False
    threading.Timer(0.05, event.set).start()
    assert _wait(event, POLL_S * 1000) == [True]


def test_early_threads_can_be_woken() -> None:
    """A thread that polls a recovered queue may start during the launch: its wait is already replaced."""
    wake, event = _WakeUp(), threading.Event()
    events = StopEvents(wake)
    events.append(event)
    wake.set()
    assert _wait(event, POLL_S * 1000) == [False]
    assert events == [event]
    launch = inspect.getsource(dbos.DBOS._launch)
    assert launch.index("background_thread_stop_events.append(evt)") < launch.index("target=queue_thread")


def test_other_threads_are_not_woken() -> None:
    """Waits for schedules last as long as those for the queue; they are longer once the queue is found."""
    wake, event, waits = _WakeUp(), threading.Event(), list[float]()
    event.wait = lambda timeout=None: bool(waits.append(timeout))  # type: ignore[method-assign]
    wake.attach(event)
    assert _wait(event, 1.0, "scheduler") == [False]
    wake.set()
    assert _wait(event, POLL_S * 1000) == [False]
    wake.set()
    assert _wait(event, 30.0, "scheduler") == [False]
    assert waits == [1.0, 60.0]
    assert _wait(event, POLL_S * 1000) == [False]
