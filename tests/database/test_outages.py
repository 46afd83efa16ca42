"""Outages and faults of a cluster: unreachable or full databases, wrong clocks, equal names, corrupted
rows.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import postgres
import psycopg
import pytest
from clusters import LIMIT_S, Cluster

WAIT = "while [ ! -e go ]; do sleep 0.02; done"
# A worker on a machine with another clock, or in a container whose name and process number are not unique.
WORKER = """
import sys
from llc.runtime.host import clock, environment, processes
shift, same = float(sys.argv[1]), sys.argv[2] == "same"
now = clock.time
clock.time = lambda: now() + shift
if same:
    environment.node, processes.getpid = lambda: "box", lambda: 7
from llc.runtime.launch.worker import work
sys.exit(work(sys.argv[3], (), 4, 30))
"""


def worker_with_other_identity(
    cluster: Cluster, shift: float = 0, same: bool = False
) -> subprocess.Popen[str]:
    log = cluster.folder / f"worker-{len(cluster.workers)}.txt"
    words = [str(shift), "same" if same else "own", cluster.url]
    with log.open("w") as errors:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, *words],
            cwd=cluster.folder,
            stdin=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
    cluster.workers.append(worker)
    postgres.until(lambda: log.read_text() or worker.poll() is not None)
    return worker


def performed_once(run: str) -> Counter[str]:
    return Counter(f"{run}/{seq} {what}" for seq in (1, 2) for what in ("begins", "ends"))


def test_run_waits_for_an_unreachable_database(tmp_path: Path, own_server: postgres.Server) -> None:
    """The action in progress ends during the outage; afterwards the run continues, and nothing is performed
    twice.
    """
    cluster = Cluster(tmp_path, postgres.cluster_database(own_server.url("postgres")))
    try:
        cluster.loop("job", first=WAIT)
        cluster.start()
        run = cluster.submit("job")
        cluster.await_log("/1 begins")
        cluster.database.close()
        own_server.halt()
        (tmp_path / "go").touch()
        cluster.await_log("/1 ends")
        postgres.until(lambda: "waiting for the database: " in cluster.output())
        away = cluster.llc("status", "--db", cluster.url)
        assert (away.returncode, "error[no-database]" in away.stderr) == (1, True)
        own_server.start()
        cluster.database = psycopg.connect(cluster.url, autocommit=True, options="-c search_path=llc")
        assert cluster.await_status(run)["outcome"] == "success"
        assert cluster.log() == performed_once(run)
    finally:
        cluster.close()


# A worker whose server ends during its start: it has connections, the queue has none yet.
LATE = """
import os, sys
import dbos, psycopg
launch, server = dbos.DBOS.launch, int(sys.argv.pop())
def launch_late():
    os.kill(server, 3)
    try:
        while True:
            psycopg.connect(sys.argv[-1]).close()
    except psycopg.OperationalError:
        return launch()
dbos.DBOS.launch = launch_late
from llc.runtime.cli.entry import main
sys.exit(main())
"""


def test_worker_reports_an_outage_at_its_start(tmp_path: Path, own_server: postgres.Server) -> None:
    cluster = Cluster(tmp_path, postgres.cluster_database(own_server.url("postgres")))
    try:
        words = ["worker", "--db", cluster.url, str(own_server.pid)]
        result = subprocess.run(
            [sys.executable, "-c", LATE, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert (result.returncode, "error[no-database]" in result.stderr) == (1, True), result.stderr
    finally:
        own_server.restart()
        cluster.close()


def test_run_waits_for_space_on_the_disk_of_the_database(cluster: Cluster) -> None:
    """The server raises the error of a full disk for each append, until there is space."""
    cluster.loop("job", first=WAIT)
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/1 begins")
    cluster.database.execute(
        "create function no_room() returns trigger language plpgsql as $$ begin "
        "raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$"
    )
    cluster.database.execute(
        "create trigger no_room before insert on journal for each row execute function no_room()"
    )
    (cluster.folder / "go").touch()
    postgres.until(lambda: "No space left on device" in cluster.output())
    assert cluster.row(run)["status"] == "running"
    cluster.database.execute("drop trigger no_room on journal")
    assert cluster.await_status(run)["outcome"] == "success"
    assert cluster.log() == performed_once(run)


def test_submission_fails_on_a_full_disk(cluster: Cluster) -> None:
    """`llc run --on` ends with an error, not with a traceback."""
    cluster.loop("job")
    cluster.database.execute(
        "create function no_room() returns trigger language plpgsql as $$ begin "
        "raise exception 'No space left on device' using errcode = '53100'; end $$"
    )
    cluster.database.execute(
        "create trigger no_room before insert on documents for each row execute function no_room()"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "job", "--on", cluster.url],
        cwd=cluster.folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        postgres.until(lambda: cluster.database.execute("select 1 from runs").fetchone())
        cluster.database.execute("drop trigger no_room on documents")
        _, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("shift", [3600, -3600])
def test_clocks_an_hour_apart(cluster: Cluster, shift: float) -> None:
    """The server's clock decides who is alive: no worker is declared dead, and a take-over works."""
    cluster.loop("job", second=WAIT)
    worker_with_other_identity(cluster, shift=shift)
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    beats = "select min(beat) > max(started) + interval '6 seconds' from workers where capacity > 1"
    postgres.until(lambda: cluster.database.execute(beats).fetchone() == (True,))
    assert cluster.database.execute("select state from workers where capacity > 1").fetchall() == [
        ("live",),
        ("live",),
    ]
    cluster.worker_of(run).kill()
    postgres.until(lambda: '"2":"take-over"' in cluster.journal(run))
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"
    assert set(cluster.log().values()) == {1}


