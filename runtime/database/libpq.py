"""Minimal database client on top of libpq, for short commands that only read a few rows.

Importing psycopg takes longer than the rest of such a command. This module implements the part of psycopg
that reading runs needs, with the libpq of psycopg's package. It reports no error details and supports few
types. When it raises Unsupported, the caller repeats the operation with psycopg (`connection.Session`).
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ..host import clock, files, pipes

# Timeout for connecting, in seconds; psycopg, which is tried next, has a longer one.
_CONNECT_TIMEOUT_S = 3
_READING, _WRITING, _CONNECTED = 1, 2, 3  # PostgresPollingStatusType
_DONE, _ROWS = 1, 2  # ExecStatusType
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Unsupported(Exception):
    """This client cannot perform the operation; psycopg may be able to."""


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _float(data: bytes) -> float:
    return float(struct.unpack(">d", data)[0])


def _time(data: bytes) -> datetime:
    """Raises OverflowError for times that Python cannot represent."""
    return _EPOCH + timedelta(microseconds=_integer(data))


# Decoders of the binary format, by the OID of the type: bool, bytea, bigint, smallint, integer, text, oid,
# double precision, varchar, timestamptz, regclass, void.
_DECODERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: data != b"\0",
    17: bytes,
    20: _integer,
    21: _integer,
    23: _integer,
    25: bytes.decode,
    26: _integer,
    701: _float,
    1043: bytes.decode,
    1184: _time,
    2205: _integer,
    2278: bytes.decode,
}
_POINTER, _INT, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_TEXTS = ctypes.POINTER(_TEXT)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "PQconnectStartParams": (_POINTER, _TEXTS, _TEXTS, _INT),
    "PQconnectPoll": (_INT, _POINTER),
    "PQsocket": (_INT, _POINTER),
    "PQserverVersion": (_INT, _POINTER),
    "PQbackendPID": (_INT, _POINTER),
    "PQsetNoticeProcessor": (_POINTER, _POINTER, _POINTER, _POINTER),
    "PQsendQueryParams": (
        *(_INT, _POINTER, _TEXT, _INT, _POINTER, _TEXTS, ctypes.POINTER(_INT), ctypes.POINTER(_INT), _INT),
    ),
    "PQconsumeInput": (_INT, _POINTER),
    "PQisBusy": (_INT, _POINTER),
    "PQgetResult": (_POINTER, _POINTER),
    "PQresultStatus": (_INT, _POINTER),
    "PQntuples": (_INT, _POINTER),
    "PQnfields": (_INT, _POINTER),
    "PQftype": (ctypes.c_uint, _POINTER, _INT),
    "PQgetisnull": (_INT, _POINTER, _INT, _INT),
    "PQgetlength": (_INT, _POINTER, _INT, _INT),
    "PQgetvalue": (_POINTER, _POINTER, _INT, _INT),
    "PQclear": (None, _POINTER),
    "PQfinish": (None, _POINTER),
}


# Discards notices of the server, which libpq would write to standard error.
_ignore = ctypes.CFUNCTYPE(None, _POINTER, _TEXT)(lambda argument, notice: None)


def _library() -> Any:
    """Load the libpq of psycopg's package. Raises Unsupported."""
    for parent in filter(None, sys.path):
        for folder in (f"{parent}/psycopg_binary.libs", f"{parent}/psycopg_binary/.dylibs"):
            names = files.listdir(folder) if files.isdir(folder) else ()
            for name in names:
                if name.startswith("libpq"):
                    library = ctypes.CDLL(f"{folder}/{name}")
                    for function, (result, *types) in _FUNCTIONS.items():
                        getattr(library, function).restype = result
                        getattr(library, function).argtypes = types
                    return library
    raise Unsupported("no libpq")


