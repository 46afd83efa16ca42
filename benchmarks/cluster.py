"""Cluster: cost of an effect in PostgreSQL, take-over of killed workers, many runs, and sizes.

Starts its own server (`tests/postgres.py`) with `fsync`; needs the extra `test`.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from time import perf_counter, sleep
from typing import Any

from measure import take_turns
from place import ROOT, Place
from report import BYTES, RATE, SECONDS, Row, Section, row
from sizes import Sizes

sys.path.append(os.path.join(ROOT, "tests"))

_STEADY = 6
_SHORT, _LONG = 2, 22
_OVER = 200
_LIMIT_S = 180.0
_STATES = "name: {0}\ninitial: s1\nmax_iterations: 100\nstates:\n"
_STATE = "  s{0}: {{action: '{1}', next: s{2}}}\n"


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="cluster",
        title="A cluster on PostgreSQL",
        about=(
            "An effect: the events of the end of one and of the start of the next, durable, as the drivers "
            "write them; an insert of as many bytes in a transaction of its own, bare, and fenced: on "
            "condition that the row of the run, which it locks, has our epoch; `run_step` of DBOS Transact "
            "on the same server; the journal in a file. Takeover: from kill -9 of a worker until another "
            "one has resumed the run on record; worst is the slowest. Outages: the server is killed under "
            "runs of short actions and started again later; from its first answer until the last run has "
            "recorded something. Runs of two `true` actions are queued one after the other by one client, "
            "then driven by three workers, from the start of the workers on. Sizes are what tables with "
            "their indexes have grown by. Parked runs: copies in the database of one that a worker has "
            "parked; program and snapshot are the table that has them. Transactions of idle workers are "
            "those of the database without the measurement's own; a statement outside of a transaction "
            "counts as one. Due runs: a tenth of the parked ones, whose time comes at once, until the last "
            "one is in the queue, and how many are over a second until the first of them are."
        ),
    )
    import postgres  # of the tests, found after the path is set

    with contextlib.closing(postgres.Server(is_synced=True)) as server:
        for part in (_effects, _takeover, _outages, _many, _parked):
            started_at = perf_counter()
            part(found, place, sizes, server, postgres.cluster_database(server.url("postgres")))
            name = part.__name__.strip("_")
            print(f"  {name}: {perf_counter() - started_at:.0f} s", file=sys.stderr, flush=True)
    return found


# --- one effect -----------------------------------------------------------------------------------


def _effects(found: Section, place: Place, sizes: Sizes, server: Any, url: str) -> None:
    import psycopg

    from llc.runtime.database.connection import Address
    from llc.runtime.database.store import open_store
    from llc.runtime.host.coroutines import alone
    from llc.runtime.journal.events import ActionComplete, ActionStart
    from llc.runtime.journal.journal import Journal

    def write(journal: Journal, seq: int) -> None:
        result = {"output": "ok", "stderr": "", "exit_code": 0, "duration_ms": 2, "elapsed_ms": 3}
        journal.record(ActionComplete(exit_code=0, duration_ms=2, seq=seq, kind="shell", result=result))
        journal.record(ActionStart(action="true", seq=seq + 1, kind="shell", args={}, state="check"))
        journal.sync()

    def now() -> str:
        return "2026-01-01T00:00:00.000Z"

    store = open_store(Address.parse(url), place.folder)
    about = {"program": "bench", "path": ""}
    run, claim = alone(store.starting(place.folder, "bench", (), about, None))
    shared = run.create_journal(now)
    own = Journal.create(place.inside("own.events.jsonl"), now)
    bare = psycopg.connect(url, autocommit=True)
    for name in ("bare", "fenced"):
        bare.execute(
            f"create table {name} (run text, position bigint, data bytea, primary key (run, position))"
        )
    bare.execute("create table epochs (run text primary key, epoch integer)")
    bare.execute("insert into epochs values ('r', 1)")
    fenced = "insert into fenced select 'r', %s, %s from epochs where run = 'r' and epoch = 1 for share"
    numbers, data = count(1), bytes(400)

    def each(action: Any) -> Any:
        def contestant() -> float:
            started_at = perf_counter()
            for _ in range(sizes.cluster_effects):
                action()
            return (perf_counter() - started_at) / sizes.cluster_effects

        return contestant

    contestants = {
        "database": each(lambda: write(shared, next(numbers))),
        "bare": each(lambda: bare.execute("insert into bare values ('r', %s, %s)", [next(numbers), data])),
        "fenced": each(lambda: bare.execute(fenced, [next(numbers), data])),
        "file": each(lambda: write(own, next(numbers))),
        "dbos": _dbos(url, sizes.cluster_effects),
    }
    times = take_turns(contestants, sizes.cluster_rounds)
    import dbos

    dbos.DBOS.destroy()
    bare.close()
    shared.close()
    claim.close()
    store.close()
    ours = times["database"]
    found.add(
        row("an effect, recorded", ours, peer=("a fenced insert", times["fenced"]), aim=1.25),
        row("an effect, recorded", ours, peer=("a bare insert", times["bare"])),
        row("an effect, recorded", ours, peer=("a step of DBOS 3.4", times["dbos"]), aim=0.4),
        row("an effect, recorded", ours, peer=("the journal in a file", times["file"])),
    )


def _dbos(url: str, steps: int) -> Any:
    import dbos

    config: Any = {"name": "bench", "system_database_url": url, "dbos_system_schema": "bench"}
    dbos.DBOS(config={**config, "log_level": "CRITICAL"})
    spent: list[float] = []

    @dbos.DBOS.step()
    def step() -> dict[str, Any]:
        return {"output": "ok", "stderr": "", "exit_code": 0, "duration_ms": 2}

    @dbos.DBOS.workflow()
    def flow() -> None:
        started_at = perf_counter()
        for _ in range(steps):
            step()
        spent.append((perf_counter() - started_at) / steps)

    dbos.DBOS.launch()

    def contestant() -> float:
        flow()
        return spent[-1]

    return contestant


# --- workers --------------------------------------------------------------------------------------


def _loop(name: str, actions: list[str]) -> str:
    states = "".join(_STATE.format(n, action, n + 1) for n, action in enumerate(actions, 1))
    return _STATES.format(name) + states + f"  s{len(actions) + 1}: {{terminal: true}}\n"


class _Workers:
    """Worker processes in one folder."""

    def __init__(self, place: Place, url: str) -> None:
        self._command = [*place.llc, "worker", "--db", url]
        self._place = place
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        """Start a worker; return when it is ready."""
        worker = subprocess.Popen(
            self._command, cwd=self._place.folder, env=self._place.env, stderr=subprocess.PIPE, text=True
        )
        assert worker.stderr is not None
        told = worker.stderr.readline()
        if ": project " not in told:
            raise RuntimeError(f"a worker did not start: {told}{worker.communicate()[1]}")
        self.processes.append(worker)
        return worker

    def close(self) -> None:
        for worker in self.processes:
            worker.send_signal(signal.SIGTERM)
        for worker in self.processes:
            worker.communicate(timeout=_LIMIT_S)


@contextlib.contextmanager
def _rows(url: str) -> Iterator[Any]:
    import psycopg

    with psycopg.connect(url, autocommit=True, options="-c search_path=llc") as connection:

        def ask(words: str) -> list[Any]:
            cursor = connection.execute(words)
            return cursor.fetchall() if cursor.description else []

        yield ask


def _until(condition: Any) -> None:
    end = perf_counter() + _LIMIT_S
    while not condition():
        if perf_counter() > end:
            raise TimeoutError("the cluster did not get there")
        sleep(0.002)


def _submit(place: Place, url: str, name: str, runs: int) -> list[float]:
    """Queue runs in this process; return the seconds for each run."""
    from llc.runtime.launch.submission import submit
    from llc.runtime.project.options import Values

    before, spent = os.getcwd(), []
    os.chdir(place.folder)
    try:
        for _ in range(runs):
            started_at = perf_counter()
            with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
                submit(Values(name, quiet=True, json=True), url, ())
            spent.append(perf_counter() - started_at)
    finally:
        os.chdir(before)
    return spent


def _takeover(found: Section, place: Place, sizes: Sizes, server: Any, url: str) -> None:
    place.write_loop(
        "wait", _loop("wait", ["true", "touch started_at; while [ ! -e go ]; do sleep 0.1; done"])
    )
    # The first event of another epoch is `run_resume`; an index finds it, so that looking costs little.
    resumed = "select 1 from journal where run = '{run}' and epoch > {epoch} limit 1"
    spent = []
    with contextlib.closing(_Workers(place, url)) as workers, _rows(url) as rows:
        workers.start()
        workers.start()
        _submit(place, url, "wait", 1)
        _until(lambda: os.path.exists(place.inside("started_at")))
        for number in range(sizes.cluster_kills):
            if number > 0:
                workers.start()
            ((run, owner, epoch),) = rows("select id, owner, epoch from runs")
            look = resumed.format(run=run, epoch=epoch)
            pid = int(owner.rsplit("-", 2)[1])
            victim = next(worker for worker in workers.processes if worker.pid == pid)
            at = perf_counter()
            victim.kill()
            _until(lambda look=look: rows(look))
            spent.append(perf_counter() - at)
            victim.communicate()
            workers.processes.remove(victim)
        open(place.inside("go"), "w").close()
        _until(lambda: rows("select status from runs") == [("ended",)])
    found.add(
        row("takeover after kill -9", spent, aim=0.1, aim_is_absolute=True),
        row("takeover after kill -9, worst", [max(spent)], aim=0.5, aim_is_absolute=True),
    )


def _outages(found: Section, place: Place, sizes: Sizes, server: Any, url: str) -> None:
    for number in range(_STEADY):
        text = _loop(f"steady{number}", ["sleep 0.05; [ -e stop ]"]).replace(": 100", ": 100000")
        text = text.replace("next: s2", "on_yes: s2, on_no: s1") + f"scope: [part{number}]\n"
        place.write_loop(f"steady{number}", text)
    ends = "select run, max(position) from journal group by run"
    with contextlib.closing(_Workers(place, url)) as workers:
        workers.start()
        workers.start()
        for number in range(_STEADY):
            _submit(place, url, f"steady{number}", 1)
        for seconds in sizes.cluster_outages:
            with _rows(url) as rows:
                before = dict(rows(ends))
                _until(lambda before=before, rows=rows: _have_all_grown(before, rows(ends)))
            server.halt()
            sleep(seconds)
            server.start()
            started_at = perf_counter()
            with _rows(url) as rows:
                before = dict(rows(ends))
                _until(lambda before=before, rows=rows: _have_all_grown(before, rows(ends)))
            spent = perf_counter() - started_at
            what = f"after an outage of {seconds:g} s: {_STEADY} runs continue"
            found.add(Row(what=what, unit=SECONDS, figure=spent, aim=5, aim_is_absolute=True))
        open(place.inside("stop"), "w").close()
        with _rows(url) as rows:
            _until(lambda: len(rows("select 1 from runs where status = 'ended'")) == _STEADY)
            resumed = "select run from journal where position(convert_to('run_resume', 'UTF8') in data) > 0"
            assert len(rows(resumed)) == _STEADY, "a run was taken over"  # each begins with one


def _have_all_grown(before: dict[str, int], now: list[tuple[str, int]]) -> bool:
    return len(now) == _STEADY and all(end > before.get(run, -1) for run, end in now)


def _many(found: Section, place: Place, sizes: Sizes, server: Any, url: str) -> None:
    place.write_loop("short", _loop("short", _SHORT * ["true"]))
    place.write_loop("long", _loop("long", _LONG * ["true"]))
    runs = sizes.cluster_runs
    with contextlib.closing(_Workers(place, url)) as workers, _rows(url) as rows:
        base = _bytes(rows)
        queued = _submit(place, url, "short", runs)
        started_at = perf_counter()
        for _ in range(sizes.cluster_workers):
            workers.start()
        done = "select count(*) from runs where status = 'ended' and outcome = 'success'"
        _until(lambda: rows(done) == [(runs,)])
        seconds = perf_counter() - started_at
        after = _bytes(rows)
        _submit(place, url, "long", runs // 10)
        _until(lambda: rows(done) == [(runs + runs // 10,)])
        short, long = (after - base) / runs, (_bytes(rows) - after) / (runs // 10)
    found.add(
        row("a run queued by `llc run --on`, without the start of its process", queued),
        Row(what=f"{runs:,} runs over {sizes.cluster_workers} workers", unit=SECONDS, figure=seconds),
        Row(what="the same: runs", unit=RATE, figure=runs / seconds),
        row(f"a run of {_SHORT} effects in the database", [short], BYTES),
        row("each further effect", [(long - short) / (_LONG - _SHORT)], BYTES),
    )


_NAMES = "project, program, path, managed, status, epoch, segment, due, parked, parked_at, machine"
_COPY = """
with ids as (
  select 'sleeper-20260101-' || lpad((n / 65536)::text, 6, '0') || lpad(to_hex(n % 65536), 5, '-0000') as id
  from generate_series(1, {count}) as n),
