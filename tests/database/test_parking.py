"""A run that only waits holds no place of a worker; its time or an answer continues it anywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import postgres
import pytest
from clusters import Cluster

from llc.runtime.runs.scope_conflicts import overlap

AN_HOUR_LATER = (
    "update runs set due = now(), parked_at = parked_at - interval '1 hour' where status = 'waiting'"
)
WAITER = """
name: waiter
initial: one
scope: [src]
backoff: 600
max_iterations: 3
states:
  one: {action: "true", next: one}
"""


def _active_ms(events: list[dict[str, Any]]) -> float:
    (end,) = (event for event in events if event["event"] == "run_end")
    return float(end["duration_ms"])


def test_a_sleeping_run_holds_no_place(cluster: Cluster) -> None:
    """`--at-once 1`: another run is performed meanwhile; the sleep ends when it would have."""
    (cluster.folder / ".loops/sleeper.sexp").write_text('(begin (sleep 3600) "slept")')
    cluster.loop("job")
    cluster.start("--at-once", "1")
    sleeper = cluster.submit("sleeper")
    cluster.await_status(sleeper, "waiting")
    assert cluster.row(sleeper)["owner"] is None
    shown = cluster.llc("status", sleeper, "--db", cluster.url, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["terminated_by"] is None
    job = cluster.submit("job")
    assert cluster.await_status(job)["outcome"] == "success"
    assert cluster.row(sleeper)["status"] == "waiting"
    cluster.database.execute(AN_HOUR_LATER)
    assert cluster.await_status(sleeper)["outcome"] == "success"
    events = cluster.events(sleeper)
    assert [event.get("reason") for event in events if event["event"] == "run_interrupted"] == ["parked"]
    shown = cluster.llc("status", sleeper, "--db", cluster.url, "--json")
    assert json.loads(shown.stdout)["resumed"] == 0
    assert 3_600_000 <= _active_ms(events) < 5_400_000  # the time without a worker counts, and only once
    segments = "select count(*) from llc_dbos.workflow_status where workflow_uuid like %s"
    (count,) = cluster.database.execute(segments, [f"{sleeper}/%"]).fetchone() or (None,)
    assert count == 1


def test_a_question_holds_no_place(cluster: Cluster) -> None:
    """The answer continues a parked run, on another worker than the one that asked."""
    (cluster.folder / ".loops/asker.sexp").write_text('(ask "well?")')
    first = cluster.start()
    run = cluster.submit("asker")
    cluster.await_status(run, "waiting")
    first.terminate()
    assert first.wait(120) == 0
    answered = cluster.llc("answer", run, "quite", "--db", cluster.url)
    assert answered.returncode == 0, answered.stderr
    assert cluster.row(run)["status"] == "queued"
    cluster.start()
    assert cluster.await_status(run)["outcome"] == "success"
    (end,) = (event for event in cluster.events(run) if event["event"] == "run_end")
    assert end["value"] == "quite"


def test_a_parked_run_keeps_its_paths_and_is_stopped(cluster: Cluster) -> None:
    """Another run of the same scope waits for it; `stop` ends the wait at once."""
    (cluster.folder / ".loops/waiter.yaml").write_text(WAITER)
    cluster.loop("job", scope="src")
    cluster.start()
    waiter = cluster.submit("waiter")
    cluster.await_status(waiter, "waiting")
    job = cluster.submit("job")
    cluster.loop("free")
    cluster.await_status(cluster.submit("free"))
    assert cluster.row(job)["status"] == "queued"
    stopped = cluster.llc("stop", waiter, "--db", cluster.url)
    assert stopped.stdout == f"{waiter}: stopped\n"
    assert cluster.await_status(job)["outcome"] == "success"
    assert cluster.row(waiter)["status"] == "stopped"


PATHS = ("/", "/a", "/a/b", "/ab", "/a/b/c", "machine:/", "machine:/a", "machine:/a/b", "/é/x y")


def test_paths_overlap_in_the_database_as_in_a_folder(cluster: Cluster) -> None:
    """A run that waits holds what it and nothing else overlaps with, for each pair of paths."""
    insert = (
        "insert into runs (id, project, program, scope, managed, status) values (%s, 'p', 'x', %s, true, %s)"
    )
    cluster.database.execute(insert, ["waits", [], "waiting"])
    cluster.database.execute(insert, ["other", [], "queued"])
    for held in PATHS:
        cluster.database.execute("update runs set scope = %s where id = 'waits'", [["/other", held]])
        for wanted in PATHS:
            cluster.database.execute("update runs set scope = %s where id = 'other'", [[wanted]])
            due = cluster.database.execute("select is_due('other/1', 'p', '{}', '')").fetchone()
            is_held = any(overlap(path, wanted) for path in ("/other", held))
            assert due == (not is_held,), (held, wanted)


ASKED = """
name: asked
initial: work
scope: []
agent: mine
states:
  work: {WORK, on_unknown: fail, on_success: done, on_failure: lost, on_error: lost}
  done: {terminal: true}
  lost: {terminal: true, status: failure}
