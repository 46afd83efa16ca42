"""Runs in a database: one owner at a time, no append by an earlier owner, nothing lost by an outage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres
import psycopg
import pytest

from llc.runtime.database import claims, connection, owner
from llc.runtime.database.claims import NewRun, ScopeConflict
from llc.runtime.database.connection import Address, Session, connect
from llc.runtime.database.owner import Owner
from llc.runtime.database.store import DatabaseStore, open_store
from llc.runtime.database.stored_run import _APPEND, DatabaseRun, Fenced
from llc.runtime.host.coroutines import alone
from llc.runtime.host.errors import UserError

NOW = "2024-01-15T10:30:00.000Z"
ABOUT = {"program": "one", "path": ".loops/one.yaml"}


@pytest.fixture
def store(database: str, tmp_path: Path) -> Iterator[DatabaseStore]:
    opened = open_store(Address.parse(database), str(tmp_path / "here"), "project")
    yield opened
    opened.close()


@pytest.fixture
def other(database: str, tmp_path: Path) -> Iterator[DatabaseStore]:
    """The store of another machine."""
    opened = open_store(Address.parse(database), str(tmp_path / "there"), "project")
    yield opened
    opened.close()


def begin(store: DatabaseStore, scope: tuple[str, ...] = ()) -> tuple[DatabaseRun, Any]:
    """A run with one recorded event, and its claim."""
    run, claim = alone(store.starting("", "one", scope, dict(ABOUT), None))
    assert isinstance(run, DatabaseRun)
    journal = run.create_journal(lambda: NOW)
    journal.write("run_start", {"run": run.id, **ABOUT})
    journal.sync()
    return run, claim


def take_over(store: DatabaseStore, run_id: str) -> tuple[DatabaseRun, Any]:
    found = store.find_unfinished(run_id)
    return found, alone(store.taking_over(found, (), {}, None))


def test_another_machine_continues_the_record(store: DatabaseStore, other: DatabaseStore) -> None:
    """Journal, documents and long texts are available on any machine, byte for byte."""
    run, claim = begin(store)
    journal = run.append_journal(lambda: NOW, 1)
    text = "ö" * 40_000
    reference = run.blobs.store(text)
    journal.write("note", {"text": text})
    journal.sync()
    run.write("checkpoint-1", b"\x00data")
    position, crc = journal.size, journal.last_crc
    claim.close()
    there, second = take_over(other, run.id)
    assert Path(there.journal).read_bytes() == Path(run.journal).read_bytes()
    assert there.has_line_end(position, crc)
    assert there.read("checkpoint-1") == b"\x00data"
    assert there.blobs.fetch(reference["$blob"], reference["size"]) == text
    second.close()


def test_a_run_has_one_owner(store: DatabaseStore, other: DatabaseStore) -> None:
    """A live run cannot be resumed elsewhere; a released one can."""
    run, claim = begin(store)
    assert other.is_live(run)
    with pytest.raises(UserError, match="still running"):
        take_over(other, run.id)
    claim.close()
    assert not other.is_live(run)
    _, second = take_over(other, run.id)
    second.close()


def test_former_owner_appends_nothing(store: DatabaseStore, other: DatabaseStore) -> None:
    """After a claim with the next epoch, appends, documents and the release of the old owner have no
    effect.
    """
    run, claim = begin(store)
    journal = run.append_journal(lambda: NOW, 1)
    with connect(store.address) as connection:
        owner.declare_dead(connection, store.owner.id)
    there, second = take_over(other, run.id)
    before = Path(there.journal).read_bytes()
    journal.write("note", {"text": "late"})
    with pytest.raises(Fenced):
        journal.sync()
    with pytest.raises(Fenced):
        run.write("checkpoint-1", b"late")
    claim.close()
    there.refresh()
    assert Path(there.journal).read_bytes() == before
    assert other.is_live(run)
    second.close()


def test_a_frozen_owner_loses_its_paths(store: DatabaseStore, other: DatabaseStore) -> None:
    """Another run gets them once the heartbeat is overdue; after waking up, the owner appends nothing."""
    run, claim = begin(store, ("src",))
    journal = run.append_journal(lambda: NOW, 1)
    with store.owner._session_lock:  # no heartbeat during this time
        with connect(store.address) as connection:
            late = "update workers set beat = now() - interval '1 hour' where id = %s"
            connection.execute(late, [store.owner.id])
            # The server has been running for a shorter time.
            postgres.until(lambda: owner.is_dead(connection, store.owner.id))
        _, second = begin(other, ("src/a",))
    journal.write("note", {"text": "late"})
    with pytest.raises(Fenced):
        journal.sync()
    with pytest.raises(UserError) as refused:
        take_over(other, run.id)
    assert refused.value.id == "scope-conflict"
    second.close()
    claim.close()


def test_a_claim_waits_for_an_append_in_progress(store: DatabaseStore, other: DatabaseStore) -> None:
    """The new owner reads what the old one commits, since both lock the row of the run."""
    run, _ = begin(store)
    end = len(Path(run.journal).read_bytes())
    values = {"run": run.id, "position": end, "size": 4, "lines": 1, "epoch": run.epoch, "data": b"late"}
    with connect(store.address) as connection:
        connection.execute("begin")
        assert connection.execute(_APPEND, values).rowcount == 1
        came: list[Any] = []
        taken = threading.Thread(target=lambda: came.append(_claim_by_force(other, run.id)))
        taken.start()
        _await_lock(other)
        connection.execute("commit")
        taken.join(60)
    found = DatabaseRun.cached(other.cache, run.id, Session(other.address))
    found.refresh()
    assert came == [run.epoch + 1]
    assert Path(found.journal).read_bytes().endswith(b"late")
    run.epoch = came[0]


def _claim_by_force(store: DatabaseStore, run_id: str) -> Any:
    """Claim a run of a living owner, as if it had just died."""
    with connect(store.address) as connection:
        connection.execute("begin")
        raise_epoch = "update runs set epoch = epoch + 1, owner = %s where id = %s returning epoch"
        rows = connection.execute(raise_epoch, [store.owner.id, run_id]).fetchone()[0]
        connection.execute("commit")
        return rows


def _await_lock(store: DatabaseStore) -> None:
    """Wait until a statement waits for a lock."""
    waiting = (
        "select count(*) from pg_stat_activity "
        "where wait_event_type = 'Lock' and datname = current_database()"
    )
    with connect(store.address) as connection:
        postgres.until(lambda: connection.execute(waiting).fetchone()[0])


def test_two_appends_at_one_position(store: DatabaseStore) -> None:
    """Only one of them succeeds, also by the same owner, so there is neither a gap nor an overlap."""
    run, claim = begin(store)
    end = len(Path(run.journal).read_bytes())
    run.append(end, b"first\n", 1)
    run.append(end, b"first\n", 1)  # repeated after a lost answer
    for position, data in ((end, b"other\n"), (end + 1, b"gap\n"), (end + 7, b"gap\n"), (0, b"again\n")):
        with pytest.raises(Fenced):
            run.append(position, data, 1)
    claim.close()


def test_cache_has_only_committed_data(store: DatabaseStore) -> None:
    """After an error in the middle of a run, the same worker continues from the database."""
    run, claim = begin(store)
    journal = run.append_journal(lambda: NOW, 1)
    journal.write("note", {"text": "lost"})
    journal.flush()
    claim.close()
    again, claim = take_over(store, run.id)
    journal = again.append_journal(lambda: NOW, 1)
    journal.write("note", {"text": "kept"})
    journal.sync()
    claim.close()
    assert b"lost" not in Path(again.journal).read_bytes()


def test_scopes_exclude_each_other_across_machines(store: DatabaseStore, other: DatabaseStore) -> None:
    """A path, or one inside it, belongs to one run at a time; other runs are concurrent."""
    _, first = begin(store, ("src/a",))
    _, second = begin(other, ("src/b", "docs"))
    for scope in ("src", "src/a/x.py", "docs", "."):
        with pytest.raises(UserError) as refused:
            begin(other, (scope,))
        assert refused.value.id == "scope-conflict"
    first.close()
    _, third = begin(other, ("src/a/x.py",))
    third.close()
    second.close()


def test_concurrent_claims_of_one_scope(store: DatabaseStore, database: str) -> None:
    """Exactly one of many concurrent starts gets the path."""
    names = [f"run-{number}" for number in range(8)]
    came: list[Any] = []

    def start(name: str) -> None:
        with connect(store.address) as connection:
            new = NewRun(name, "project", "p", "", ["/src"])
            came.append(claims.create(connection, new, store.owner.id))

    threads = [threading.Thread(target=start, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(isinstance(one, int) for one in came) == 1
    assert sum(isinstance(one, ScopeConflict) for one in came) == 7


OWNER = """
import sys, time
from llc.runtime.database.connection import Address
from llc.runtime.database.owner import Owner
print(Owner(Address.parse(sys.argv[1])).id, flush=True)
time.sleep(600)
"""


class Process:
    """An owner in a separate process."""

    def __init__(self, url: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", OWNER, url], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert self.popen.stdout is not None
        self.id = self.popen.stdout.readline().strip()

    def close(self) -> None:
        self.popen.kill()
        self.popen.communicate()


def _is_dead(url: str, id: str) -> bool:
    with connect(Address.parse(url)) as connection:
        return owner.is_dead(connection, id)


def _await_death(url: str, id: str) -> None:
    """Wait until the owner counts as dead."""
    postgres.until(lambda: _is_dead(url, id))


def test_a_killed_owner_is_dead_at_once(database: str) -> None:
    """Its lock is free as soon as the server sees the closed connection, long before the lease ends."""
    process = Process(database)
    try:
        assert not _is_dead(database, process.id)
        process.popen.kill()
        process.popen.wait(60)
        with psycopg.connect(database, autocommit=True) as connection:
            # No heartbeat is overdue yet, so only the lock shows it.
            connection.execute("update llc.workers set beat = clock_timestamp() + interval '1 hour'")
        _await_death(database, process.id)
    finally:
        process.close()


def test_a_frozen_owner_is_dead_after_its_lease(database: str) -> None:
    """After SIGSTOP the lock is still held, but the heartbeat is overdue; that of another owner is not."""
    process, other = Process(database), Process(database)
    try:
        process.popen.send_signal(signal.SIGSTOP)
        _await_death(database, process.id)
    finally:
        process.close()
        other.close()


def test_a_restart_of_the_server_kills_no_owner(
    own_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All locks are free then, but no owner is dead: from the start of the server the heartbeat decides."""
    monkeypatch.setattr(owner, "LEASE_S", 1800)  # for any duration of the restart
    url = postgres.cluster_database(own_server.url("postgres"))
    process = Process(url)
    try:
        process.popen.send_signal(signal.SIGSTOP)
        own_server.restart()
        with connect(Address.parse(url)) as connection:
            connection.execute("update workers set beat = clock_timestamp() - interval '1 hour'")
        assert not _is_dead(url, process.id)
        process.popen.send_signal(signal.SIGCONT)
        with connect(Address.parse(url)) as connection:
            registered = "select server_start = pg_postmaster_start_time() from workers where id = %s"
            postgres.until(lambda: connection.execute(registered, [process.id]).fetchone()[0])
        assert not _is_dead(url, process.id)
        process.popen.kill()
        _await_death(url, process.id)
    finally:
        process.close()


