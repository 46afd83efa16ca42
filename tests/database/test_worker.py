"""`llc worker`: any worker drives the runs of the queue, which survive kills, freezes and outages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import postgres
import psycopg
import pytest
from clusters import LIMIT_S, Cluster

ASKS = """
name: asks
initial: ask
states:
  ask: {action: "do it", action_type: prompt, agent: codex, next: done}
  done: {terminal: true}
"""


def test_a_run_is_submitted_and_driven(cluster: Cluster) -> None:
    """Queued without a worker, then driven to its end; the journal is the usual one."""
    cluster.loop("job")
    run = cluster.submit("job")
    assert cluster.row(run)["status"] == "queued"
    as_json = cluster.program("run", "job", "--on", cluster.url, "--json")
    assert json.loads(as_json.stdout)["status"] == "queued"
    worker = cluster.start(is_forked=False)
    assert cluster.await_status(run)["outcome"] == "success"
    names = [event["event"] for event in cluster.events(run)]
    assert (names[0], names[-1]) == ("run_start", "run_end")
    postgres.until(lambda: cluster.row(json.loads(as_json.stdout)["run"])["status"] == "ended")
    assert set(cluster.log().values()) == {1}
    worker.terminate()
    assert worker.wait(LIMIT_S) == 0
    assert "drained: 2 success" in cluster.output()
    assert not list(cluster.folder.glob(".loops/.cluster/*"))


def test_a_killed_worker_is_replaced(cluster: Cluster) -> None:
    """kill -9 in the middle of an action: another worker takes it over, and repeats nothing."""
    cluster.loop("job", second="echo said; while [ ! -e go ]; do sleep 0.02; done")
    cluster.start()
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    cluster.worker_of(run).kill()
    postgres.until(lambda: '"2":"take-over"' in cluster.journal(run))
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"
    assert cluster.log() == Counter(f"{run}/{seq} {what}" for seq in (1, 2) for what in ("begins", "ends"))
    assert [event["event"] for event in cluster.events(run)].count("action_complete") == 2
    assert cluster.row(run)["epoch"] == 4  # of the client, two workers, and the burial of one
    assert "is dead; its runs continue" in cluster.output()


def test_a_frozen_worker_is_replaced_and_leaves(cluster: Cluster) -> None:
    """After SIGSTOP another worker continues after the lease; the frozen one writes nothing and exits."""
    cluster.loop("job", second="while [ ! -e go ]; do sleep 0.02; done")
    cluster.start()
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    frozen = cluster.worker_of(run)
    frozen.send_signal(signal.SIGSTOP)
    postgres.until(lambda: cluster.row(run)["epoch"] == 4 and cluster.log()[f"{run}/2 begins"] == 2)
    frozen.send_signal(signal.SIGCONT)
    assert frozen.wait(LIMIT_S) == 86
    (cluster.folder / "go").touch()
    assert cluster.await_status(run)["outcome"] == "success"
    events = cluster.events(run)
    assert [event["event"] for event in events].count("action_complete") == 2
    assert "declared dead by another worker" in cluster.output()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_drained_worker_returns_its_runs(cluster: Cluster, number: int) -> None:
    """After SIGTERM or a closed terminal the action in progress ends, and another worker continues."""
    cluster.loop("job", first="while [ ! -e go ]; do sleep 0.02; done")
    first = cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/1 begins")
    first.send_signal(number)
    states = "select array_agg(state) from workers where state <> 'dead'"
    postgres.until(lambda: cluster.database.execute(states).fetchone() == (["draining"],))
    (cluster.folder / "go").touch()
    assert first.wait(LIMIT_S) == 0
    found = cluster.row(run)
    assert (found["status"], found["segment"]) == ("queued", 2)
    # Neither the client nor the worker left a row.
    assert cluster.database.execute("select id from workers").fetchall() == []
    cluster.start()
    cluster.await_status(run)
    assert cluster.log() == Counter(f"{run}/{seq} {what}" for seq in (1, 2) for what in ("begins", "ends"))


def test_an_action_that_does_not_end_is_stopped_by_a_drain(cluster: Cluster) -> None:
    """After `--drain` seconds it gets SIGTERM, and the run continues elsewhere."""
    cluster.loop("job", first="[ -e go ] || sleep 600")
    first = cluster.start("--drain", "0")
    run = cluster.submit("job")
    cluster.await_log("/1 begins")
    first.terminate()
    assert first.wait(LIMIT_S) == 0
    assert cluster.row(run)["status"] == "queued"
    (cluster.folder / "go").touch()
    cluster.start()
    assert cluster.await_status(run)["outcome"] == "success"


def test_labels_choose_the_worker(cluster: Cluster) -> None:
    """A run with a label waits for a worker that has it."""
    cluster.loop("job")
    cluster.loop("plain")
    cluster.start("--label", "cpu")
    special = cluster.submit("job", "--label", "gpu")
    for words in (("status", special), ("list", "--running")):
        result = cluster.llc(*words, "--db", cluster.url)
        assert "a worker with the labels gpu" in result.stdout, result.stdout + result.stderr
    assert "queued, waits for a worker" in result.stdout
    plain = cluster.submit("plain")
    cluster.await_status(plain)
    assert cluster.row(special)["status"] == "queued"
    cluster.start("--label", "gpu", "--label", "cpu")
    cluster.await_status(special)


def test_a_worker_without_the_tools_leaves_a_run_to_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A program whose agent is missing waits in the queue, with the reason; another worker takes it."""
    (cluster.folder / ".loops/asks.yaml").write_text(ASKS)
    run = cluster.submit("asks", "--no-preflight", "--label", "agents")

    def waits_for() -> str:
        result = cluster.llc("status", run, "--db", cluster.url, "--json")
        data = json.loads(result.stdout)
        assert data["status"] == "queued"
        return str(data["waits_for"])

    assert "a worker with the labels agents" in waits_for()
    cluster.start("--label", "agents")
    postgres.until(lambda: "is for another worker" in cluster.output())
    postgres.until(lambda: cluster.row(run)["status"] == "queued")
    assert "codex" in waits_for()
    folder = tmp_path_factory.mktemp("bin")
    (folder / "codex").write_text("#!/bin/sh\necho done\n")
    (folder / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    cluster.start("--label", "agents")
    postgres.until(lambda: cluster.row(run)["status"] == "ended" or cluster.row(run)["epoch"] > 2)


def test_runs_of_one_scope_are_sequential(cluster: Cluster) -> None:
    """Two workers, one path: one run at a time, in order of arrival."""
    cluster.loop("job", first="sleep 0.05", scope="src")
    cluster.start()
    cluster.start()
    runs = [cluster.submit("job") for _ in range(4)]
    for run in runs:
        cluster.await_status(run)
    lines = (cluster.folder / "log").read_text().splitlines()
    order = [re.sub("/.*", "", line) for line in lines]
    assert order == [run for run in runs for _ in range(4)]


def test_a_queued_run_names_the_run_that_has_its_paths(cluster: Cluster) -> None:
    """`status` and `list` name the blocking run."""
    cluster.loop("job", first="while [ ! -e go ]; do sleep 0.02; done", scope="src")
    cluster.loop("part", scope="src/inner")
    cluster.start()
    first = cluster.submit("job")
    cluster.await_log("/1 begins")
    second = cluster.submit("part")
    status = json.loads(cluster.llc("status", second, "--db", cluster.url, "--json").stdout)
    assert status["waits_for"] == [first]
    assert f"queued behind {first}" in cluster.llc("list", "--running", "--db", cluster.url).stdout
    cluster.database.execute("listen llc_work")
    (cluster.folder / "go").touch()
    cluster.await_status(second)
    # Another worker may have the second run: the end of the first one wakes all workers.
    woken = cluster.database.notifies(timeout=10, stop_after=1)
    assert [notice.payload for notice in woken][:1] == [f"llc:{cluster.folder.name}"]


def test_queue_belongs_to_one_project(cluster: Cluster) -> None:
    """A worker neither reads nor is woken by the queues of other projects."""
    cluster.loop("job")
    cluster.database.execute("listen llc_work")
    run = cluster.submit("job")
    queue = f"llc:{cluster.folder.name}"
    rows = cluster.database.execute(
        "select queue_name from llc_dbos.workflow_status where workflow_uuid = %s", [f"{run}/1"]
    ).fetchall()
    assert rows == [(queue,)]
    assert {notice.payload for notice in cluster.database.notifies(timeout=10, stop_after=1)} == {queue}


def test_run_in_the_former_queue_is_queued_again(cluster: Cluster) -> None:
    """Before format 13 all projects had one queue."""
    cluster.loop("job")
    run = cluster.submit("job")
    cluster.database.execute("update llc_dbos.workflow_status set queue_name = 'llc'")
    cluster.database.execute("update runs set changed = changed - interval '1 minute'")
    cluster.start()
    assert cluster.await_status(run)["outcome"] == "success"


def test_at_once_limits_concurrent_runs(cluster: Cluster) -> None:
    """With `--at-once 2` two actions run, the third one waits."""
    for name in ("a", "b", "c"):
        cluster.loop(name, first="while [ ! -e go ]; do sleep 0.02; done")
    cluster.start("--at-once", "2")
    runs = [cluster.submit(name) for name in ("a", "b", "c")]
    postgres.until(lambda: sum("/1 begins" in line for line in cluster.log()) == 2)
    running = "select count(*) from runs where status = 'running'"
    rows = cluster.database.execute(running).fetchone()
    assert rows == (2,)
    (cluster.folder / "go").touch()
    for run in runs:
        cluster.await_status(run)


def test_all_runs_survive_restarts_of_the_server(tmp_path: Path, own_server: postgres.Server) -> None:
    """After immediate restarts in the middle of runs, no run is lost and no finished action is repeated."""
    cluster = Cluster(tmp_path, postgres.cluster_database(own_server.url("postgres")))
    try:
        for number in range(4):
            cluster.loop(f"job{number}", first="sleep 0.2", second="sleep 0.2")
        cluster.start()
        cluster.start()
        runs = [cluster.submit(f"job{number}") for number in range(4)]
        cluster.await_log("/1 begins")
        cluster.database.close()
        for _ in range(2):
            own_server.restart()
        cluster.database = psycopg.connect(cluster.url, autocommit=True, options="-c search_path=llc")
        for run in runs:
            assert cluster.await_status(run)["outcome"] == "success"
            names = [event["event"] for event in cluster.events(run)]
            assert names.count("action_complete") == 2
        assert all(worker.poll() is None for worker in cluster.workers)
    finally:
        cluster.close()


def test_a_run_that_cannot_be_driven_is_stopped(cluster: Cluster) -> None:
    """A lost record stops the run with a reason; the worker continues with others."""
    cluster.loop("job")
    run = cluster.submit("job")
    cluster.database.execute("delete from journal")
    cluster.start()
    found = cluster.await_status(run, "stopped")
    assert found["outcome"]
    cluster.loop("other")
    cluster.await_status(cluster.submit("other"))


@pytest.mark.parametrize("words", [("--background",), ("--queue",), ("--profile",), ("--jobs", "2")])
def test_process_options_with_on_are_an_error(cluster: Cluster, words: tuple[str, ...]) -> None:
    cluster.loop("job")
    result = cluster.llc("run", "job", "--on", cluster.url, *words)
    assert result.returncode == 2
    assert "error[bad-option]" in result.stderr
    assert os.listdir(cluster.folder / ".loops") == ["job.yaml"]


def test_a_label_needs_a_cluster(cluster: Cluster) -> None:
    cluster.loop("job")
    result = cluster.llc("run", "job", "--label", "gpu")
    assert result.returncode == 2
    assert "`--on`" in result.stderr


def test_run_is_inspected_and_stopped_from_another_machine(cluster: Cluster, tmp_path_factory: Any) -> None:
    """`status`, `logs`, `history`, `stop` and `resume`."""
    cluster.loop("job", second="while [ ! -e go ]; do sleep 0.02; done")
    cluster.start()
    run = cluster.submit("job")
    cluster.await_log("/2 begins")
    other_folder = tmp_path_factory.mktemp("elsewhere")

    def llc(*words: str) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "llc", *words],
            cwd=other_folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    data = json.loads(llc("status", run, "--db", cluster.url, "--json"))
    assert (data["run"], data["status"]) == (run, "running")
    assert run in llc("status", "--db", cluster.url)
    assert "one" in llc("logs", "job", "--db", cluster.url)
    stopped = json.loads(llc("stop", run, "--db", cluster.url, "--wait", "60", "--json"))
    assert stopped == [{"run": run, "how": "stopped"}]
    assert json.loads(llc("status", run, "--db", cluster.url, "--json"))["status"] == "interrupted"
    (cluster.folder / "go").touch()
    assert llc("resume", run, "--on", cluster.url).strip() == run
    assert "run_end" in llc("logs", run, "--db", cluster.url, "-f", "--json")
    cluster.await_status(run)
    assert run in llc("history", "--db", cluster.url)
    assert json.loads(llc("profile", run, "--db", cluster.url, "--json"))
    assert not os.listdir(other_folder)


