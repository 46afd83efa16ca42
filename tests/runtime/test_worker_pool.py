"""Helper processes that serve several callers: the real client, a local server and interrupted calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llc.runtime.host.effect_context import Context, Interrupt, Interrupted
from llc.runtime.models.judge import Judge
from llc.runtime.models.provider import Provider
from llc.runtime.models.worker_pool import MAX_CALLS, SharedWorkers

ARGS = {
    "prompt": "Did it work?",
    "output": "good",
    "schema": {"type": "object"},
    "model": "claude-haiku-4-5",
    "max_tokens": 256,
    "timeout_s": 30,
}


def helpers_of(pid: int) -> list[int]:
    """The pids of the running helper processes of a process."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid and b"llc.runtime.models.anthropic_provider" in words:
            pids.append(int(name))
    return pids


@pytest.fixture(scope="module")
def server(answers: ModuleType) -> Iterator[Any]:
    with answers.MessagesServer() as server:
        yield server


@pytest.fixture
def stalling_server(server: Any, answers: ModuleType) -> None:
    """The server does not reply to outputs that contain `stall`; to others it replies with their first
    line.
    """

    def answer(handler: Any, request: dict[str, Any]) -> None:
        text = request["messages"][0]["content"][0]["text"]
        if "stall" in text:
            answers.stall()(handler, request)
        else:
            answers.tool({"verdict": text.split("<action_output>\n")[1].split("\n")[0]}, name="evaluate")(
                handler, request
            )

    server.answers[:] = [answer]


@pytest.fixture(scope="module")
def shared(server: Any) -> Iterator[SharedWorkers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", server.url)
        patch.setenv("ANTHROPIC_API_KEY", "test-key")
        patch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1")
        shared = SharedWorkers(dict(os.environb))
    yield shared
    shared.close()
    assert not helpers_of(os.getpid())


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(shared: SharedWorkers, stalling_server: None, context: Callable[..., Context]) -> Ask:
    """`ask("output")`: the result of an evaluation, with a new judge for each call."""

    def ask(output: str, within: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
        return Judge(shared).perform({**ARGS, **args, "output": output}, context(**(within or {})))

    return ask


def run_concurrently(*calls: Callable[[], Any]) -> list[Any]:
    results: dict[int, Any] = {}

    def do(number: int, call: Callable[[], Any]) -> None:
        try:
            results[number] = call()
        except Interrupted as error:
            results[number] = error

    threads = [threading.Thread(target=do, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[number] for number in range(len(calls))]


def test_each_call_gets_its_own_answer(ask: Ask) -> None:
    """More concurrent calls than one helper accepts use two helpers, and each caller gets its own reply."""
    words = [f"word-{n}" for n in range(MAX_CALLS + 10)]
    results = run_concurrently(*(lambda word=word: ask(word) for word in words))  # type: ignore[misc]
    assert [result.get("reply") for result in results] == [{"verdict": word} for word in words]
    assert 1 <= len(helpers_of(os.getpid())) <= 2


def test_a_timeout_of_one_call_does_not_affect_others(ask: Ask) -> None:
    slow, one, two = run_concurrently(
        lambda: ask("stall", timeout_s=0.5), lambda: ask("one"), lambda: ask("two")
    )
    assert slow["error"]["kind"] == "timeout"
    assert (one["reply"], two["reply"]) == ({"verdict": "one"}, {"verdict": "two"})
    assert ask("three")["reply"] == {"verdict": "three"}


def await_request(server: Any, words: str) -> None:
    """Wait until the server has a request with this text."""
    end = time.monotonic() + 60
    while not any(words in json.dumps(request) for request in list(server.requests)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_interrupt_ends_one_call_at_once(ask: Ask) -> None:
    """The other calls of the helper continue."""
    interrupt = Interrupt()
    timer = threading.Timer(0.3, interrupt.set)
    timer.start()
    started = time.monotonic()
    failed, one = run_concurrently(lambda: ask("stall", within={"interrupt": interrupt}), lambda: ask("one"))
    assert isinstance(failed, Interrupted)
    assert time.monotonic() - started < 25
    assert one["reply"] == {"verdict": "one"}
    interrupt.close()


def test_a_killed_helper_is_replaced(ask: Ask, server: Any) -> None:
    """Its pending call fails, and the next call succeeds."""
    assert ask("one")["reply"] == {"verdict": "one"}

    def kill() -> None:
        await_request(server, "stall-then-killed")
        for pid in helpers_of(os.getpid()):
            os.kill(pid, signal.SIGKILL)

    failed, _ = run_concurrently(lambda: ask("stall-then-killed"), kill)
    assert failed["error"]["kind"] == "client"
    assert "SIGKILL" in failed["error"]["message"]
    assert ask("two")["reply"] == {"verdict": "two"}


def test_long_concurrent_requests_are_complete(ask: Ask) -> None:
    """Each request is longer than the buffer of a pipe."""
    calls = [lambda n=n: ask(f"word-{n}\n" + "x" * 300_000) for n in range(4)]  # type: ignore[misc]
    assert [result["reply"]["verdict"] for result in run_concurrently(*calls)] == [
        f"word-{n}" for n in range(4)
    ]


LOOP = """
name: judge
initial: look
states:
  look:
    action: "echo good"
    evaluate: {type: llm_structured, prompt: "Is it?", schema: {type: object}}
    route: {success: done, _: failed}
  done: {terminal: true}
  failed: {terminal: true, status: failure}
"""


def test_a_batch_has_two_helpers(
    tmp_path: Path, messages_server: Any, answers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 concurrent runs share them, and each gets its verdict."""
    monkeypatch.chdir(tmp_path)
    seen: list[int] = []
    gate = threading.Event()

    def answer(handler: Any, request: dict[str, Any]) -> None:
        seen.append(1)
        gate.wait(30)
        answers.verdict("success", 0.9)(handler, request)

    messages_server.then(answer)
    Path(".loops").mkdir()
    Path(".loops/judge.yaml").write_text(LOOP.replace(", schema: {type: object}", ""))
    Path("jobs.jsonl").write_text('{"loop": "judge", "scope": []}\n' * 60)
    words = [sys.executable, "-m", "llc", "batch", "jobs.jsonl", "--json", "--at-once", "60"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while len(seen) < 60:
        assert time.monotonic() < end
        time.sleep(0.01)
    helpers = helpers_of(process.pid)
    gate.set()
    output, errors = process.communicate(timeout=60)
    assert [json.loads(line)["status"] for line in output.splitlines()] == ["success"] * 60, errors
    assert len(helpers) == 2


def test_concurrent_calls_share_one_client() -> None:
    """Also the first calls, for which no client exists yet."""
    created: list[object] = []
    used: list[object] = []

    def connect(**settings: Any) -> object:
        time.sleep(0.05)
        created.append(object())
        return created[-1]

    def send(client: Any, request: dict[str, Any], reply: Any, is_forced: bool) -> None:
        used.append(client)

    import anthropic  # imported here, as it takes a second that other tests do not need

    provider = Provider(anthropic, connect, send)
    request = {"model": "m", "base_url": None, "key": None, "output": None, "timeout": 1.0}
    run_concurrently(*(lambda: provider.answer(dict(request), lambda part: None) for _ in range(8)))
    assert used == created * 8