def test_an_append_outlives_a_restart_of_the_server(own_server: postgres.Server, tmp_path: Path) -> None:
    """The session reconnects and appends once."""
    url = postgres.cluster_database(own_server.url("postgres"))
    opened = open_store(Address.parse(url), str(tmp_path), "project")
    run, claim = begin(opened)
    journal = run.append_journal(lambda: NOW, 1)
    for number in range(3):
        own_server.restart()
        journal.write("note", {"number": number})
        journal.sync()
    kept = Path(run.journal).read_bytes()
    claim.close()
    found = DatabaseRun.cached(str(tmp_path / "other"), run.id, Session(opened.address))
    found.refresh()
    assert Path(found.journal).read_bytes() == kept
    assert kept.count(b"\n") == 4
    opened.close()


def test_owner_declared_dead_is_notified(database: str) -> None:
    """At its next heartbeat, so that it can end its actions."""
    told = threading.Event()
    one = Owner(Address.parse(database), on_death=told.set)
    with connect(Address.parse(database)) as connection:
        owner.declare_dead(connection, one.id)
    assert told.wait(60)
    assert one.is_dead
    one.close()


def test_owner_without_its_lock_is_alive_by_its_heartbeat(database: str) -> None:
    """The owner takes the lock when it is free."""
    one = Owner(Address.parse(database))
    with connect(Address.parse(database)) as holder, connect(Address.parse(database)) as connection:
        own = "select pid from pg_locks where locktype = 'advisory' and granted"
        (pid,) = holder.execute(own).fetchone()
        holder.execute("update workers set beat = clock_timestamp() + interval '1 hour'")
        taken = threading.Thread(
            target=lambda: holder.execute("select pg_advisory_lock(lock_key) from workers").fetchone()
        )
        taken.start()
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        postgres.until(lambda: connection.execute(waiting).fetchone()[0])
        connection.execute("select pg_terminate_backend(%s)", [pid])
        taken.join(60)
        unproven = "select server_start = '-infinity' from workers"
        postgres.until(lambda: connection.execute(unproven).fetchone()[0])
        holder.execute("select pg_advisory_unlock_all()")
        assert not owner.is_dead(connection, one.id)
        postgres.until(lambda: not connection.execute(unproven).fetchone()[0])
    one.close()


