"""Many runs on workers that are killed or frozen at random, and a server that restarts.

A worker is killed alone, as by its own fault, or with the keeper of its actions, as by a power failure.
`make crash` has 2,000 runs with 500 kills; otherwise there are a few.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import postgres
from clusters import Cluster
from keepers import kill_with_keeper

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
RUNS, WORKERS, KILLS, CRASHES, FREEZES, RESTARTS = (
    (2000, 4, 400, 100, 4, 20) if IS_LARGE else (16, 2, 1, 1, 0, 1)
)
# Timeout of the test in seconds, only for hanging runs.
LIMIT_S = 7200 if IS_LARGE else 300
# Some of every ten runs share their paths. The last one is parked for a quarter of a minute and keeps its
# paths: such runs have many loops, so that they do not wait for each other.
LOOPS = 10
PARKED = 20 if IS_LARGE else 1
STATES = """
name: loop{number}
initial: s1
scope: [part{scope}]
{more}
states:
  s1: {{action: '{action}', next: s2}}
  s2: {{action: '{action}', next: s3}}
  s3: {{action: '{action}', next: done}}
  done: {{terminal: true}}
"""
Worker = subprocess.Popen[str]
ACTION = 'echo "$LLC_EFFECT_ID begins" >> log; sleep 0.02; echo "$LLC_EFFECT_ID ends" >> log'


def test_no_run_is_lost_and_no_result_repeated(tmp_path: Path, own_server: postgres.Server) -> None:
    """All runs succeed; each effect has one result, and restarts only if its worker died."""
    chance = random.Random(1)
    cluster = Cluster(tmp_path, postgres.cluster_database(own_server.url("postgres")))
    try:
        for number in range(LOOPS - 1 + PARKED):
            text = STATES.format(
                number=number,
                scope=number // 3 if number < 6 else number,
                more="backoff: 5" if number >= LOOPS - 1 and IS_LARGE else "",
                action=ACTION,
            )
            (tmp_path / f".loops/loop{number}.yaml").write_text(text)
        jobs = [json.dumps({"loop": f"loop{loop_of(number)}"}) + "\n" for number in range(RUNS)]
        (tmp_path / "jobs.jsonl").write_text("".join(jobs))
        submitted = cluster.program("batch", "jobs.jsonl", "--on", cluster.url, limit_s=LIMIT_S)
        assert submitted.returncode == 0, submitted.stderr
        runs = submitted.stdout.split()
        assert len(set(runs)) == RUNS
        harm = ["kill"] * KILLS + ["crash"] * CRASHES + ["freeze"] * FREEZES + ["restart"] * RESTARTS
        chance.shuffle(harm)
        frozen: list[Worker] = []
        for number, what in enumerate(harm):
            # In the first nine tenths, so that there is work for the last one.
            await_ended(cluster, RUNS * 9 * (number + 1) // (10 * (len(harm) + 1)))
            if what == "restart":
                cluster.database.close()
                own_server.restart()
                cluster.connect()
                continue
            victim = chance.choice(await_busy(cluster, frozen))
            if what == "kill":
                victim.kill()
                victim.wait()
            elif what == "crash":
                kill_with_keeper(victim)
            else:
                victim.send_signal(signal.SIGSTOP)
                frozen.append(victim)
        await_ended(cluster, RUNS)
        for worker in frozen:
            worker.send_signal(signal.SIGCONT)
            assert worker.wait(LIMIT_S) == 86
        check(cluster, runs)
        assert "Traceback" not in cluster.output()
        assert "error[internal]" not in cluster.output()
    finally:
        cluster.close()


def loop_of(run: int) -> int:
    kind = run % LOOPS
    return kind if kind < LOOPS - 1 else kind + run // LOOPS % PARKED


def is_frozen(worker: Worker) -> bool:
    state = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def supervise(cluster: Cluster) -> None:
    """Start a worker for each one that has ended or is frozen."""
    alive = sum(worker.poll() is None and not is_frozen(worker) for worker in cluster.workers)
    for _ in range(WORKERS - alive):
        cluster.start(is_awaited=False)


def await_busy(cluster: Cluster, frozen: list[Worker]) -> list[Worker]:
    """The workers that drive runs now; all living workers if every run has ended."""
    found: list[Worker] = []

    def is_busy() -> bool:
        supervise(cluster)
        rows = cluster.database.execute("select owner from runs where status <> 'ended'").fetchall()
        busy = {int(owner.rsplit("-", 2)[1]) for (owner,) in rows if owner is not None}
        found[:] = [
            worker
            for worker in cluster.workers
            if (worker.pid in busy or not rows) and worker.poll() is None and worker not in frozen
        ]
        return bool(found)

    postgres.until(is_busy, LIMIT_S)
    return found


def await_ended(cluster: Cluster, count: int) -> None:
    def ended() -> bool:
        supervise(cluster)
        row = cluster.database.execute("select count(*) from runs where status = 'ended'").fetchone()
        return row is not None and row[0] >= count

    postgres.until(ended, LIMIT_S)


def check(cluster: Cluster, runs: list[str]) -> None:
    log = cluster.log()
    left = "select count(*) from llc_dbos.workflow_status where status not in ('SUCCESS')"
    postgres.until(lambda: cluster.database.execute(left).fetchone() == (0,), LIMIT_S)
    repeated = 0
    for run in runs:
        row = cluster.row(run)
        assert (row["status"], row["outcome"]) == ("ended", "success"), run
        events = cluster.events(run)  # without a gap, because each line is JSON
        results = Counter(event["seq"] for event in events if event["event"] == "action_complete")
        assert results == {1: 1, 2: 1, 3: 1}, run
        resumed = sum(event["event"] == "run_resume" for event in events)
        for seq in results:
            assert log[f"{run}/{seq} ends"] >= 1, run
            begun = log[f"{run}/{seq} begins"]
            assert 1 <= begun <= resumed, run
            repeated += begun - 1
        whole = "select max(position + size) = sum(octet_length(data)) from journal where run = %s"
        assert cluster.database.execute(whole, [run]).fetchone() == (True,), run
    check_scopes(cluster, runs)
    buried = cluster.output().count("declared dead by another")
    print(f"{len(cluster.workers)} workers, {buried} buried alive")
    print(f"{len(runs)} runs, {repeated} effects begun again after {CRASHES} crashes and {FREEZES} freezes")


def check_scopes(cluster: Cluster, runs: list[str]) -> None:
    """Runs with the same paths are sequential, in order of arrival."""
    scopes: dict[tuple[str, ...], list[str]] = {}
    rows = cluster.database.execute("select id, scope from runs").fetchall()
    scope_of = {run: tuple(scope) for run, scope in rows}
    for line in (cluster.folder / "log").read_text().splitlines():
        run, _, rest = line.partition("/")
        order = scopes.setdefault(scope_of[run], [])
        if rest.endswith("begins") and order[-1:] != [run]:
            order.append(run)
    for scope, order in scopes.items():
        assert order == [run for run in runs if scope_of[run] == scope], scope
