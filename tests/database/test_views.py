"""Subcommands that read runs can read those of a database, from any machine."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import postgres
import psycopg
import pytest
from clusters import LIMIT_S, Cluster

from llc.runtime.database import removal
from llc.runtime.database.connection import Address
from llc.runtime.database.views import View
from llc.runtime.journal.journal import Blobs


@pytest.fixture
def ended_run(cluster: Cluster) -> str:
    """A run that a worker has driven to its end."""
    cluster.loop("job")
    cluster.start()
    run = cluster.submit("job")
    cluster.await_status(run)
    return run


def _db(cluster: Cluster, *words: str, cwd: Path | None = None, **variables: str) -> str:
    result = cluster.llc(*words, folder=cwd, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_an_ended_run_is_read(
    cluster: Cluster, ended_run: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without a checkout of the project."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("trace", "replay", "profile", "logs"):
        assert _db(cluster, name, ended_run, "--db", cluster.url, "--json", cwd=elsewhere)
    assert not os.listdir(elsewhere)


def test_files_are_written_to_the_current_folder(cluster: Cluster, ended_run: str) -> None:
    """A report, a picture and a test case of a run that is only in the database."""
    inner = cluster.folder / "inner"
    inner.mkdir()
    _db(cluster, "report", ended_run, "--db", cluster.url, cwd=inner)
    assert [path.suffix for path in inner.iterdir()] == [".html"]
    _db(cluster, "report", ended_run, "--db", cluster.url, "-o", "page.html", cwd=inner)
    assert (inner / "page.html").exists()
    _db(cluster, "graph", "job", "--run", ended_run, "--db", cluster.url, "-o", "job.svg", cwd=inner)
    assert (inner / "job.svg").exists()
    assert "1×" in _db(cluster, "graph", "job", "--run", ended_run, "--db", cluster.url)
    _db(cluster, "record", ended_run, "--db", cluster.url)
    assert (cluster.folder / ".loops/tests/job.yaml").exists()
    _db(cluster, "record", ended_run, "--db", cluster.url, "-o", "inner/case.yaml")
    assert (inner / "case.yaml").exists()
    assert not list(cluster.folder.glob(".loops/.*/job-*/*.events.jsonl"))


def test_the_database_of_the_project(cluster: Cluster, ended_run: str) -> None:
    """`database:` in the configuration and LLC_DB replace `--db`; `none` means the folder."""
    shown = _db(cluster, "history", "--json", LLC_DB=cluster.url)
    assert ended_run in shown
    (cluster.folder / ".loops/config.yaml").write_text(f"database: {cluster.url}\n")
    assert ended_run in _db(cluster, "history")
    assert ended_run not in _db(cluster, "history", "--db", "none")
    local = json.loads(_db(cluster, "run", "job", "--json"))["run"]
    assert local not in _db(cluster, "history")
    assert local in _db(cluster, "history", local)  # the id of a run in the folder needs no option
    submitted = _db(cluster, "run", "job", "--on", "cluster").strip()
    assert cluster.await_status(submitted)["outcome"] == "success"
    _db(cluster, "db", "check")
    assert [row["run"] for row in json.loads(_db(cluster, "list", "--running", "--json"))] == []
    completed = _db(
        cluster, LLC_DB="", _LLC_COMPLETE="complete_bash", COMP_WORDS="llc logs job", COMP_CWORD="2"
    )
    assert submitted in completed


def test_no_database_is_named(cluster: Cluster) -> None:
    cluster.loop("job")
    result = cluster.llc("run", "job", "--on", "cluster")
    assert result.returncode == 2
    assert "error[no-database]" in result.stderr
    (cluster.folder / ".loops/config.yaml").write_text("database: mysql://h/d\n")
    wrong = cluster.llc("run", "job")
    assert "such as postgresql://" in wrong.stderr


_COPIES = """
with ids as (select run, 'job-20260101-000000-' || lpad(to_hex(n), 4, '0') as copy
  from (select id as run from runs) as runs, generate_series(1, 60) as n),
r as (insert into runs (id, project, program, path, managed, status, created)
  select copy, project, program, path, true, 'stopped', created from runs join ids on run = id),
