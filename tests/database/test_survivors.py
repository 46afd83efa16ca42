"""Actions survive their worker: a worker on the same machine takes them over, no other one does."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import postgres
import psycopg
import pytest
from clusters import Cluster
from keepers import kill_with_keeper

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
WAITS = "echo one; echo two >&2; while [ ! -e {0}/go ]; do sleep 0.02; done; echo three"


def performed_once(run: str, *effects: int) -> Counter[str]:
    return Counter(f"{run}/{seq} {what}" for seq in effects or (1, 2) for what in ("begins", "ends"))


def results(cluster: Cluster, run: str) -> dict[int, str]:
    """The output of each action."""
    done = [event for event in cluster.events(run) if event["event"] == "action_complete"]
    assert len(done) == len({event["seq"] for event in done})
    return {event["seq"]: event["result"]["output"] for event in done}


def kept_results(cluster: Cluster) -> list[Path]:
    """The results that keepers have stored."""
    return list(cluster.folder.glob(".loops/.cluster/*/.loops/.running/*/kept/*.json"))


def test_restarted_worker_takes_over(cluster: Cluster) -> None:
    """Twice, while the action runs; its output is complete."""
    cluster.loop("job", second=WAITS.format("."))
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    for number in (1, 2):
        cluster.worker_of(run).kill()
        cluster.start()
        postgres.until(lambda number=number: cluster.journal(run).count('"2":"take-over"') == number)
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"
    assert cluster.log() == performed_once(run)
    assert results(cluster, run)[2] == "one\nthree\n"


def test_action_that_ended_without_a_worker(cluster: Cluster) -> None:
    """The next worker uses its result and removes it."""
    cluster.loop("job", second=WAITS.format("."))
    worker = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    worker.kill()
    worker.wait()
    (cluster.folder / "go").touch()
    postgres.until(lambda: kept_results(cluster))
    cluster.start()
    assert cluster.await_status(run)["outcome"] == "success"
    assert cluster.log() == performed_once(run)
    assert results(cluster, run)[2] == "one\nthree\n"
    assert not kept_results(cluster)


def test_uncommitted_result_is_kept(cluster: Cluster) -> None:
    """The worker dies between the end of an action and the commit of its result: the keeper still has it."""
    cluster.loop("job", first=WAITS.format("."))
    worker = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/1 begins")
    waiting = (
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%insert into journal%'"
    )
    with psycopg.connect(cluster.url, options="-c search_path=llc") as other:
        other.execute("select 1 from runs where id = %s for update", [run])
        (cluster.folder / "go").touch()
        postgres.until(lambda: cluster.database.execute(waiting).fetchone())
        worker.kill()
        worker.wait()
    cluster.start()
    assert cluster.await_status(run)["outcome"] == "success"
    assert cluster.log() == performed_once(run)
    assert results(cluster, run)[1] == "one\nthree\n"


def other_checkout(cluster: Cluster) -> Path:
    """Another checkout of the project, as on another machine."""
    other = cluster.folder / "elsewhere" / cluster.folder.name
    (other / ".loops").mkdir(parents=True)
    return other


def stop(cluster: Cluster, run: str) -> None:
    """Stop a run of a dead worker, once another worker has noticed the death."""
    postgres.until(lambda: cluster.row(run)["status"] == "queued")
    assert cluster.llc("stop", run, "--db", cluster.url).returncode == 0


def test_action_of_a_stopped_run_is_ended(cluster: Cluster) -> None:
    """The next worker of this machine ends it, since no process takes it over."""
    cluster.loop("job", second=WAITS.format("."))
    worker = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    worker.kill()
    other = cluster.start(folder=other_checkout(cluster))
    stop(cluster, run)
    other.terminate()
    other.wait()
    sockets = ".loops/.cluster/*/.loops/.running/*/keeper"
    postgres.until(lambda: list(cluster.folder.glob(sockets)))
    cluster.start()
    postgres.until(lambda: not list(cluster.folder.glob(sockets)))
    (cluster.folder / "go").touch()
    assert cluster.llc("resume", run, "--on", cluster.url).returncode == 0
    assert cluster.await_status(run)["outcome"] == "success"
    assert (cluster.log()[f"{run}/2 begins"], cluster.log()[f"{run}/2 ends"]) == (2, 1)


def test_decision_of_another_machine_takes_precedence(cluster: Cluster) -> None:
    """The run was moved, restarted there and moved back: the first attempt of the action is not used."""
    cluster.loop("job", second=f"cat {cluster.folder}/said; " + WAITS.format("."))
    (cluster.folder / "said").write_text("first ")
    worker = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    worker.kill()
    worker.wait()
    (cluster.folder / "go").touch()
    postgres.until(lambda: kept_results(cluster))
    other = other_checkout(cluster)
    worker = cluster.start(folder=other)
    stop(cluster, run)
    assert cluster.llc("resume", run, "--on", cluster.url).returncode == 0
    postgres.until(lambda: (other / "log").exists())
    kill_with_keeper(worker)
    (cluster.folder / "said").write_text("later ")
    cluster.start()
    stop(cluster, run)
    assert cluster.llc("resume", run, "--on", cluster.url).returncode == 0
    assert cluster.await_status(run)["outcome"] == "success"
    assert results(cluster, run)[2] == "later one\nthree\n"


@pytest.mark.parametrize("kills", ["worker", "frozen"])
def test_workers_killed_at_any_moment_of_actions(cluster: Cluster, kills: str) -> None:
    """Actions of 0.05 to 2 s, workers killed at random: each action is performed once, and no output is
    lost.
    """
    chance = random.Random(19)
    cluster.start()
    for number in range(250 if IS_LARGE else 2):
        seconds = [chance.uniform(0.05, 2.0 if IS_LARGE else 0.3) for _ in range(2)]
        first, second = (f"echo a; sleep {pause:.3f}; seq 300; sleep 0.02; echo c" for pause in seconds)
        cluster.loop("job", first, second)
        run = cluster.submit("job")
        for seq, pause in enumerate(seconds, 1):
            cluster.await_log(f"{run}/{seq} begins")
            time.sleep(chance.uniform(0.0, pause))
            victim = next(worker for worker in cluster.workers if worker.poll() is None)
            if kills == "frozen":
                victim.send_signal(signal.SIGSTOP)
                time.sleep(0.05)
            victim.kill()
            victim.wait()
            cluster.start()
        assert cluster.await_status(run)["outcome"] == "success", number
        assert {
            name: count for name, count in cluster.log().items() if name.startswith(run)
        } == performed_once(run)
        said = "a\n" + "".join(f"{line}\n" for line in range(1, 301)) + "c\n"
        assert results(cluster, run) == {1: said, 2: said}, number
