"""`llc db`: the tables of a database are created, updated and checked, and each error has a fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fork_server
import pooler
import postgres
import psycopg
import pytest

from llc.runtime.database import installation, schema
from llc.runtime.database.connection import Address, DatabaseUnavailable, connect
from llc.runtime.host.errors import UserError


def llc(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run llc as a separate process."""
    return fork_server.workers().run(*words, **env)


def program(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The same, with its imports."""
    return subprocess.run(
        [sys.executable, "-m", "llc", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


def test_init_creates_the_tables(empty_database: str) -> None:
    """A second `db init` changes nothing; `db check` reads the address from the environment."""
    first = program("db", "init", "--db", empty_database, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)["applied"] == schema.FORMAT
    again = program("db", "init", "--db", empty_database, "--json")
    assert json.loads(again.stdout)["applied"] == 0
    checked = program("db", "check", LLC_DB=empty_database)
    assert checked.returncode == 0
    assert "schema `llc`" in checked.stdout


def test_several_machines_initialise_at_once(empty_database: str) -> None:
    """One of them creates the tables, the others wait for it."""
    applied: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: applied.append(installation.initialise(Address.parse(empty_database)))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(applied) == [0, 0, 0, schema.FORMAT]


def test_two_schemas_in_one_database(empty_database: str) -> None:
    """`?schema=NAME` separates the tables of two clusters."""
    for name in ("one", "two"):
        assert installation.initialise(Address.parse(f"{empty_database}?schema={name}")) == schema.FORMAT
    with connect(Address.parse(f"{empty_database}?connect_timeout=5&schema=two")) as connection:
        assert connection.execute("select count(*) from runs").fetchone()[0] == 0
        tables = "select count(*) from pg_tables where tablename = 'runs'"
        assert connection.execute(tables).fetchone()[0] == 2


def test_a_database_without_tables(empty_database: str) -> None:
    result = llc("db", "check", "--db", empty_database)
    assert result.returncode == 1
    assert "error[database-schema]" in result.stderr
    assert "llc db init" in result.stderr
    for words in (("db", "migrate", "--db"), ("resume", "job", "--on")):
        refused = llc(*words, empty_database)
        assert "error[database-schema]" in refused.stderr


@pytest.mark.parametrize(("version", "help"), [(0, "llc db migrate"), (99, "update llc")])
def test_other_formats_are_an_error(database: str, version: int, help: str) -> None:
    """An older schema must be migrated, a newer one needs a newer llc."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update llc.version set format = %s", [version])
    checked = llc("db", "check", "--db", database)
    assert checked.returncode == 1
    assert "error[database-schema]" in checked.stderr
    assert help in checked.stderr
    if version == 99:
        assert "error[database-schema]" in llc("db", "migrate", "--db", database).stderr


def test_no_server_no_database_and_no_address(empty_database: str) -> None:
    """Each has its own diagnostic, without a traceback and without the password."""
    port = postgres.free_port()
    absent = llc("db", "check", "--db", f"postgresql://llc:hunter2@127.0.0.1:{port}/llc")
    assert absent.returncode == 1
    assert "error[no-database]" in absent.stderr
    assert "hunter2" not in absent.stderr
    assert "is not available: Connection refused" in absent.stderr
    unknown = llc("db", "check", "--db", empty_database + "_absent")
    assert "error[database-refused]" in unknown.stderr
    assert "createdb" in unknown.stderr
    unnamed = llc("db", "check", LLC_DB="")
    assert unnamed.returncode == 2
    assert "LLC_DB" in unnamed.stderr
    for wrong in (
        "mysql://x",
        "postgresql://h/d?schema=A;drop",
        "postgresql://%zz/",
    ):
        result = llc("db", "check", "--db", wrong)
        assert "error[bad-option]" in result.stderr, result.stderr
    assert "error[bad-option]" in llc("db", "explode", "--db", empty_database).stderr


