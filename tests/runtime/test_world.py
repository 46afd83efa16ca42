"""Effects of the real world itself (sleep, clock, environment), interrupts and contexts."""

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
    """The table of effects and the table of performers pair up, and all functions exist."""
    assert list(PERFORMERS.keys() ^ EFFECTS.keys()) == []
    for kind in EFFECTS:
        assert list(inspect.signature(performer_of(kind)).parameters) == ["args", "context", "parts"]
    for kind in OBSERVERS:
        observe = observer_of(kind)
        assert observe is not None
        assert list(inspect.signature(observe).parameters) == ["args", "result", "parts"]


def test_an_unknown_kind_is_refused(perform: Perform) -> None:
    """That is our error, not the program's: the verifier lets no such program through."""
    with pytest.raises(ValueError, match="`telepathy`"):
        perform("telepathy")


def test_sleep_waits(perform: Perform) -> None:
    """At least as long as it was asked to."""
    before = time.monotonic()
    assert perform("sleep", {"elapsed_ms": lambda: 70}, seconds=0.05) == {"elapsed_ms": 70}
    assert time.monotonic() - before >= 0.05


@pytest.mark.parametrize("seconds", [0, -1])
def test_sleep_for_no_time_returns(perform: Perform, seconds: float) -> None:
    """No back-off is no wait."""
    assert perform("sleep", seconds=seconds) == {"elapsed_ms": 0}


def test_sleep_ends_with_the_loops_time(perform: Perform) -> None:
    """It is cut at the deadline and says so."""
    result = perform("sleep", {"elapsed_ms": lambda: 980}, seconds=600, deadline_ms=1000)
    assert result == {"elapsed_ms": 980, "timed_out": "loop"}


def test_sleep_after_the_loops_time_does_not_wait(perform: Perform) -> None:
    """The deadline has passed."""
    result = perform("sleep", {"elapsed_ms": lambda: 5000}, seconds=600, deadline_ms=1000)
    assert result["timed_out"] == "loop"


def test_an_interrupt_ends_a_sleep(perform: Perform, interrupt: Interrupt) -> None:
    """At once, from a signal handler or another thread."""
    threading.Timer(0.05, interrupt.set).start()
    with pytest.raises(Interrupted):
        perform("sleep", seconds=600)


def test_a_sleeping_display_ticks(perform: Perform) -> None:
    """A count-down can be shown."""
    ticks: list[int] = []
    perform("sleep", {"on_tick": lambda: ticks.append(1)}, seconds=0.35)
    assert len(ticks) >= 1


def test_the_clock_gives_utc_with_milliseconds(perform: Perform) -> None:
    """ISO 8601, and the run's active time."""
    result = perform("clock", {"elapsed_ms": lambda: 42})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", result["time"])
    assert result["elapsed_ms"] == 42


def test_a_timestamp_is_cut_not_rounded() -> None:
    """A time stamp never lies in the future."""
    assert timestamp(1705314600.9999) == "2024-01-15T10:30:00.999Z"


def test_environment_variables_are_texts_or_null(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset is null, empty is empty, what is not UTF-8 gets replacement characters."""
    monkeypatch.setenv("LLC_A", "")
    monkeypatch.setitem(os.environb, b"LLC_B", b"x\xffy")
    names = ["LLC_A", "LLC_B", "LLC_NONE", "", "a=b", "\ud800"]
    values = perform("env", names=names)["values"]
    assert values == {"LLC_A": "", "LLC_B": "x�y", "LLC_NONE": None, "": None, "a=b": None, "\ud800": None}


def test_an_interrupt_that_is_set_often_does_not_block(interrupt: Interrupt) -> None:
    """Its pipe may be full; a signal handler must return."""
    for _ in range(100_000):
        interrupt.set()
    assert interrupt.is_set


def test_a_wait_ends_when_a_descriptor_is_readable(interrupt: Interrupt) -> None:
    """Waiting for something else at the same time."""
    read, write = os.pipe()
    os.write(write, b"x")
    interrupt.wait(600, wake=read)
    os.close(read)
    os.close(write)


def test_waits_beyond_what_poll_takes_are_possible() -> None:
    """A sleep of a century is cut into pieces."""
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
def test_the_earlier_limit_counts(
    context: Callable[..., Context],
    timeout_s: float | None,
    deadline_ms: int | None,
    elapsed_ms: int,
    limit: tuple[float | None, str],
) -> None:
    """The action's own or the loop's, and which it is."""
    args = {"timeout_s": timeout_s, "deadline_ms": deadline_ms}
    assert context(elapsed_ms=lambda: elapsed_ms).limit(args, own="action") == limit


def test_a_world_may_be_closed_twice() -> None:
    """And without having done anything."""
    world = World()
    world.close()
    world.close()


def test_the_world_imports_nothing_heavy(tmp_path: Path) -> None:
    """A run of a cached image that performs shell actions pays for none of these."""
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
