"""Effects of the real world: sleep, clock, environment; interrupts and contexts."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llc
from llc.ir.effects import EFFECTS
from llc.runtime.effects.performers import OBSERVERS, PERFORMERS, observer_of, performer_of
from llc.runtime.effects.world import World
from llc.runtime.host.clock import timestamp
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted, milliseconds

Perform = Callable[..., dict[str, Any]]


def test_every_kind_of_effect_is_performed() -> None:
    """The tables of effects and of performers have the same kinds, and all functions exist."""
    assert list(PERFORMERS.keys() ^ EFFECTS.keys()) == []
    for kind in EFFECTS:
        assert list(inspect.signature(performer_of(kind)).parameters) == ["args", "context", "parts"]
    for kind in OBSERVERS:
        observe = observer_of(kind)
        assert observe is not None
        assert list(inspect.signature(observe).parameters) == ["args", "result", "parts"]


def test_an_unknown_kind_is_refused(perform: Perform) -> None:
    """It is a ValueError, not a fault: the verifier accepts no such program."""
    with pytest.raises(ValueError, match="`telepathy`"):
        perform("telepathy")


def test_sleep_waits(perform: Perform) -> None:
    before = time.monotonic()
    assert perform("sleep", {"elapsed_ms": lambda: 70}, seconds=0.05) == {"elapsed_ms": 70}
    assert time.monotonic() - before >= 0.05


@pytest.mark.parametrize("seconds", [0, -1])
def test_sleep_for_no_time_returns(perform: Perform, seconds: float) -> None:
    assert perform("sleep", seconds=seconds) == {"elapsed_ms": 0}


def test_the_loops_deadline_ends_a_sleep(perform: Perform) -> None:
    result = perform("sleep", {"elapsed_ms": lambda: 980}, seconds=600, deadline_ms=1000)
    assert result == {"elapsed_ms": 980, "timed_out": "loop"}


def test_no_sleep_starts_after_the_loops_deadline(perform: Perform) -> None:
    result = perform("sleep", {"elapsed_ms": lambda: 5000}, seconds=600, deadline_ms=1000)
    assert result["timed_out"] == "loop"


def test_an_interrupt_ends_a_sleep(perform: Perform, interrupt: Interrupt) -> None:
    """At once, from a signal handler or another thread."""
    threading.Timer(0.05, interrupt.set).start()
    with pytest.raises(Interrupted):
        perform("sleep", seconds=600)


def test_on_tick_is_called_during_a_sleep(perform: Perform) -> None:
    """A display can show a count-down."""
    ticks: list[int] = []
    perform("sleep", {"on_tick": lambda: ticks.append(1)}, seconds=0.35)
    assert len(ticks) >= 1


def test_the_clock_gives_utc_with_milliseconds(perform: Perform) -> None:
    """In ISO 8601, with the active time of the run."""
    result = perform("clock", {"elapsed_ms": lambda: 42})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", result["time"])
    assert result["elapsed_ms"] == 42


def test_a_timestamp_is_truncated_not_rounded() -> None:
    """A timestamp is never in the future."""
    assert timestamp(1705314600.9999) == "2024-01-15T10:30:00.999Z"


def test_environment_variables_are_texts_or_null(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset variable is null, an empty one is empty, and invalid UTF-8 gets replacement characters."""
    monkeypatch.setenv("LLC_A", "")
    monkeypatch.setitem(os.environb, b"LLC_B", b"x\xffy")
    names = ["LLC_A", "LLC_B", "LLC_NONE", "", "a=b", "\ud800"]
    values = perform("env", names=names)["values"]
    assert values == {"LLC_A": "", "LLC_B": "x�y", "LLC_NONE": None, "": None, "a=b": None, "\ud800": None}


def test_an_interrupt_that_is_set_often_does_not_block(interrupt: Interrupt) -> None:
    """A signal handler must return although the pipe of the interrupt is full."""
    for _ in range(100_000):
        interrupt.set()
    assert interrupt.is_set


def test_a_wait_ends_when_a_descriptor_is_readable(interrupt: Interrupt) -> None:
    read, write = os.pipe()
    os.write(write, b"x")
    interrupt.wait(600, wake=read)
    os.close(read)
    os.close(write)


def test_waits_longer_than_the_limit_of_poll_are_possible() -> None:
    """A sleep of a century is split into parts."""
    assert milliseconds(3e9) < 2**31
    assert milliseconds(-1) == 0


@pytest.mark.parametrize(
    ("timeout_s", "deadline_ms", "elapsed_ms", "limit"),
    [
        (None, None, 0, (None, "action")),
        (5, None, 0, (5, "action")),
        (None, 3000, 1000, (2.0, "loop")),
        (5, 3000, 1000, (2.0, "loop")),
        (1, 3000, 1000, (1, "action")),
        (2, 3000, 1000, (2.0, "loop")),
    ],
)
def test_the_earlier_limit_applies(
    context: Callable[..., Context],
    timeout_s: float | None,
    deadline_ms: int | None,
    elapsed_ms: int,
    limit: tuple[float | None, str],
) -> None:
    """The action's timeout or the loop's deadline; the result names which."""
    args = {"timeout_s": timeout_s, "deadline_ms": deadline_ms}
    assert context(elapsed_ms=lambda: elapsed_ms).limit(args, own="action") == limit


def test_a_world_may_be_closed_twice() -> None:
    """Also without any effect."""
    world = World()
    world.close()
    world.close()


def test_the_world_imports_no_slow_modules(tmp_path: Path) -> None:
    """They would delay each run of a cached program with shell actions."""
    (tmp_path / "llc").symlink_to(Path(llc.__file__).parent)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from llc.runtime.effects import world, shell; "
        "heavy = 'attrs yaml typing dataclasses inspect typer rich lark anthropic jq re2 asyncio logging "
        "importlib.metadata pathlib subprocess socket'.split(); "
        "print([name for name in heavy if name in sys.modules])"
    )
    # -S, because what `site` imports for an editable install is not ours.
    command = [sys.executable, "-S", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