j as (insert into journal select copy, position, size, lines, epoch, data from journal join ids using (run))
insert into documents select copy, name, data from documents join ids using (run)
"""


def test_test_case_needs_a_folder(
    cluster: Cluster, ended_run: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Outside a project there is no default folder, and a name is not enough."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for words in ([], ["-o", "case"]):
        with pytest.raises(AssertionError, match="needs the path of the case"):
            _db(cluster, "record", ended_run, "--db", cluster.url, *words, cwd=elsewhere)
    _db(cluster, "record", ended_run, "--db", cluster.url, "-o", "case.yaml", cwd=elsewhere)
    assert (elsewhere / "case.yaml").exists()


def test_command_fetches_only_shown_data(cluster: Cluster) -> None:
    """The latest of many runs, in few statements; long texts only when they are read."""
    cluster.loop("job", first="seq 30000")
    cluster.start()
    run = cluster.submit("job")
    cluster.await_status(run)
    cluster.database.execute(_COPIES)
    copy = "job-20260101-000000-0001"
    assert len(json.loads(_db(cluster, "status", "--json", "--db", cluster.url))) == 20
    rows = json.loads(_db(cluster, "list", "--running", "--json", "--db", cluster.url))
    assert len(rows) == 60
    assert {row["status"] for row in rows} == {"ended"}
    assert json.loads(_db(cluster, "status", copy, "--json", "--db", cluster.url))["run"] == copy
    assert "29999" in _db(cluster, "logs", copy, "-v", "--db", cluster.url)
    view = View(Address.parse(cluster.url), None, [], None, 50, "record")
    try:
        found = [path.name for path in Path(view.root, ".loops/.running").glob("job-*")]
        assert (len(found), view.is_cut) == (50, True)
        folder = Path(view.root, ".loops/.history", run)
        ((name, data),) = cluster.database.execute(
            "select name, data from documents where run = %s and name like 'outputs/%%'", [run], binary=True
        ).fetchall()
        blob = name.removeprefix("outputs/")
        assert not (folder / "outputs").exists()
        assert Blobs(str(folder / "outputs")).fetch(blob, len(data)) == data.decode()
        assert (folder / "outputs" / blob).exists()
    finally:
        view.close()
    assert Blobs.elsewhere is None


def test_view_follows_its_run_when_a_later_one_starts(cluster: Cluster, ended_run: str) -> None:
    """A view of a loop's last run keeps that run."""
    view = View(Address.parse(cluster.url), None, ["job"], None, 1)
    try:
        later = cluster.submit("job")
        cluster.await_status(later)
        view.update()
        shown = [path.name for path in Path(view.root, ".loops/.history").glob("job-*")]
        assert sorted(shown) == sorted([ended_run, later])
    finally:
        view.close()


def test_unknown_name_has_a_suggestion(cluster: Cluster, ended_run: str) -> None:
    """Runs with other names exist, so "nothing was run here" would be wrong."""
    cluster.loop("other")
    for verb in ("answer", "logs", "stop", "clean"):
        result = cluster.llc(verb, "jbo", "--db", cluster.url)
        assert (result.returncode, "did you mean `job`?" in result.stderr) == (2, True), verb
    assert "did you mean `job`?" in cluster.llc("resume", "jbo", "--on", cluster.url).stderr
    shown = cluster.llc("graph", "job", "--run", "absent", "--db", cluster.url).stderr
    assert f"no run of `absent`\n = help: runs here: `job`, `{ended_run}`" in shown
    assert "`other` was not run yet" in cluster.llc("logs", "other", "--db", cluster.url).stderr


def test_the_status_names_the_worker(cluster: Cluster) -> None:
    """Its process may be on another machine, so the pid alone is not enough."""
    cluster.loop("job", first="while [ ! -e go ]; do sleep 0.02; done")
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/1 begins")
    owner = cluster.row(run)["owner"]
    shown = _db(cluster, "status", run, "--db", cluster.url)
    assert shown.startswith(f"{run}: running (worker {owner})\n")
    assert (
        json.loads(_db(cluster, "status", run, "--json", "--db", cluster.url))["driven_by"]
        == f"worker {owner}"
    )
    (cluster.folder / "go").touch()
    cluster.await_status(run)
    assert json.loads(_db(cluster, "status", run, "--json", "--db", cluster.url))["driven_by"] is None