r as (insert into runs (id, {names}) select ids.id, {names} from runs, ids where runs.id = '{run}'),
j as (insert into journal select ids.id, position, size, lines, epoch, data from journal, ids
  where run = '{run}'),
d as (insert into documents select ids.id, name, data from documents, ids where run = '{run}')
select 1
"""


def _parked(found: Section, place: Place, sizes: Sizes, server: Any, url: str) -> None:
    place.write_loop("sleeper", '(begin (sleep 86400) "slept")', ".sexp")
    runs, due = sizes.cluster_parked, max(1, sizes.cluster_parked // 10)
    over = min(due, _OVER)
    with contextlib.closing(_Workers(place, url)) as workers, _rows(url) as rows:
        workers.start()
        _submit(place, url, "sleeper", 1)
        _until(lambda: rows("select status from runs") == [("waiting",)])
        ((run,),) = rows("select id from runs")
        before = _bytes(rows), _bytes(rows, "documents")
        rows(_COPY.format(count=runs, run=run, names=_NAMES))
        snapshot = (_bytes(rows, "documents") - before[1]) / runs
        each = (_bytes(rows) - before[0]) / runs - snapshot
        rows("vacuum analyze")
        command = [*place.llc, "status", "--json", "--db", url]
        status = [place.seconds(command) for _ in range(sizes.cluster_rounds)]
        one = _idle(rows, sizes.cluster_idle_seconds)
        workers.start()
        both = _idle(rows, sizes.cluster_idle_seconds)
        started_at = perf_counter()
        # As if the day were over that each of them sleeps.
        time = "due = now(), parked_at = parked_at - interval '1 day'"
        rows(f"update runs set {time} where id in (select id from runs limit {due})")
        left = f"select 1 from runs where status = 'waiting' having count(*) > {runs + 1 - due}"
        _until(lambda: not rows(left))
        woken = perf_counter() - started_at
        ended = f"select 1 from runs where status = 'ended' having count(*) >= {over}"
        _until(lambda: rows(ended))
        rate = over / (perf_counter() - started_at)

    def held(what: str, unit: str, figure: float, aim: float | None = None) -> Row:
        return Row(what=what, unit=unit, figure=figure, aim=aim, aim_is_absolute=aim is not None)

    found.add(
        held(f"a parked run of {runs:,}, without program and snapshot", BYTES, each, 2048),
        held("its program and snapshot", BYTES, snapshot),
        row(f"`llc status --db` with {runs:,} parked runs", status, aim=0.1, aim_is_absolute=True),
        held("transactions of one idle worker", RATE, one, 12),
        held("transactions of a second one", RATE, both - one, 5),
        held(f"{due:,} parked runs are due: all in the queue", SECONDS, woken, 1),
        held(f"the same: the first {over} are over, with two workers", RATE, rate),
    )


def _idle(rows: Any, seconds: float) -> float:
    """Return the number of transactions of the server per second."""
    count = "select sum(xact_commit + xact_rollback) from pg_stat_database where datname = current_database()"

    def ask() -> float:
        rows("select pg_stat_clear_snapshot()")
        ((found,),) = rows(count)
        return float(found)

    sleep(2 * seconds / 10)
    first = ask()
    sleep(seconds)
    return (ask() - first - 2) / seconds


def _bytes(rows: Any, names: str = "%") -> float:
    """Return the size of the tables whose names match, in bytes."""
    ((size,),) = rows(
        "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n "
        "on n.oid = relnamespace where nspname in ('llc', 'llc_dbos') and relkind = 'r' "
        f"and relname like '{names}'"
    )
    return float(size)