def test_owner_declared_dead_cannot_claim(store: DatabaseStore, other: DatabaseStore) -> None:
    """It may not know yet, and no process would declare it dead again."""
    run, claim = begin(other, ("src",))
    claim.close()
    with connect(store.address) as connection:
        owner.declare_dead(connection, store.owner.id)
    with pytest.raises(Fenced):
        take_over(store, run.id)
    with pytest.raises(Fenced):
        begin(store, ("docs",))
    take_over(other, run.id)[1].close()


def test_a_silent_transaction_loses_its_locks(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is suspended inside a transaction blocks others only briefly."""
    monkeypatch.setattr("llc.runtime.database.connection.IDLE_TRANSACTION_TIMEOUT_S", 1)
    silent, other = connect(Address.parse(database)), connect(Address.parse(database))
    silent.execute("begin")
    silent.execute("select pg_advisory_xact_lock(1)")
    other.execute("select pg_advisory_lock(1)")  # waits until the server has ended the first transaction
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        silent.execute("select 1")
    other.close()
    # After it continues, it restarts the transaction.
    attempts = []

    def once(connection: Any) -> None:
        attempts.append(connection)
        with connection.transaction():
            connection.execute("select 1")
            if len(attempts) == 1:
                with connect(Address.parse(database)) as watcher:
                    gone = "select 1 from pg_stat_activity where pid = %s"
                    pid = connection.info.backend_pid
                    postgres.until(lambda: watcher.execute(gone, [pid]).fetchone() is None)
            connection.execute("select 1")

    session = Session(Address.parse(database))
    session.do(once)
    session.close()
    assert len(attempts) == 2


def test_owners_have_a_grace_period_after_an_outage(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first owner that reconnects buries no other, for any duration of the outage; after the lease it
    does.
    """
    monkeypatch.setattr(owner, "LEASE_S", 1800)  # for any speed of the machine
    with connect(Address.parse(database)) as connection:
        connection.execute(
            "insert into workers (id, labels, capacity, lock_key, server_start, beat, since) values "
            "('back', '{}', 1, 1, '-infinity', 'infinity', now()), "
            "('late', '{}', 1, 2, '-infinity', now() - interval '1 hour', now() - interval '1 day')"
        )
        assert not owner.is_dead(connection, "late")
        assert owner.declare_dead_owners(connection, "back") == []
        connection.execute("update workers set since = now() - interval '31 minutes' where id = 'back'")
        assert owner.is_dead(connection, "late")
        assert owner.declare_dead_owners(connection, "back") == ["late"]


def test_no_owner_is_dead_before_heartbeats_resume(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that reconnects before all heartbeats buries no owner, even after a long start of the
    server.
    """
    with connect(Address.parse(database)) as connection:
        age = "select extract(epoch from clock_timestamp() - pg_postmaster_start_time())::float8"
        monkeypatch.setattr(owner, "LEASE_S", connection.execute(age).fetchone()[0] / 2)
        connection.execute(
            "insert into workers (id, labels, capacity, lock_key, server_start, beat, since) values "
            "('late', '{}', 1, 2, '-infinity', now() - interval '1 hour', now() - interval '1 day')"
        )
        assert not owner.is_dead(connection, "late")
        assert owner.declare_dead_owners(connection, "back") == []


def test_reconnection_uses_short_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that a stopping server does not answer takes less time than the lease.

    Attempts become longer only without an answer, not while the server refuses connections.
    """
    patience, now = list[int](), [0.0]

    def connect(address: Address, patience_s: int) -> None:
        patience.append(patience_s)
        if len(patience) not in (2, 3):  # the others are refused at once
            now[0] += patience_s
        if len(patience) < 8:
            raise connection.DatabaseUnavailable(address, "it stops")

    monkeypatch.setattr(connection, "connect", connect)
    monkeypatch.setattr(connection, "_MAX_BACKOFF_S", 0)
    monkeypatch.setattr(connection, "_MIN_BACKOFF_S", 0)
    monkeypatch.setattr(connection.clock, "monotonic", lambda: now[0])
    Session(Address.parse("postgresql://db.example/llc")).do(lambda opened: None)
    assert patience == [10, 2, 2, 2, 4, 8, 10, 10]
