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

from llc.runtime.effects import jq_worker
from llc.runtime.effects.jq import JqWorker
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted

Ask = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def jq(context: Callable[..., Context]) -> Iterator[Callable[..., dict[str, Any]]]:
    """`jq(program, text)` in one helper, with a limit that a loaded machine does not reach."""
    worker = JqWorker(limit=60)

    def ask(program: str, text: str) -> dict[str, Any]:
        return worker.perform({"program": program, "input": text}, context())

    ask.worker = worker  # type: ignore[attr-defined]
    yield ask
    worker.close()


def kind_of(result: dict[str, Any]) -> str:
    kind: str = result["error"]["kind"]
    return kind


def test_a_program_gives_a_value(jq: Ask) -> None:
    """Real jq: paths, pipes, functions."""
    text = '{"summary": {"errors": [1, 2.5, null, true, "é"]}}'
    assert jq(".summary.errors", text) == {"value": [1, 2.5, None, True, "é"]}
    assert jq("[.summary.errors[] | numbers] | add", text) == {"value": 3.5}


def test_null_is_a_value(jq: Ask) -> None:
    """A missing key is null in jq, and null is an answer."""
    assert jq(".none", "{}") == {"value": None}


def test_only_the_first_value_counts(jq: Ask) -> None:
    """Of a program that gives several, and of a text that holds several."""
    assert jq(".[]", "[7, 8]") == {"value": 7}
    assert jq(".", "1 2 3") == {"value": 1}


def test_a_first_value_is_enough(jq: Ask) -> None:
    """What comes after it is not even computed."""
    assert jq("1, error", "null") == {"value": 1}
    assert jq("def f: f; 1, f", "null") == {"value": 1}


def test_no_value_is_an_error(jq: Ask) -> None:
    """`empty`, or a text without anything in it."""
    assert kind_of(jq("empty", "1")) == "no-value"
    assert kind_of(jq(".", " \n")) == "no-value"


@pytest.mark.parametrize("text", ["{", "no json", '{"a": }', "[1, 2"])
def test_a_text_that_is_not_json_is_an_error(jq: Ask, text: str) -> None:
    """The message says where it breaks off."""
    error = jq(".", text)["error"]
    assert error["kind"] == "invalid-json"
    assert "line 1, column" in error["message"]


def test_an_error_in_a_program_is_an_error(jq: Ask) -> None:
    """At compilation and at run time, in jq's words."""
    assert "syntax error" in jq("][", "1")["error"]["message"]
    assert jq(".a", "[1]")["error"] == {"kind": "jq", "message": 'Cannot index array with string ("a")'}


def test_an_endless_program_is_ended(jq: Any) -> None:
    """By the time limit; the next program gets a new helper."""
    usual, jq.worker._limit = jq.worker._limit, 0.5
    assert jq("def f: f; f", "1") == {
        "error": {"kind": "timeout", "message": "the jq program ran for more than 0.5 s"}
    }
    jq.worker._limit = usual
    assert jq(".", "1") == {"value": 1}


def test_a_program_that_needs_too_much_memory_is_ended(jq: Ask) -> None:
    """The helper has a bound; the run does not notice more than an error."""
    assert kind_of(jq('"x" * 2000000000 | explode', "1")) in ("memory", "jq", "timeout")
    assert jq(".", "1") == {"value": 1}


def test_a_helper_that_is_killed_while_idle_is_replaced(jq: Any) -> None:
    """By whom ever; nobody notices."""
    assert jq(".", "1") == {"value": 1}
    pid = jq.worker._worker._pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert jq(".", "2") == {"value": 2}


def test_a_helper_that_is_killed_at_work_is_an_error(jq: Any) -> None:
    """That says by what; the next program gets a new one."""
    assert jq(".", "1") == {"value": 1}
    threading.Timer(0.1, os.kill, (jq.worker._worker._pid, signal.SIGKILL)).start()
    error = jq("def f: f; f", "1")["error"]
    assert (error["kind"], error["message"].endswith("it was ended by SIGKILL")) == ("memory", True)
    assert jq(".", "1") == {"value": 1}


def test_a_deeply_nested_value_is_refused(jq: Ask) -> None:
    """200 levels; more would not get through JSON everywhere."""
    deep = "[" * jq_worker.MAX_DEPTH + "]" * jq_worker.MAX_DEPTH
    assert json.dumps(jq(".", deep)["value"]) == deep
    assert kind_of(jq(".", f"[{deep}]")) == "too-deep"
    assert kind_of(jq(".", "[" * 100_000)) == "invalid-json"


def test_large_texts_go_through(jq: Ask) -> None:
    """More than fits into a pipe, in both directions."""
    numbers = list(range(100_000))
    assert jq("map(. + 1)", json.dumps(numbers)) == {"value": [number + 1 for number in numbers]}


def test_a_program_sees_no_environment(jq: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input is all it knows; `${env.X}` is there for the rest."""
    monkeypatch.setenv("SECRET", "s3cret")
    assert jq("env.SECRET", "1") == {"value": None}


@pytest.mark.parametrize(
    ("program", "text"), [("\ud800", "1"), (".", '"\ud800"'), (".\0", "1"), (".", "1\0")]
)
def test_texts_that_libjq_cannot_take_are_errors(jq: Ask, program: str, text: str) -> None:
    """Lone surrogates and NUL characters: an error or what jq makes of it, never a crash of ours."""
    assert set(jq(program, text)) <= {"value", "error"}
    assert jq(".", "1") == {"value": 1}


def test_an_interrupt_ends_the_wait(context: Callable[..., Context], interrupt: Interrupt) -> None:
    """And the helper with it."""
    before = children()
    worker = JqWorker(limit=600)
    threading.Timer(0.3, interrupt.set).start()
    with pytest.raises(Interrupted):
        worker.perform({"program": "def f: f; f", "input": "1"}, context())
    assert children() <= before


def children() -> set[str]:
    """The processes that this one has started and that are still there."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def test_a_helper_ends_with_its_parent() -> None:
    """The pipe closes, and the helper with it."""
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
def kept() -> Iterator[JqWorker]:
    worker = JqWorker()
    yield worker
    worker.close()


@settings(deadline=None, max_examples=150)
@given(value=VALUES)
def test_a_value_comes_back_as_it_was(value: Any, kept: JqWorker) -> None:
    """`.` is the identity on JSON."""
    interrupt = Interrupt()
    at = Context(
        run_id="r", effect_id="r/1", loop=None, state=None, iteration=None,
        elapsed_ms=lambda: 0, interrupt=interrupt,
    )  # fmt: skip
    assert kept.perform({"program": ".", "input": json.dumps(value)}, at) == {"value": value}
    interrupt.close()