def test_old_runs_are_removed(cluster: Cluster) -> None:
    """`clean --db` keeps the requested runs; stopped runs are removed only with --unfinished."""
    cluster.loop("job")
    cluster.start()
    runs = [cluster.submit("job") for _ in range(3)]
    for run in runs:
        cluster.await_status(run)
    left = cluster.submit("job", "--label", "absent")
    _db(cluster, "stop", left, "--db", cluster.url)
    dry = json.loads(_db(cluster, "clean", "job", "--keep", "2", "--dry-run", "--json", "--db", cluster.url))
    assert dry["removed"] == runs[:1]
    assert dry["bytes"] > 1000
    gone = json.loads(_db(cluster, "clean", "--keep", "2", "--json", "--db", cluster.url))
    assert gone["removed"] == runs[:1]
    for table in ("journal", "documents"):
        where = f"select count(*) from {table} where run = %s"
        assert cluster.database.execute(where, [runs[0]]).fetchone() == (0,)
    gone = json.loads(_db(cluster, "clean", left, "--unfinished", "--json", "--db", cluster.url))
    assert gone["removed"] == [left]
    with psycopg.connect(cluster.url, autocommit=True, options="-c search_path=llc") as connection:
        removal.remove(connection, cluster.folder.name, None, "ended", (1, None, None))
    rows = cluster.database.execute("select id from runs").fetchall()
    assert [run for (run,) in rows] == runs[2:]


def test_long_output_is_complete_in_the_database(cluster: Cluster) -> None:
    """The result of more than a megabyte has both ends; the copy is a document, which views do not fetch."""
    cluster.loop("job", first="yes | head -c 3000000; yes n | head -c 2000000 >&2", second="echo short")
    cluster.start()
    run = cluster.submit("job")
    assert cluster.await_status(run)["outcome"] == "success"
    copies = "select name, octet_length(data), data = decode(repeat(%s, octet_length(data) / 2), 'hex')"
    for stream, size, line in (("output", 3_000_000, "790a"), ("stderr", 2_000_000, "6e0a")):
        where = f"{copies} from documents where run = %s and name = %s"
        rows = cluster.database.execute(where, [line, run, f"outputs/1-{stream}.txt"]).fetchall()
        assert rows == [(f"outputs/1-{stream}.txt", size, True)]
    view = View(Address.parse(cluster.url), None, [run])
    try:
        assert not list(Path(view.root).rglob("*.txt"))
    finally:
        view.close()