class Rows:
    """Result of a statement."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None


class Connection:
    """Autocommit connection with the part of psycopg's interface that readers use. Raises Unsupported."""

    def __init__(self, url: str) -> None:
        self._connection = None
        try:
            self._pq = _library()
        except (OSError, AttributeError) as error:
            raise Unsupported(str(error)) from None
        parameters = {"dbname": url, "application_name": "llc", "client_encoding": "utf8"}
        names, values = _c_strings([*parameters, None]), _c_strings([*parameters.values(), None])
        self._connection = self._pq.PQconnectStartParams(names, values, 1)
        deadline, status = clock.monotonic() + _CONNECT_TIMEOUT_S, _WRITING
        while status != _CONNECTED:
            if status not in (_READING, _WRITING):
                self.close()
                raise Unsupported("refused")
            self._wait(pipes.POLLIN if status == _READING else pipes.POLLOUT, deadline)
            status = self._pq.PQconnectPoll(self._connection)
        self._pq.PQsetNoticeProcessor(self._connection, ctypes.cast(_ignore, _POINTER), None)

    @property
    def info(self) -> Connection:
        return self

    @property
    def server_version(self) -> int:
        return int(self._pq.PQserverVersion(self._connection))

    @property
    def backend_pid(self) -> int:
        return int(self._pq.PQbackendPID(self._connection))

    def execute(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] | None = None, **options: bool
    ) -> Rows:
        """Execute a statement like psycopg. Options are ignored: results are binary, nothing is prepared."""
        text, parameters = (statement, []) if values is None else _number_parameters(statement, values)
        is_sent = self._pq.PQsendQueryParams(
            self._connection,
            text.encode(),
            len(parameters),
            None,
            _c_strings(list(map(_literal, parameters))),
            None,
            None,
            1,
        )
        if not is_sent:
            raise Unsupported(text)
        rows, is_ok = list[tuple[Any, ...]](), True
        while True:
            while self._pq.PQisBusy(self._connection):
                self._wait(pipes.POLLIN, None)
                if not self._pq.PQconsumeInput(self._connection):
                    raise Unsupported("connection lost")
            result = self._pq.PQgetResult(self._connection)
            if not result:
                break
            try:
                status = self._pq.PQresultStatus(result)
                is_ok &= status in (_DONE, _ROWS)
                if status == _ROWS:
                    rows = self._rows(result)
            finally:
                self._pq.PQclear(result)
        if not is_ok:
            raise Unsupported(text)
        return Rows(rows)

    def _rows(self, result: Any) -> list[tuple[Any, ...]]:
        pq, columns = self._pq, range(self._pq.PQnfields(result))
        try:
            decoders = [_DECODERS[pq.PQftype(result, column)] for column in columns]
            return [
                tuple(
                    None
                    if pq.PQgetisnull(result, row, column)
                    else decode(
                        ctypes.string_at(
                            pq.PQgetvalue(result, row, column), pq.PQgetlength(result, row, column)
                        )
                    )
                    for column, decode in zip(columns, decoders, strict=True)
                )
                for row in range(pq.PQntuples(result))
            ]
        except (KeyError, OverflowError, UnicodeError) as error:
            raise Unsupported(repr(error)) from None

    def _wait(self, event: int, deadline: float | None) -> None:
        """Wait until the socket is ready. Raises Unsupported at the deadline (None: no deadline)."""
        poller = pipes.poll()
        try:
            poller.register(self._pq.PQsocket(self._connection), event)
        except (OSError, ValueError):
            raise Unsupported("no socket") from None
        remaining_ms = None if deadline is None else max(0.0, 1000 * (deadline - clock.monotonic()))
        if not poller.poll(remaining_ms):
            raise Unsupported("timeout")

    def close(self) -> None:
        if self._connection is not None:
            self._pq.PQfinish(self._connection)
            self._connection = None

    def __del__(self) -> None:
        self.close()


def _c_strings(values: Sequence[str | None]) -> Any:
    """Convert values to an array of C strings. Raises Unsupported."""
    if any(value is not None and "\0" in value for value in values):
        raise Unsupported("null character")
    try:
        return (_TEXT * len(values))(*(None if value is None else value.encode() for value in values))
    except UnicodeError as error:
        raise Unsupported(str(error)) from None


def _number_parameters(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Replace `%s` and `%(name)s` by `$1`, `$2` …; return the text and the values in this order."""
    first, *parts = statement.split("%")
    text, ordered, is_escaped = [first], list[Any](), False
    for part in parts:
        if is_escaped:
            text.append(part)
            is_escaped = False
        elif not part:
            text.append("%")
            is_escaped = True
        elif part.startswith("(") and isinstance(values, Mapping):
            name, _, rest = part[1:].partition(")s")
            ordered.append(values[name])
            text.append(f"${len(ordered)}{rest}")
        elif part.startswith("s") and not isinstance(values, Mapping):
            ordered.append(values[len(ordered)])
            text.append(f"${len(ordered)}{part[1:]}")
        else:
            raise Unsupported(statement)
    return "".join(text), ordered


def _literal(value: Any) -> str | None:
    """Convert a value to the text format of PostgreSQL. Raises Unsupported."""
    match value:
        case None | str():
            return value
        case bool():
            return "t" if value else "f"
        case int():
            return str(value)
        case bytes():
            return "\\x" + value.hex()
        case list():
            return "{" + ",".join(map(_element, value)) + "}"
    raise Unsupported(type(value).__name__)


def _element(value: Any) -> str:
    text = _literal(value)
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
