"""Without a workspace, a run continues on the machine with its files; other workers report this, and a person
can move it.
"""

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
    result = cluster.llc("status", run, "--db", cluster.url, "--json")
    assert result.returncode == 0, result.stderr
    return str(json.loads(result.stdout).get("waits_for"))


def _other_checkout(cluster: Cluster) -> Path:
    """Another checkout of the project, as on another machine."""
    other = cluster.folder / "elsewhere" / cluster.folder.name
    (other / ".loops").mkdir(parents=True)
    return other


def test_a_run_stays_with_its_files(cluster: Cluster) -> None:
    """After its worker is killed, a worker with other files leaves the run, one with its files takes it."""
    cluster.loop("job", second=WAITS.format(cluster.folder))
    first = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    other = _other_checkout(cluster)
    cluster.start(folder=other)
    first.kill()
    postgres.until(lambda: cluster.row(run)["status"] == "queued")
    assert f":{cluster.folder}, where its files are" in _waits_for(cluster, run)
    cluster.loop("free")
    assert cluster.await_status(cluster.submit("free"))["outcome"] == "success"  # the other worker has polled
    assert cluster.row(run)["status"] == "queued"
    (cluster.folder / "go").touch()
    cluster.start()
    assert cluster.await_status(run)["outcome"] == "success"


def test_a_stopped_run_is_moved_by_resume(cluster: Cluster) -> None:
    """After `resume --on` any worker may take it."""
    cluster.loop("job", second=WAITS.format(cluster.folder))
    first = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    first.kill()
    other = _other_checkout(cluster)
    cluster.start(folder=other)
    postgres.until(lambda: cluster.row(run)["status"] == "queued")
    assert cluster.llc("stop", run, "--db", cluster.url).returncode == 0
    assert cluster.llc("resume", run, "--on", cluster.url).returncode == 0
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"
    assert f"{run}/2 ends" in (other / "log").read_text()


def test_a_run_is_resumed_once(cluster: Cluster) -> None:
    """A second `resume --on` of the same stopped run does not queue it again, since a worker may have it."""
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
    """`--machine`: two checkouts in the same folder, such as a network file system."""
    cluster.loop("job", second=WAITS.format(cluster.folder))
    first = cluster.start("--machine", "share")
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    cluster.start("--machine", "share", folder=_other_checkout(cluster))
    first.kill()
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"


def test_a_run_is_forked_from_anywhere(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The new run is queued with the history of the original; a worker performs only later effects."""
    cluster.loop("job")
    cluster.start()
    run = cluster.submit("job")
    cluster.await_status(run)
    other_folder = tmp_path_factory.mktemp("elsewhere")
    words = [sys.executable, "-m", "llc", "fork", run, "--on", cluster.url]

    def fork(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *more], cwd=other_folder, capture_output=True, text=True, timeout=LIMIT_S
        )

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
    data = json.loads(fork("--state", "one", "--json", "--quiet").stdout)
    assert (data["status"], data["forked_from"]) == ("queued", run)
    assert cluster.await_status(data["run"])["outcome"] == "success"
    assert "no effect 9" in fork("--at", "9").stderr
    assert "exclude each other" in fork("--at", "2", "--background").stderr
    assert not list(other_folder.iterdir())