"""
WORK = {
    "action": "action: do it, action_type: prompt, evaluate: {type: exit_code}",
    "verdict": "action: echo finished, evaluate: {type: llm_structured}",
}
AGENT = """import json, sys
sys.stdin.read()
with open("asked", "a") as file:
    file.write("x")
verdict = {"verdict": "success", "confidence": 0.9, "reason": "seen"}
end = {"is_error": False, "num_turns": 1, "session_id": "s", "total_cost_usd": 0.02, "result": "ok"}
print(json.dumps({"type": "system", "subtype": "init", "session_id": "s", "model": "m"}))
print(json.dumps({"type": "result", "subtype": "success", **end, "structured_output": verdict}))
"""


@pytest.fixture(params=WORK)
def asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[], int]:
    """A loop whose agent works or judges, and whose account has no quota; how often it was asked."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "LLC_AGENT"):
        monkeypatch.delenv(name, raising=False)
    (cluster.folder / "agent.py").write_text(AGENT)
    mine = {"extends": "claude", "argv": [sys.executable, "agent.py", "{options}"]}
    (cluster.folder / ".loops/config.yaml").write_text(json.dumps({"agents": {"mine": mine}}))
    (cluster.folder / ".loops/asked.yaml").write_text(ASKED.replace("WORK", WORK[request.param]))
    cluster.database.execute(
        "insert into breakers (account, until, opened, reason, failures) "
        "select 'mine', now + 3600, now, 'no more today', 1 from (select extract(epoch from now()) as now) x"
    )
    path = cluster.folder / "asked"
    return lambda: len(path.read_text()) if path.exists() else 0


def await_quota(cluster: Cluster) -> str:
    """A run of the loop that is parked, because its agent's account has no quota."""
    run = cluster.submit("asked", "--no-preflight")
    cluster.await_status(run, "waiting")
    assert cluster.row(run)["owner"] is None
    return run


def test_a_run_that_waits_for_its_quota_holds_no_place(cluster: Cluster, asked: Callable[[], int]) -> None:
    """`--at-once 1`: another run is performed meanwhile; the agent is asked once the breaker is closed."""
    cluster.loop("job")
    cluster.start("--at-once", "1")
    run = await_quota(cluster)
    shown = cluster.llc("status", run, "--db", cluster.url)
    assert "quota of the account mine until" in shown.stdout, shown.stdout + shown.stderr
    assert cluster.await_status(cluster.submit("job"))["outcome"] == "success"
    assert (cluster.row(run)["status"], asked()) == ("waiting", 0)
    cluster.database.execute("delete from breakers")
    assert cluster.await_status(run)["outcome"] == "success"
    events = cluster.events(run)
    assert [event.get("reason") for event in events if event["event"] == "run_interrupted"] == ["parked"]
    assert asked() == 1


def test_a_quota_is_there_again_at_its_time(cluster: Cluster, asked: Callable[[], int]) -> None:
    """On another worker than the one that began; the time without a worker is part of the loop's time."""
    first = cluster.start()
    run = await_quota(cluster)
    first.terminate()
    assert first.wait(120) == 0
    cluster.start()
    cluster.database.execute("update breakers set until = 0")
    cluster.database.execute(AN_HOUR_LATER)
    assert cluster.await_status(run)["outcome"] == "success"
    assert asked() == 1
    assert 3_600_000 <= _active_ms(cluster.events(run)) < 5_400_000


def test_a_wait_for_a_quota_does_not_delay_draining(cluster: Cluster, asked: Callable[[], int]) -> None:
    """The run is returned at once, whether it was parked already or not."""
    worker = cluster.start("--drain", "3600")
    run = cluster.submit("asked", "--no-preflight")
    postgres.until(lambda: any(event.get("what") == "quota-wait" for event in cluster.events(run)))
    worker.terminate()
    assert worker.wait(120) == 0
    assert cluster.row(run)["status"] in ("queued", "waiting")
    assert asked() == 0
