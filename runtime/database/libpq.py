"""A connection by libpq itself, for commands that read a few rows and end.

Loading psycopg takes longer than all else that such a command does; this module has of it what reading runs
needs, by the libpq that psycopg comes with. It explains no error and knows few types: wherever it raises
Unable, the caller does the same again with psycopg (`connection.Session`).
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ..host import clock, files, pipes

# Seconds to wait for the server; psycopg waits longer then.
_PATIENCE_S = 3
_READING, _WRITING, _CONNECTED = 1, 2, 3  # of PostgresPollingStatusType
_DONE, _ROWS = 1, 2  # of ExecStatusType
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Unable(Exception):
    """It does not work this way."""


def _whole(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _float(data: bytes) -> float:
    return float(struct.unpack(">d", data)[0])


def _time(data: bytes) -> datetime:
    """Raises OverflowError for times that Python does not have."""
    return _EPOCH + timedelta(microseconds=_whole(data))


# By the number of the type, from its binary form: bool, bytea, bigint, smallint, integer, text, oid, double
# precision, varchar, timestamptz, regclass, void.
_READ: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: data != b"\0",
    17: bytes,
    20: _whole,
    21: _whole,
    23: _whole,
    25: bytes.decode,
    26: _whole,
    701: _float,
    1043: bytes.decode,
    1184: _time,
    2205: _whole,
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


# Takes notices of the server, which libpq would write to standard error.
_ignore = ctypes.CFUNCTYPE(None, _POINTER, _TEXT)(lambda argument, notice: None)


def _library() -> Any:
    """The libpq in psycopg's package. Raises Unable."""
    for place in filter(None, sys.path):
        for folder in (f"{place}/psycopg_binary.libs", f"{place}/psycopg_binary/.dylibs"):
            names = files.listdir(folder) if files.isdir(folder) else ()
            for name in names:
                if name.startswith("libpq"):
                    found = ctypes.CDLL(f"{folder}/{name}")
                    for function, (result, *types) in _FUNCTIONS.items():
                        getattr(found, function).restype = result
                        getattr(found, function).argtypes = types
                    return found
    raise Unable("no libpq")


class Rows:
    """The result of a statement."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None


class Connection:
    """A connection in autocommit mode, with those of psycopg's names that reading uses. Raises Unable."""

    def __init__(self, url: str) -> None:
        self._connection = None
        try:
            self._pq = _library()
        except (OSError, AttributeError) as error:
            raise Unable(str(error)) from None
        facts = {"dbname": url, "application_name": "llc", "client_encoding": "utf8"}
        names, values = _texts([*facts, None]), _texts([*facts.values(), None])
        self._connection = self._pq.PQconnectStartParams(names, values, 1)
        end, step = clock.monotonic() + _PATIENCE_S, _WRITING
        while step != _CONNECTED:
            if step not in (_READING, _WRITING):
                self.close()
                raise Unable("refused")
            self._wait(pipes.POLLIN if step == _READING else pipes.POLLOUT, end)
            step = self._pq.PQconnectPoll(self._connection)
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
        self, words: str, values: Sequence[Any] | Mapping[str, Any] | None = None, **how: bool
    ) -> Rows:
        """As psycopg does; all results are in binary form, and no statement is prepared."""
        text, given = (words, []) if values is None else _numbered(words, values)
        sent = self._pq.PQsendQueryParams(
            self._connection,
            text.encode(),
            len(given),
            None,
            _texts(list(map(_literal, given))),
            None,
            None,
            1,
        )
        if not sent:
            raise Unable(text)
        rows, is_right = list[tuple[Any, ...]](), True
        while True:
            while self._pq.PQisBusy(self._connection):
                self._wait(pipes.POLLIN, None)
                if not self._pq.PQconsumeInput(self._connection):
                    raise Unable("lost")
            result = self._pq.PQgetResult(self._connection)
            if not result:
                break
            try:
                status = self._pq.PQresultStatus(result)
                is_right &= status in (_DONE, _ROWS)
                if status == _ROWS:
                    rows = self._rows(result)
            finally:
                self._pq.PQclear(result)
        if not is_right:
            raise Unable(text)
        return Rows(rows)

    def _rows(self, result: Any) -> list[tuple[Any, ...]]:
        pq, columns = self._pq, range(self._pq.PQnfields(result))
        try:
            reads = [_READ[pq.PQftype(result, column)] for column in columns]
            return [
                tuple(
                    None
                    if pq.PQgetisnull(result, row, column)
                    else read(
                        ctypes.string_at(
                            pq.PQgetvalue(result, row, column), pq.PQgetlength(result, row, column)
                        )
                    )
                    for column, read in zip(columns, reads, strict=True)
                )
                for row in range(pq.PQntuples(result))
            ]
        except (KeyError, OverflowError, UnicodeError) as error:
            raise Unable(repr(error)) from None

    def _wait(self, event: int, end: float | None) -> None:
        """Wait until the socket is ready. Raises Unable at the time `end`."""
        poller = pipes.poll()
        try:
            poller.register(self._pq.PQsocket(self._connection), event)
        except (OSError, ValueError):
            raise Unable("no socket") from None
        left = None if end is None else max(0.0, 1000 * (end - clock.monotonic()))
        if not poller.poll(left):
            raise Unable("too late")

    def close(self) -> None:
        if self._connection is not None:
            self._pq.PQfinish(self._connection)
            self._connection = None

    def __del__(self) -> None:
        self.close()


def _texts(values: Sequence[str | None]) -> Any:
    """Values as C strings. Raises Unable."""
    if any(value is not None and "\0" in value for value in values):
        raise Unable("a null character")
    try:
        return (_TEXT * len(values))(*(None if value is None else value.encode() for value in values))
    except UnicodeError as error:
        raise Unable(str(error)) from None


def _numbered(words: str, values: Sequence[Any] | Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A statement with `$1`, `$2` … for `%s` and `%(name)s`, and their values in this order."""
    first, *parts = words.split("%")
    text, given, doubled = [first], list[Any](), False
    for part in parts:
        if doubled:
            text.append(part)
            doubled = False
        elif not part:
            text.append("%")
            doubled = True
        elif part.startswith("(") and isinstance(values, Mapping):
            name, _, rest = part[1:].partition(")s")
            given.append(values[name])
            text.append(f"${len(given)}{rest}")
        elif part.startswith("s") and not isinstance(values, Mapping):
            given.append(values[len(given)])
            text.append(f"${len(given)}{part[1:]}")
        else:
            raise Unable(words)
    return "".join(text), given


def _literal(value: Any) -> str | None:
    """A value in the text form of PostgreSQL. Raises Unable."""
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
    raise Unable(type(value).__name__)


def _element(value: Any) -> str:
    text = _literal(value)
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