def test_a_queued_run_is_stopped(cluster: Cluster) -> None:
    """It leaves the queue, and no worker takes it afterwards."""
    cluster.loop("job")
    run = cluster.submit("job")
    queued = json.loads(cluster.llc("status", run, "--db", cluster.url, "--json").stdout)
    assert queued["status"] == "queued"
    assert cluster.llc("stop", "job", "--db", cluster.url).stdout == f"{run}: stopped\n"
    cluster.start()
    other = cluster.submit("job")
    cluster.await_status(other)
    assert cluster.row(run)["status"] == "stopped"
    result = cluster.llc("status", run, "--db", cluster.url)
    assert f"{run}: interrupted" in result.stdout
    assert f"Resume with: llc resume {run} --on URL" in result.stdout
    listed = cluster.llc("list", "--running", "--db", cluster.url, "--json")
    assert json.loads(listed.stdout)[0]["status"] == "interrupted"
    cluster.database.execute("update runs set outcome = 'no room' where id = %s", [run])
    assert "error      no room" in cluster.llc("status", run, "--db", cluster.url).stdout
    wrong = cluster.llc("resume", run, "--db", cluster.url)
    assert "to run it on workers: --on URL" in wrong.stderr
    absent = cluster.llc("stop", "job", "--db", cluster.url)
    assert "error[not-running]" in absent.stderr
    unknown = cluster.llc("resume", "other", "--on", cluster.url)
    assert "error[unknown-run]" in unknown.stderr
    mixed = cluster.llc("resume", "job", "--on", cluster.url, "--queue")
    assert "exclude each other" in mixed.stderr
    asking = cluster.llc("run", "job", "--on", cluster.url, "--no-input")
    assert "`--no-input` and `--on` exclude each other" in asking.stderr


