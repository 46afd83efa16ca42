"""Without a workspace, a run continues where its files are; others say so, and a person can move it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import postgres
import psycopg
import pytest
from clusters import LIMIT_S, Cluster

WAITS = "while [ ! -e {0}/go ]; do sleep 0.02; done"


def _waits_for(cluster: Cluster, run: str) -> str:
    shown = cluster.llc("status", run, "--db", cluster.url, "--json")
    assert shown.returncode == 0, shown.stderr
    return str(json.loads(shown.stdout).get("waits_for"))


def _checkout(cluster: Cluster) -> Path:
    """Another checkout of the project, as on another machine."""
    other = cluster.folder / "elsewhere" / cluster.folder.name
    (other / ".loops").mkdir(parents=True)
    return other


def test_a_run_stays_with_its_files(cluster: Cluster) -> None:
    """Its worker is killed: one with other files leaves it, one with its files takes it."""
    cluster.loop("job", second=WAITS.format(cluster.folder))
    first = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    other = _checkout(cluster)
    cluster.start(folder=other)
    first.kill()
    postgres.until(lambda: cluster.row(run)["status"] == "queued")
    assert f":{cluster.folder}, where its files are" in _waits_for(cluster, run)
    cluster.loop("free")
    assert cluster.await_status(cluster.submit("free"))["outcome"] == "success"  # the other one has looked
    assert cluster.row(run)["status"] == "queued"
    (cluster.folder / "go").touch()
    cluster.start()
    assert cluster.await_status(run)["outcome"] == "success"


def test_a_stopped_run_is_moved_by_resume(cluster: Cluster) -> None:
    """`resume --on` is a decision: any worker takes it then."""
    cluster.loop("job", second=WAITS.format(cluster.folder))
    first = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    first.kill()
    other = _checkout(cluster)
    cluster.start(folder=other)
    postgres.until(lambda: cluster.row(run)["status"] == "queued")
    assert cluster.llc("stop", run, "--db", cluster.url).returncode == 0
    assert cluster.llc("resume", run, "--on", cluster.url).returncode == 0
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"
    assert f"{run}/2 ends" in (other / "log").read_text()


def test_a_run_is_resumed_once(cluster: Cluster) -> None:
    """A second `resume --on` that finds it stopped too queues it not again: a worker may have it already."""
    cluster.loop("job")
    run = cluster.submit("job")
    assert cluster.llc("stop", run, "--db", cluster.url).returncode == 0
    waits = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with psycopg.connect(cluster.url, options="-c search_path=llc") as first:
        first.execute("update runs set managed = true where id = %s", [run])
        first.execute("select enqueue_segment(%s)", [run])
        words = [sys.executable, "-m", "llc", "resume", run, "--on", cluster.url]
        with subprocess.Popen(words, cwd=cluster.folder, stderr=subprocess.PIPE, text=True) as second:
            postgres.until(lambda: cluster.database.execute(waits).fetchone())
            first.commit()
            _, errors = second.communicate(timeout=LIMIT_S)
    assert (second.returncode, "error[unknown-run]" in errors) == (1, True), errors
    assert cluster.row(run)["segment"] == 2


def test_workers_of_one_name_share_the_files(cluster: Cluster) -> None:
    """`--machine`: two checkouts that are one folder for both, such as a network file system."""
    cluster.loop("job", second=WAITS.format(cluster.folder))
    first = cluster.start("--machine", "share")
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    cluster.start("--machine", "share", folder=_checkout(cluster))
    first.kill()
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"


def test_a_run_is_forked_from_anywhere(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The new run is queued with the past of the other one; a worker performs only what follows."""
    cluster.loop("job")
    cluster.start()
    run = cluster.submit("job")
    cluster.await_status(run)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    words = [sys.executable, "-m", "llc", "fork", run, "--on", cluster.url]

    def fork(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], cwd=elsewhere, capture_output=True, text=True, timeout=LIMIT_S)

    made = fork("--at", "2")
    assert made.returncode == 0, made.stderr
    assert "1 result shared" in made.stderr
    forked = made.stdout.strip()
    assert cluster.await_status(forked)["outcome"] == "success"
    assert [line for line in cluster.log() if line.startswith(forked)] == [
        f"{forked}/2 begins",
        f"{forked}/2 ends",
    ]
    assert cluster.events(forked)[0]["forked_from"]["run"] == run
    told = json.loads(fork("--state", "one", "--json", "--quiet").stdout)
    assert (told["status"], told["forked_from"]) == ("queued", run)
    assert cluster.await_status(told["run"])["outcome"] == "success"
    assert "no effect 9" in fork("--at", "9").stderr
    assert "exclude each other" in fork("--at", "2", "--background").stderr
    assert not list(elsewhere.iterdir())