@pytest.fixture(scope="module")
def guest() -> Iterator[str]:
    """A database whose tables the user of the address may not use; its schema `own` is that user's."""
    server = postgres.Server()
    url = postgres.cluster_database(server.url("postgres"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role guest login")
        connection.execute("create schema own authorization guest")
    yield url.replace("llc@", "guest@")
    server.close()


@pytest.mark.parametrize("words", ["db check", "db migrate", "db init", "status", "worker"])
def test_a_user_without_rights(guest: str, words: str) -> None:
    """A user who can log in but not use the tables gets a diagnostic, from the client and from DBOS."""
    if words == "db init":  # its schema exists, that of DBOS cannot be created
        guest += "?schema=own"
    result = llc(*words.split(), "--db", guest)
    assert result.returncode == 1
    assert "error[database-refused]" in result.stderr
    assert "permission denied" in result.stderr


@pytest.mark.parametrize(
    ("place", "help"),
    [
        ("llc:hun%ter2@127.0.0.1/llc", "%25"),
        ("llc:hun/ter2@127.0.0.1/llc", "%2F"),
        ("llc:hun@ter2@127.0.0.1/llc", "%40"),
        ("llc:hun?ter2@127.0.0.1/llc", "%3F"),
        ("llc:hunter2@[::1/llc", ""),
        ("127.0.0.1/llc?user=llc&password=hun%ter2", ""),
    ],
)
def test_a_password_is_in_no_message(place: str, help: str) -> None:
    """Nor a part of it, if libpq would parse that as the host, the port or the database."""
    with pytest.raises(UserError) as error:
        connect(Address.parse(f"postgresql://{place}"))
    assert error.value.id == "bad-option"
    assert "hun" not in error.value.message
    assert "ter2" not in error.value.message
    assert help in str(error.value.help)


def test_init_needs_no_other_database(own_server: postgres.Server) -> None:
    """A user with access to only one database of the server creates the tables without a warning."""
    url = own_server.database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role owner login")
        connection.execute(f"grant create on database {connection.info.dbname} to owner")
        connection.execute("revoke connect on database postgres from public")
    result = llc("db", "init", "--db", url.replace("llc@", "owner@"))
    assert (result.returncode, result.stderr) == (0, "")


def test_no_database_and_no_json(empty_database: str) -> None:
    """`--db none` overrides the environment; metrics have one format."""
    for words in ("db check", "worker"):
        result = llc(*words.split(), "--db", "none", LLC_DB=empty_database)
        assert (result.returncode, result.stderr.count("needs a database")) == (2, 1)
    result = llc("db", "metrics", "--json", LLC_DB=empty_database)
    assert (result.returncode, result.stderr.count("text format of Prometheus")) == (2, 1)


@pytest.mark.parametrize("table", ["version (format text)", "version (number int)", "runs (id int)"])
def test_tables_of_another_program_are_not_touched(empty_database: str, table: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(f"create schema llc create table {table}")
        if "text" in table:
            connection.execute("insert into llc.version values ('new')")
    for action in ("check", "migrate", "init"):
        result = llc("db", action, "--db", empty_database)
        assert result.returncode == 1
        assert "error[database-schema]" in result.stderr
    assert "another program" in result.stderr
    assert "?schema=NAME" in result.stderr
    with psycopg.connect(empty_database) as connection:
        tables = "select count(*) from pg_tables where schemaname like 'llc%'"
        assert connection.execute(tables).fetchone() == (1,)


def test_a_wrong_password(own_server: postgres.Server) -> None:
    """The error has a fix and does not contain the password."""
    url = own_server.database()
    rules = "host all other 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
    (own_server.folder / "data/pg_hba.conf").write_text(rules)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role other login password 'right'")
        connection.execute("select pg_reload_conf()")
    wrong = Address.parse(url.replace("llc@", "other:wr0ng@"))
    for _ in range(1000):  # the server reloads the rules asynchronously
        refused = connection_error(wrong)
        if refused is not None:
            break
    assert refused is not None
    assert refused.id == "database-refused"
    assert "wr0ng" not in refused.message
    assert "password" in str(refused.help)
    assert not isinstance(refused, DatabaseUnavailable)
    assert connection_error(Address.parse(url.replace("llc@", "other:right@"))) is None


def connection_error(address: Address) -> UserError | None:
    """The error of a connection."""
    try:
        connect(address).close()
    except UserError as error:
        return error
    return None


@pytest.fixture(params=["pgbouncer", "small"])
def pooled(request: pytest.FixtureRequest, database: str) -> Iterator[Callable[[str], str]]:
    """Function that returns the address of the database through a pooler in a mode; tests both
    implementations.
    """
    started: list[pooler.PgBouncer | pooler.Pooler] = []

    def start(mode: str) -> str:
        make = pooler.start if request.param == "pgbouncer" else pooler.Pooler
        started.append(make(database, mode))
        return started[-1].url

    yield start
    for one in started:
        one.close()


def test_pooler_in_transaction_mode_is_an_error(pooled: Callable[[str], str]) -> None:
    """Locks and notifications need sessions, which such a pooler does not keep."""
    address = pooled("transaction")
    for words in (("db", "check"), ("worker",)):
        result = llc(*words, "--db", address)
        assert result.returncode == 1
        assert "error[database-pooler]" in result.stderr, result.stderr
        assert "pool_mode = session" in result.stderr


def test_pooler_is_detected_under_load(database: str) -> None:
    """Other clients use the server connections in between, so that consecutive statements use different
    ones.
    """
    shared = pooler.start(database, "transaction")
    address = Address.parse(shared.url)
    is_over = threading.Event()

    def work() -> None:
        with psycopg.connect(address.url, autocommit=True, prepare_threshold=None) as connection:
            while not is_over.is_set():
                connection.execute("select pg_sleep(0.002)")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with connect(address) as connection, pytest.raises(UserError, match="pooler in transaction mode"):
                schema.check(connection, address)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(postgres.LIMIT_S)
        shared.close()


def test_a_pooler_with_sessions(pooled: Callable[[str], str]) -> None:
    """`db check` accepts it; advisory locks are released when the client disconnects."""
    address = pooled("session")
    checked = llc("db", "check", "--db", address)
    assert checked.returncode == 0, checked.stderr
    key = "select pg_try_advisory_lock(7)"
    with connect(Address.parse(address)) as first, connect(Address.parse(address)) as second:
        assert first.execute(key).fetchone() == (True,)
        assert second.execute(key).fetchone() == (False,)
        first.close()
        postgres.until(lambda: second.execute(key).fetchone() == (True,))


def test_the_client_is_not_installed(tmp_path: Path) -> None:
    """The message names the extra; other commands do not need it."""
    (tmp_path / "psycopg.py").write_text("raise ImportError('no module named psycopg')\n")
    result = program("db", "check", "--db", "postgresql://h/d", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "error[missing-package]" in result.stderr
    assert "pip install '.[cluster]'" in result.stderr
    assert program("list", PYTHONPATH=str(tmp_path)).returncode == 0
