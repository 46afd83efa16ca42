"""jq programs: the real libjq in a helper process with limits."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import tried

from llc.runtime.effects import jq_worker
from llc.runtime.effects.jq import JqWorker
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted

Ask = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def jq(context: Callable[..., Context]) -> Iterator[Callable[..., dict[str, Any]]]:
    """`jq(program, text)` in one helper process, with a time limit that a loaded machine does not reach."""
    worker = JqWorker(limit=60)

    def run_program(program: str, text: str) -> dict[str, Any]:
        return worker.perform({"program": program, "input": text}, context())

    run_program.worker = worker  # type: ignore[attr-defined]
    yield run_program
    worker.close()


def kind_of(result: dict[str, Any]) -> str:
    kind: str = result["error"]["kind"]
    return kind


def test_program_gives_a_value(jq: Ask) -> None:
    """Paths, pipes and functions."""
    text = '{"summary": {"errors": [1, 2.5, null, true, "é"]}}'
    assert jq(".summary.errors", text) == {"value": [1, 2.5, None, True, "é"]}
    assert jq("[.summary.errors[] | numbers] | add", text) == {"value": 3.5}


def test_null_is_a_value(jq: Ask) -> None:
    """A missing key is null in jq, and null is a value."""
    assert jq(".none", "{}") == {"value": None}


def test_only_the_first_value_is_used(jq: Ask) -> None:
    """For a program with several values, and for a text with several documents."""
    assert jq(".[]", "[7, 8]") == {"value": 7}
    assert jq(".", "1 2 3") == {"value": 1}


def test_evaluation_stops_after_the_first_value(jq: Ask) -> None:
    """The following values are not even computed."""
    assert jq("1, error", "null") == {"value": 1}
    assert jq("def f: f; 1, f", "null") == {"value": 1}


def test_no_value_is_an_error(jq: Ask) -> None:
    """`empty`, or a text without a document."""
    assert kind_of(jq("empty", "1")) == "no-value"
    assert kind_of(jq(".", " \n")) == "no-value"


@pytest.mark.parametrize("text", ["{", "no json", '{"a": }', "[1, 2"])
def test_a_text_that_is_not_json_is_an_error(jq: Ask, text: str) -> None:
    """The message has the position."""
    error = jq(".", text)["error"]
    assert error["kind"] == "invalid-json"
    assert "line 1, column" in error["message"]


def test_invalid_program_is_an_error(jq: Ask) -> None:
    """Compile errors and run-time errors, with jq's message."""
    assert "syntax error" in jq("][", "1")["error"]["message"]
    assert jq(".a", "[1]")["error"] == {"kind": "jq", "message": 'Cannot index array with string ("a")'}


def test_endless_program_is_ended(jq: Any) -> None:
    """The time limit ends it; the next program gets a new helper."""
    original_limit, jq.worker._limit = jq.worker._limit, 0.5
    assert jq("def f: f; f", "1") == {
        "error": {"kind": "timeout", "message": "the jq program ran for more than 0.5 s"}
    }
    jq.worker._limit = original_limit
    assert jq(".", "1") == {"value": 1}


def test_memory_of_a_program_is_limited(jq: Ask) -> None:
    """The helper has a memory limit; the result is an error."""
    assert kind_of(jq('"x" * 2000000000 | explode', "1")) in ("memory", "jq", "timeout")
    assert jq(".", "1") == {"value": 1}


def test_helper_killed_while_idle_is_replaced(jq: Any) -> None:
    """The next program gets a new helper."""
    assert jq(".", "1") == {"value": 1}
    pid = jq.worker._worker._pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert jq(".", "2") == {"value": 2}


def test_helper_killed_at_work_is_an_error(jq: Any) -> None:
    """The error names the signal; the next program gets a new helper."""
    assert jq(".", "1") == {"value": 1}
    threading.Timer(0.1, os.kill, (jq.worker._worker._pid, signal.SIGKILL)).start()
    error = jq("def f: f; f", "1")["error"]
    assert (error["kind"], error["message"].endswith("it was ended by SIGKILL")) == ("memory", True)
    assert jq(".", "1") == {"value": 1}


def test_a_deeply_nested_value_is_refused(jq: Ask) -> None:
    """The limit is 200 levels, because other JSON readers have limits too."""
    nested = "[" * jq_worker.MAX_DEPTH + "]" * jq_worker.MAX_DEPTH
    assert json.dumps(jq(".", nested)["value"]) == nested
    assert kind_of(jq(".", f"[{nested}]")) == "too-deep"
    assert kind_of(jq(".", "[" * 100_000)) == "invalid-json"


def test_large_texts_are_supported(jq: Ask) -> None:
    """Texts larger than a pipe, in both directions."""
    numbers = list(range(100_000))
    assert jq("map(. + 1)", json.dumps(numbers)) == {"value": [number + 1 for number in numbers]}


def test_a_program_sees_no_environment(jq: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program sees only its input; `${env.X}` is available outside of jq."""
    monkeypatch.setenv("SECRET", "s3cret")
    assert jq("env.SECRET", "1") == {"value": None}


@pytest.mark.parametrize(
    ("program", "text"), [("\ud800", "1"), (".", '"\ud800"'), (".\0", "1"), (".", "1\0")]
)
def test_texts_that_libjq_does_not_support(jq: Ask, program: str, text: str) -> None:
    """Lone surrogates and NUL characters give an error or a value, never a crash."""
    assert set(jq(program, text)) <= {"value", "error"}
    assert jq(".", "1") == {"value": 1}


def test_an_interrupt_ends_the_wait(context: Callable[..., Context], interrupt: Interrupt) -> None:
    """The helper ends too."""
    before = children()
    worker = JqWorker(limit=600)
    threading.Timer(0.3, interrupt.set).start()
    with pytest.raises(Interrupted):
        worker.perform({"program": "def f: f; f", "input": "1"}, context())
    assert children() <= before


def children() -> set[str]:
    """Running child processes of this process."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def test_helper_ends_with_its_parent() -> None:
    """The pipe closes, so the helper ends."""
    worker = JqWorker()
    worker._worker.start()
    pid, read, write = worker._worker._pid, worker._worker.answers, worker._worker.requests
    os.close(write)
    os.close(read)
    assert os.waitpid(pid, 0)[0] == pid


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def shared_worker() -> Iterator[JqWorker]:
    worker = JqWorker()
    yield worker
    worker.close()


@settings(deadline=None, max_examples=tried(50))
@given(value=VALUES)
def test_value_round_trip(value: Any, shared_worker: JqWorker) -> None:
    """`.` is the identity on JSON."""
    interrupt = Interrupt()
    effect_context = Context(
        run_id="r", effect_id="r/1", loop=None, state=None, iteration=None,
        elapsed_ms=lambda: 0, interrupt=interrupt,
    )  # fmt: skip
    assert shared_worker.perform({"program": ".", "input": json.dumps(value)}, effect_context) == {
        "value": value
    }
    interrupt.close()