def test_the_changes_of_a_run_without_git(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`llc diff --db`: the files of a project without git; only differences are in the database."""
    (cluster.folder / ".loops/config.yaml").write_text("record_files: all\n")
    (cluster.folder / "large").write_bytes(os.urandom(1 << 20))
    cluster.loop("job", first="echo one > made", second="echo two >> made")
    cluster.start()
    run = cluster.submit("job")
    assert cluster.await_status(run)["outcome"] == "success"
    away = tmp_path_factory.mktemp("away")
    assert "+one\n+two\n" in _db(cluster, "diff", run, "--db", cluster.url, cwd=away)
    shown = _db(cluster, "diff", "job", "two", "--db", cluster.url, "--json", cwd=away)
    assert ["M", "made"] in [[file["status"], file["path"]] for file in json.loads(shown)["files"]]
    (size,) = cluster.database.execute(
        "select sum(octet_length(data)) from documents where starts_with(name, 'kept-trees/')"
    ).fetchone() or (0,)
    assert 0 < size < 20_000
    assert "name the run" in cluster.llc("diff", "--db", cluster.url).stderr
    for data in (b"no archive", _archive("../../escaped"), _archive("objects/" + 64 * "a", b"x")):
        where = "update documents set data = %s where run = %s and starts_with(name, 'kept-trees/')"
        cluster.database.execute(where, [data, run])
        damaged = cluster.llc("diff", run, "--db", cluster.url)
        assert (damaged.returncode, "error[no-tree]" in damaged.stderr) == (2, True), damaged.stderr
    assert not list(cluster.folder.parent.rglob("escaped"))


def _archive(name: str, data: bytes = b"") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, data)
    return made.getvalue()


def test_the_output_of_an_action_is_shown_while_it_runs(cluster: Cluster) -> None:
    """`attach --db` shows the output of an action in progress, and the end; Ctrl-C with --stop stops the
    run.
    """
    cluster.loop("job", first="echo so-$((1+1)); while [ ! -e go ]; do sleep 0.02; done")
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/1 begins")
    words = [sys.executable, "-m", "llc", "attach", run, "--db", cluster.url]
    output = cluster.folder / "attached"
    with (
        output.open("w") as file,
        subprocess.Popen(words, cwd=cluster.folder, stdout=file, stderr=file) as it,
    ):
        try:
            postgres.until(lambda: "so-2" in output.read_text())
            (cluster.folder / "go").touch()
            assert it.wait(LIMIT_S) == 0
        finally:
            it.kill()
    assert output.read_text().count("so-2") == 1
    assert cluster.database.execute("select count(*) from live").fetchone() == (0,)


def test_a_batch_is_submitted(cluster: Cluster) -> None:
    """Loops and jobs are queued after all programs were checked; an invalid one submits nothing."""
    cluster.loop("one")
    cluster.loop("two")
    (cluster.folder / "jobs.jsonl").write_text('{"loop": "one"}\n{"loop": "two"}\n')
    (cluster.folder / ".loops/wrong.yaml").write_text("initial: nowhere\n")
    assert cluster.llc("batch", "one", "wrong", "--on", cluster.url).returncode == 2
    assert cluster.database.execute("select count(*) from runs").fetchone() == (0,)
    runs = _db(cluster, "batch", "jobs.jsonl", "two", "--on", cluster.url).split()
    assert len(runs) == 3
    data = [
        json.loads(line) for line in _db(cluster, "batch", "one", "--on", cluster.url, "--json").splitlines()
    ]
    assert [(one["loop"], one["status"]) for one in data] == [("one", "queued")]
    cluster.start()
    for run in (*runs, data[0]["run"]):
        assert cluster.await_status(run)["outcome"] == "success"
    for words in (("--resume",), ("one", "--at-once", "2")):
        refused = cluster.llc("batch", *words, "--on", cluster.url)
        assert "exclude each other" in refused.stderr


def test_attach_with_stop_stops_the_run(cluster: Cluster) -> None:
    """Ctrl-C in `attach --db --stop` notifies the worker; the run is stopped before the action ends."""
    cluster.loop("job", first="echo so-$((1+1)); while [ ! -e go ]; do sleep 0.02; done")
    cluster.start()
    run = cluster.submit("job")
    words = [sys.executable, "-m", "llc", "attach", run, "--db", cluster.url, "--stop"]
    output = cluster.folder / "attached"
    with (
        output.open("w") as file,
        subprocess.Popen(words, cwd=cluster.folder, stdout=file, stderr=file) as it,
    ):
        try:
            postgres.until(lambda: "so-2" in output.read_text())
            it.send_signal(signal.SIGINT)
            it.wait(LIMIT_S)
        finally:
            it.kill()
    cluster.await_status(run, "stopped")
    assert "Traceback" not in output.read_text()


def test_the_page_shows_the_runs_of_the_database(cluster: Cluster, ended_run: str) -> None:
    """`ui --db` serves a run of a worker, and Ctrl-C ends it."""
    words = [sys.executable, "-m", "llc", "ui", "--db", cluster.url]
    with subprocess.Popen(words, cwd=cluster.folder, stdout=subprocess.PIPE, text=True) as it:
        try:
            assert it.stdout is not None
            base, _, token = it.stdout.readline().strip().partition("/#token=")
            request = urllib.request.Request(f"{base}/api/runs", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=LIMIT_S) as told:
                assert ended_run in told.read().decode()
            it.send_signal(signal.SIGINT)
            it.wait(LIMIT_S)
        finally:
            it.kill()
