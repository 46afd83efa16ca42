"""A waiting run occupies no slot of a worker; its time or an answer continues it on any worker."""

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


def test_sleeping_run_occupies_no_slot(cluster: Cluster) -> None:
    """With `--at-once 1` another run is performed in between; the sleep ends at its normal time."""
    (cluster.folder / ".loops/sleeper.sexp").write_text('(begin (sleep 3600) "slept")')
    cluster.loop("job")
    cluster.start("--at-once", "1")
    sleeper = cluster.submit("sleeper")
    cluster.await_status(sleeper, "waiting")
    assert cluster.row(sleeper)["owner"] is None
    result = cluster.llc("status", sleeper, "--db", cluster.url, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["terminated_by"] is None
    job = cluster.submit("job")
    assert cluster.await_status(job)["outcome"] == "success"
    assert cluster.row(sleeper)["status"] == "waiting"
    cluster.database.execute(AN_HOUR_LATER)
    assert cluster.await_status(sleeper)["outcome"] == "success"
    events = cluster.events(sleeper)
    assert [event.get("reason") for event in events if event["event"] == "run_interrupted"] == ["parked"]
    result = cluster.llc("status", sleeper, "--db", cluster.url, "--json")
    assert json.loads(result.stdout)["resumed"] == 0
    assert 3_600_000 <= _active_ms(events) < 5_400_000  # the time without a worker counts once
    segments = "select count(*) from llc_dbos.workflow_status where workflow_uuid like %s"
    (count,) = cluster.database.execute(segments, [f"{sleeper}/%"]).fetchone() or (None,)
    assert count == 1


def test_question_occupies_no_slot(cluster: Cluster) -> None:
    """The answer continues the parked run on another worker."""
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
    """For each pair of paths, a waiting run blocks exactly the runs whose paths overlap its own."""
    insert = (
        "insert into runs (id, project, program, scope, managed, status) values (%s, 'p', 'x', %s, true, %s)"
    )
    cluster.database.execute(insert, ["waits", [], "waiting"])
    cluster.database.execute(insert, ["other", [], "queued"])
    for claimed in PATHS:
        cluster.database.execute("update runs set scope = %s where id = 'waits'", [["/other", claimed]])
        for requested in PATHS:
            cluster.database.execute("update runs set scope = %s where id = 'other'", [[requested]])
            due = cluster.database.execute("select is_due('other/1', 'p', '{}', '')").fetchone()
            is_blocked = any(overlap(path, requested) for path in ("/other", claimed))
            assert due == (not is_blocked,), (claimed, requested)


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
def agent_calls(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[], int]:
    """A loop whose agent works or judges on an account without quota; returns the number of its calls."""
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
    """A parked run of the loop, waiting for the quota of its agent's account."""
    run = cluster.submit("asked", "--no-preflight")
    cluster.await_status(run, "waiting")
    assert cluster.row(run)["owner"] is None
    return run


def test_run_waiting_for_quota_occupies_no_slot(cluster: Cluster, agent_calls: Callable[[], int]) -> None:
    """With `--at-once 1` another run is performed in between; the agent is called once the breaker is
    closed.
    """
    cluster.loop("job")
    cluster.start("--at-once", "1")
    run = await_quota(cluster)
    result = cluster.llc("status", run, "--db", cluster.url)
    assert "quota of the account mine until" in result.stdout, result.stdout + result.stderr
    assert cluster.await_status(cluster.submit("job"))["outcome"] == "success"
    assert (cluster.row(run)["status"], agent_calls()) == ("waiting", 0)
    cluster.database.execute("delete from breakers")
    assert cluster.await_status(run)["outcome"] == "success"
    events = cluster.events(run)
    assert [event.get("reason") for event in events if event["event"] == "run_interrupted"] == ["parked"]
    assert agent_calls() == 1


def test_run_continues_at_the_reset_of_the_quota(cluster: Cluster, agent_calls: Callable[[], int]) -> None:
    """On another worker; the time without a worker is part of the loop's time."""
    first = cluster.start()
    run = await_quota(cluster)
    first.terminate()
    assert first.wait(120) == 0
    cluster.start()
    cluster.database.execute("update breakers set until = 0")
    cluster.database.execute(AN_HOUR_LATER)
    assert cluster.await_status(run)["outcome"] == "success"
    assert agent_calls() == 1
    assert 3_600_000 <= _active_ms(cluster.events(run)) < 5_400_000


def test_a_wait_for_a_quota_does_not_delay_draining(cluster: Cluster, agent_calls: Callable[[], int]) -> None:
    """The run is returned at once, parked or not."""
    worker = cluster.start("--drain", "3600")
    run = cluster.submit("asked", "--no-preflight")
    postgres.until(lambda: any(event.get("what") == "quota-wait" for event in cluster.events(run)))
    worker.terminate()
    assert worker.wait(120) == 0
    assert cluster.row(run)["status"] in ("queued", "waiting")
    assert agent_calls() == 0