def test_a_question_is_answered_from_anywhere(cluster: Cluster) -> None:
    """The run gets the answer given in the database once."""
    (cluster.folder / ".loops" / "job.sexp").write_text('(ask "well?")')
    cluster.start()
    run = cluster.submit("job")

    def questions() -> list[Any]:
        result = cluster.llc("answer", run, "--db", cluster.url, "--json")
        return list(json.loads(result.stdout)) if result.returncode == 0 else []

    postgres.until(questions)
    answered = cluster.llc("answer", run, "quite", "--db", cluster.url)
    assert answered.returncode == 0, answered.stderr
    assert cluster.await_status(run)["outcome"] == "success"
    (end,) = (event for event in cluster.events(run) if event["event"] == "run_end")
    assert end["value"] == "quite"
    assert cluster.llc("answer", run, "again", "--db", cluster.url).returncode == 1


def test_metrics_are_text_for_prometheus(cluster: Cluster) -> None:
    """Each line is a comment or a sample; any characters in names are escaped."""
    cluster.loop("job")
    run = cluster.submit("job")
    assert 'llc_workers{state="live"} 0' in cluster.llc("db", "metrics", "--db", cluster.url).stdout
    project = 'a"b\\c\nd'
    cluster.database.execute("update runs set project = %s where id = %s", [project, run])
    cluster.start("--at-once", "3")
    shown = cluster.llc("db", "metrics", "--db", cluster.url).stdout
    assert 'llc_workers{state="live"} 1' in shown
    assert "llc_worker_capacity 3" in shown
    assert r'llc_runs{project="a\"b\\c\nd",status="queued"} 1' in shown
    sample = re.compile(r'(# (HELP|TYPE) .*|\w+(\{\w+=".*"(,\w+=".*")*\})? [\d.]+)')
    assert all(sample.fullmatch(line) for line in shown.splitlines())
