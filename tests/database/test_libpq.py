"""The light connection of commands that read runs: it gives the results of psycopg, or falls back to it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psycopg
import pytest
from clusters import Cluster

from llc.runtime.database import libpq
from llc.runtime.database.connection import Address, DatabaseUnavailable, Session

TEXTS = ["a", "", "ä'\\\"{},%", "null", "NULL", " x "]
SAME: list[tuple[str, Any]] = [
    ("select 1, 'x', null, true, false, 1.5::float8, 2::smallint, 9000000000", None),
    ("select 'a%b'", None),
    ("select %s::text, 'a%%b', %s::int", ["it's", 7]),
    ("select %(b)s::text, %(a)s::bigint, %(b)s::text", {"a": -3, "b": "%s"}),
    ("select unnest(%s::text[])", [TEXTS]),
    ("select unnest(%s::bigint[])", [[1, -2, 1 << 40]]),
    ("select 1 where 'a' = any(%s)", [[]]),
    ("select %s::bytea", [bytes(range(256))]),
    ("select %s::boolean, %s::text", [True, None]),
    ("select timestamptz '2026-03-01 12:00:00.123456+02', timestamptz '1970-01-01 00:00+00'", None),
    ("select to_regclass('no_such')", None),
    ("set application_name = 'x'", None),
    ("select generate_series(1, 3)", None),
]


@pytest.mark.parametrize(("words", "values"), SAME)
def test_results_are_those_of_psycopg(postgres_server: str, words: str, values: Any) -> None:
    light = libpq.Connection(postgres_server)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        cursor = connection.execute(words, values, binary=True)
        expected = cursor.fetchall() if cursor.description else []
        assert light.execute(words, values).fetchall() == expected
        assert light.execute(words, values).fetchone() == (expected[0] if expected else None)
        assert light.info.server_version == connection.info.server_version
    assert light.execute("select pg_backend_pid()").fetchone() == (light.info.backend_pid,)
    light.close()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("select 1 / 0", None),
        ("select %s", [object()]),
        ("select %s::text", ["a\0b"]),
        ("select %s::text", ["\udc80"]),
        ("select 1.5::numeric", None),
        ("select timestamptz 'infinity'", None),
        ("select %d", [1]),
        ("select pg_terminate_backend(pg_backend_pid())", None),
    ],
)
def test_unsupported_queries_fall_back_to_psycopg(postgres_server: str, words: str, values: Any) -> None:
    light = libpq.Connection(postgres_server)
    with pytest.raises(libpq.Unsupported):
        light.execute(words, values)
    light.close()


def test_a_session_changes_to_psycopg(database: str) -> None:
    """At a fallback the action restarts with psycopg, and errors are those of psycopg."""
    session = Session(Address.parse(database), lambda: True, uses_libpq=True)
    kinds = []

    def ask(connection: Any) -> Any:
        kinds.append(type(connection))
        return connection.execute("select 1.5::numeric::text::numeric").fetchone()

    assert [str(value) for value in session.do(ask)] == ["1.5"]
    assert kinds == [libpq.Connection, psycopg.Connection]
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.do(lambda connection: connection.execute("select 1 / 0"))
    session.close()


def test_server_is_unreachable() -> None:
    session = Session(Address.parse("postgresql://127.0.0.1:1/none"), lambda: True, uses_libpq=True)
    with pytest.raises(DatabaseUnavailable):
        session.do(lambda connection: connection)


def test_notices_are_not_printed(postgres_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    light = libpq.Connection(postgres_server)
    light.execute("do $$ begin raise warning 'loud'; end $$")
    light.close()
    assert capfd.readouterr() == ("", "")


def test_status_loads_no_psycopg(cluster: Cluster) -> None:
    """Reading the runs of a database does not import it."""
    cluster.loop("job")
    run = cluster.submit("job")
    words = [sys.executable, "-X", "importtime", "-m", "llc", "status", run, "--db", cluster.url]
    result = subprocess.run(words, cwd=cluster.folder, capture_output=True, text=True)
    assert (result.returncode, run in result.stdout) == (0, True), result.stderr
    assert "llc.runtime.database.libpq" in result.stderr
    assert "psycopg" not in result.stderr
