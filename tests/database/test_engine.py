"""The places of DBOS that `database.engine` relies on are as it expects; another version is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from dbos._core import ActiveWorkflowById
from dbos._sys_db import SystemDatabase

from llc.runtime.database.engine import POLL_S, _Wake, check_hooks
from llc.runtime.host.errors import UserError


class Store:
    _claim_gate = SystemDatabase._claim_gate


def test_the_installed_version_fits() -> None:
    check_hooks(Store(), ActiveWorkflowById())


@pytest.mark.parametrize("gate", [None, lambda queue_name: [], lambda queue_name, partition_key, more: []])
def test_another_signature_is_refused(gate: Callable[..., object] | None) -> None:
    """The worker does not start with a queue whose limits it cannot set."""
    store = Store()
    store._claim_gate = gate  # type: ignore[method-assign, assignment]
    with pytest.raises(UserError, match="does not fit"):
        check_hooks(store, ActiveWorkflowById())


def test_a_wait_ends_when_it_is_woken_or_stopped() -> None:
    """A long wait for the next look ends early; a short one of another purpose is left alone."""
    wake, event = _Wake(), threading.Event()
    wake.attach(event)
    wake.set()
    assert event.wait(POLL_S * 1000) is False
    assert event.wait(0.0) is False
    threading.Timer(0.05, event.set).start()
    assert event.wait(POLL_S * 1000) is True
