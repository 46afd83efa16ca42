"""A run that only waits holds no place of a worker; its time or an answer continues it anywhere."""

from __future__ import annotations

from typing import Any

from clusters import Cluster

from llc.runtime.runs.locks import overlap

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
    job = cluster.submit("job")
    assert cluster.await_status(job)["outcome"] == "success"
    assert cluster.row(sleeper)["status"] == "waiting"
    cluster.database.execute(AN_HOUR_LATER)
    assert cluster.await_status(sleeper)["outcome"] == "success"
    events = cluster.events(sleeper)
    assert [event.get("reason") for event in events if event["event"] == "run_interrupted"] == ["parked"]
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