def test_two_workers_of_one_name(cluster: Cluster) -> None:
    """Machine and process number are equal, as in containers: the workers are distinct, also when one is
    killed.
    """
    for name in ("a", "b", "c", "d"):
        cluster.loop(name, second=WAIT)
    first, second = (
        worker_with_other_identity(cluster, same=True),
        worker_with_other_identity(cluster, same=True),
    )
    runs = [cluster.submit(name) for name in ("a", "b", "c", "d")]
    for run in runs:
        cluster.await_log(f"{run}/2 begins")
    owners = {str(cluster.row(run)["owner"]) for run in runs}
    assert all(owner.startswith("box-7-") for owner in owners)
    names = cluster.database.execute("select id from workers where capacity = 4").fetchall()
    assert len(set(names)) == 2
    first.send_signal(signal.SIGKILL)
    postgres.until(lambda: cluster.database.execute("select 1 from workers where state = 'dead'").fetchone())
    (cluster.folder / "go").touch()
    for run in runs:
        assert cluster.await_status(run)["outcome"] == "success"
        assert cluster.log()[f"{run}/1 begins"] == 1
    assert second.poll() is None


@pytest.fixture
def corrupted(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster in which a test corrupts rows of queued runs; afterwards the same worker drives other
    runs.
    """
    cluster.loop("job", first="touch performed")
    yield cluster
    cluster.loop("other")
    other = cluster.submit("other")
    assert cluster.await_status(other)["outcome"] == "success"
    assert "Traceback" not in cluster.output()
    assert all(worker.poll() is None for worker in cluster.workers)
    result = cluster.llc("status", "--db", cluster.url)
    assert "Traceback" not in result.stderr


CORRUPTED_RECORDS = (
    "data = '\\xff00'::bytea, size = 2",
    "data = '[]'::bytea, size = 2",
    "position = position + 7",
)


def test_corrupted_record_stops_its_run(corrupted: Cluster) -> None:
    """With a reason, and without performing an action."""
    runs = {corrupted.submit("job"): words for words in CORRUPTED_RECORDS}
    for run, words in runs.items():
        corrupted.database.execute(f"update journal set {words} where run = %s", [run])
    corrupted.start()
    for run, words in runs.items():
        postgres.until(lambda run=run: corrupted.row(run)["outcome"])
        assert corrupted.row(run)["status"] == "stopped", words
    assert not (corrupted.folder / "performed").exists()


OUTSIDE = ("../../../../escaped", "/tmp/llc-escaped", "outputs/../../../../escaped")


def test_a_document_stays_in_its_folder(corrupted: Cluster) -> None:
    """A document name that leads out of the folder is written neither by a worker nor by `status`."""
    runs = {corrupted.submit("job"): name for name in OUTSIDE}
    for run, name in runs.items():
        corrupted.database.execute("insert into documents values (%s, %s, 'x')", [run, name])
        result = corrupted.llc("status", run, "--db", corrupted.url)
        assert result.returncode == 0, result.stderr
    corrupted.start()
    for run in runs:
        assert corrupted.await_status(run)["outcome"] == "success"
    assert not list(corrupted.folder.rglob("escaped"))
    assert not (corrupted.folder.parent / "escaped").exists()
    assert not Path("/tmp/llc-escaped").exists()


def test_a_run_stays_in_its_folder(corrupted: Cluster) -> None:
    """A run id that is a path is neither driven nor shown."""
    for name in ("../../escaped", "..", "", "a/b", "x" * 5000):
        run = corrupted.submit("job")
        corrupted.database.execute("update runs set id = %s where id = %s", [name, run])
        for table in ("journal", "documents"):
            corrupted.database.execute(f"update {table} set run = %s where run = %s", [name, run])
        corrupted.database.execute("update runs set segment = 0 where id = %s", [name])
        corrupted.database.execute("insert into documents values (%s, 'workspace.json', '{}')", [name])
        corrupted.database.execute("select enqueue_segment(%s)", [name])
        assert corrupted.llc("status", "--db", corrupted.url).returncode == 0, name
    corrupted.start()
    assert corrupted.llc("status", "--db", corrupted.url).returncode == 0
    assert not (corrupted.folder / "performed").exists()
    assert not list(corrupted.folder.rglob("escaped"))


@pytest.mark.parametrize(
    "facts",
    [
        ("owner = 'x', status = 'running'",),
        ("scope = '{\"\", /, machine:}', labels = '{}'",),
        (
            "created = 'infinity', changed = '-infinity'",
            "epoch = 2147483647",
            "program = E'\\x1b[2J\\n', path = repeat('x', 100000)",
        ),
    ],
    ids=["owner", "scope", "others"],
)
def test_impossible_fields_of_a_run(corrupted: Cluster, facts: tuple[str, ...]) -> None:
    """No worker crashes, and `status` shows the valid fields."""
    for number, fact in enumerate(facts):
        corrupted.loop(f"job{number}", first="touch performed")
        run = corrupted.submit(f"job{number}")
        corrupted.database.execute(f"update runs set {fact} where id = %s", [run])
    corrupted.database.execute(
        "insert into workers values ('y', '{}', 1, 0, 'infinity', 'infinity', 'infinity', 'live')"
    )
    corrupted.start()
    result = corrupted.llc("status", "--db", corrupted.url)
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stdout
