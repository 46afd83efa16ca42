"""Journal codec: lossless encoding of an event as a line (`spec/events.md`).

Owns the line with its checksum, and the encoding of values that JSON cannot represent or that must not be on
a
line: large texts, secrets, NaN and infinity, keys that begin with `$`. Must not contain: the kinds of events
and their fields (`events`).
"""

from __future__ import annotations

import sys
import zlib

from ...ir import light_json
from ...ir.light_json import finite_parts
from ...ir.python_internals import re, sha256
from ..host import secrets as masking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Fields of every line, which event classes do not declare: kind, timestamp and checksum.
KIND, TIME, CHECKSUM = "event", "ts", "crc"
RESERVED = frozenset((KIND, TIME, CHECKSUM))
# A longer string, in bytes, is stored as a blob: once, in its own file, named by the hash of its content.
BLOB_LIMIT = 32 * 1024
CRC_TAIL = len(',"crc":"00000000"}')
CRC_END = len('00000000"}\n')
# Position of the timestamp of a line, in bytes from its end.
_TIME_END = len('"') + CRC_TAIL + len("\n")
_TIME_START = _TIME_END + len("2024-01-15T10:30:00.000Z")
_RECURSION_LIMIT = 20_000

# --- one event, one line ----------------------------------------------------------------------


def _deeply(action: Callable[[Any], Any], value: Any) -> Any:
    """Return `action(value)` with a higher recursion limit, after a RecursionError."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    try:
        return action(value)
    finally:
        sys.setrecursionlimit(limit)


def to_json(value: Any) -> bytes:
    """Encode as compact JSON in UTF-8; escape strings that UTF-8 cannot represent (lone surrogates)."""
    try:
        return _encoded(value)
    except RecursionError:
        return _deeply(_encoded, value)  # type: ignore[no-any-return]


def _encoded(value: Any) -> bytes:
    try:
        return light_json.dumps_compact(value).encode()
    except UnicodeEncodeError:
        return light_json.dumps_compact_ascii(value).encode()


def seal(event: dict[str, Any]) -> bytes:
    """Return the line of an event, with checksum and newline."""
    return seal_json(to_json(event)[:-1])


def whole_event(kind: str, fields: dict[str, Any], ts: str) -> dict[str, Any]:
    """Return the object on the line of an event, without the checksum."""
    return {KIND: kind, **fields, TIME: ts}


def seal_plain(kind: str, fields: dict[str, Any], ts: str) -> bytes | None:
    """Fast path of `seal` for an event that `pack` would not change; None if `pack` might change it."""
    if masking.known.texts:
        return None
    try:
        text = "".join(finite_parts(fields, 0))
        if len(text) > BLOB_LIMIT // 4 or "$" in text:
            return None
        head = _heads.get(kind) or _heads.setdefault(kind, light_json.dumps_compact({KIND: kind})[:-1])
        body = (f'{head},{text[1:-1]},"ts":"{ts}"' if fields else f'{head},"ts":"{ts}"').encode()
    except (RecursionError, TypeError, ValueError):
        return None
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


# Cache of the beginnings of lines, by kind of event.
_heads: dict[str, str] = {}


def is_line_of(line: bytes, kind: str, fields: dict[str, Any]) -> bool:
    """Fast path: whether a line is intact and identical to the line of a note with these fields.

    If False, the caller must decode the line and pack the fields to compare them.
    """
    ts = line[-_TIME_START:-_TIME_END].decode("ascii", "replace")
    return '"' not in ts and "\\" not in ts and line == seal_plain(kind, fields, ts)


def seal_json(body: bytes) -> bytes:
    """Return the line for the JSON of an event without its closing brace."""
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def _crc_tail(body: bytes) -> bytes:
    return b',"crc":"%08x"}' % zlib.crc32(body)


def unseal(line: bytes) -> dict[str, Any] | None:
    """Decode a line without its newline; None if the line is damaged."""
    body = line[:-CRC_TAIL]
    if line[-CRC_TAIL:] != _crc_tail(body):
        return None
    try:
        try:
            event = light_json.loads(body + b"}")
        except RecursionError:
            event = _deeply(light_json.loads, body + b"}")
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get(KIND), str) else None


# --- timestamps -------------------------------------------------------------------------------

# Compiled at first use: a new run reads no timestamps.
_TIME = r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z"


def seconds(ts: Any) -> float | None:
    """Convert a timestamp of a journal to seconds since 1970; None for any other value."""
    global _second, _latest
    if ts == _latest[0]:
        return _latest[1]
    if not isinstance(ts, str):
        return None
    prefix, second = _second
    milli = ts[20:23]
    if ts[:20] == prefix and ts[23:] == "Z" and milli.isascii() and milli.isdecimal():
        _latest = ts, second + int(milli) / 1000
        return _latest[1]
    match = re.fullmatch(_TIME, ts)
    if match is None:
        return None
    date = match[1], match[2], match[3]
    if date not in _days:
        _days.clear()
        _days[date] = _day(*date)
    day = _days[date]
    if day is None:
        return None
    second = day * 86_400 + int(match[4]) * 3600 + int(match[5]) * 60 + int(match[6])
    _second = ts[:20], second
    return second + int(match[7]) / 1000


# Cache of the latest second: timestamp without milliseconds, and seconds since 1970.
_second: tuple[str, int] = "", 0
# Cache of the latest timestamp and its value: most events of a step have the same millisecond.
_latest: tuple[str, float | None] = "", None
# Cache of `_day` for the last date: most events of a journal are from the same day.
_days: dict[tuple[str, str, str], int | None] = {}


def _day(year_text: str, month_text: str, day_text: str) -> int | None:
    """Days since 1970 in the Gregorian calendar. `calendar` and `datetime` take milliseconds to import."""
    year, month, day = int(year_text), int(month_text), int(day_text)
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if is_leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not (year and 1 <= month <= 12 and 1 <= day <= lengths[month - 1]):
        return None
    before = year - 1
    leap_days = before // 4 - before // 100 + before // 400
    return before * 365 + leap_days + sum(lengths[: month - 1]) + day - 719_163


# --- values that JSON cannot represent, or must not ------------------------------------------


def pack(value: Any, store: Callable[[str], Any]) -> Any:
    """Encode a value for a line: long strings by `store`, secrets, NaN and infinity, and keys with `$`.

    Iterative, because an answer of a model or of jq may be nested deeper than Python's recursion limit.
    """
    if not needs_packing(value):
        return value
    secrets = masking.known
    root: list[Any] = [value]
    stack: list[tuple[Any, Any]] = [(root, 0)]
    while stack:
        holder, key = stack.pop()
        item = holder[key]
        if isinstance(item, str):
            if secrets and secrets.occur_in(item):
                parts = secrets.split(item)
                holder[key] = {"$secret": [store(part) if _is_long(part) else part for part in parts]}
            elif _is_long(item):
                holder[key] = store(item)
        elif isinstance(item, float):
            if item != item or item in (float("inf"), float("-inf")):
                holder[key] = {"$float": repr(item)}
        elif isinstance(item, dict):
            copy = {secrets.mask(name): entry for name, entry in item.items()} if secrets else dict(item)
            holder[key] = {"$map": copy} if any(name.startswith("$") for name in copy) else copy
            stack.extend((copy, name) for name in copy)
        elif isinstance(item, list | tuple):
            items = list(item)
            holder[key] = items
            stack.extend((items, index) for index in range(len(items)))
    return root[0]


def digest_only(text: str) -> dict[str, Any]:
    """Return the reference to a long text without storing the text."""
    data = text.encode("utf-8", "surrogatepass")
    return {"$blob": sha256(data).hexdigest(), "size": len(data)}


def _is_long(text: str) -> bool:
    if len(text) > BLOB_LIMIT or len(text) * 4 <= BLOB_LIMIT:  # a character is one to four bytes
        return len(text) > BLOB_LIMIT
    return len(text.encode("utf-8", "surrogatepass")) > BLOB_LIMIT


def needs_packing(value: Any) -> bool:
    """Whether `pack` might change a value; False for most values."""
    secrets = masking.known if masking.known else None
    found = [value]
    for item in found:
        kind = type(item)
        if kind is str:
            if len(item) > BLOB_LIMIT // 4 or (secrets is not None and secrets.occur_in(item)):
                return True
        elif kind is dict:
            names = "".join(item)
            if "$" in names or (secrets is not None and secrets.occur_in(names)):
                return True
            found += item.values()
        elif kind is list or kind is tuple:
            found += item
        elif kind is float:
            if item - item != 0:
                return True
        elif not (kind is int or kind is bool or item is None):
            return True
    return False


def unpack(
    value: Any, fetch: Callable[[str, int], str], secret: Callable[[list[str]], str] | None = None
) -> Any:
    """Inverse of `pack`. Raises the exceptions of `fetch` (BlobError).

    secret: joins the parts of a text with secrets; `masking.hidden` for display. Default: insert the values
    of the secrets; raises UserError if a secret is not set.
    """
    secret = secret or masking.known.join
    root: list[Any] = [value]
    stack: list[tuple[Any, Any]] = [(root, 0)]
    while stack:
        holder, key = stack.pop()
        item = holder[key]
        if isinstance(item, list):
            holder[key] = items = list(item)
            stack.extend((items, index) for index in range(len(items)))
        elif isinstance(item, dict):
            if isinstance(item.get("$blob"), str):
                holder[key] = fetch(item["$blob"], item.get("size", -1))
                continue
            if isinstance(item.get("$secret"), list):
                texts = [unpack(part, fetch) if isinstance(part, dict) else part for part in item["$secret"]]
                holder[key] = secret(texts)
                continue
            if isinstance(item.get("$float"), str):
                holder[key] = float(item["$float"])
                continue
            inner = item.get("$map", item)
            holder[key] = copy = dict(inner if isinstance(inner, dict) else item)
            stack.extend((copy, name) for name in copy)
    return root[0]


def is_same(then: Any, now: Any) -> bool:
    """Whether two packed values are equal, even if different secrets were known when they were packed."""
    one, other = to_json(then), to_json(now)
    return one == other or (
        bool(masking.known) and to_json(_deeply(_masked, then)) == to_json(_deeply(_masked, now))
    )


def _masked(packed: Any) -> Any:
    if isinstance(packed, str):
        return masking.masked(packed)
    if isinstance(packed, list):
        return [_masked(item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if isinstance(packed.get("$secret"), list):
        return masking.masked(masking.hidden(packed["$secret"]))
    return {masking.masked(name): _masked(item) for name, item in packed.items()}


def json_text(value: Any, indent: int | None = None) -> str:
    """Encode data as the JSON that commands print.

    Numbers that JSON cannot represent become the strings "Infinity", "-Infinity" and "NaN".
    """
    import json

    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_strict(value), indent=indent, ensure_ascii=False, allow_nan=False, default=str)


def strict_json(value: Any) -> bytes:
    """Encode like `to_json` for other programs: NaN and infinity become strings, as in `json_text`."""
    data = to_json(value)
    return to_json(_deeply(_strict, value)) if b"NaN" in data or b"Infinity" in data else data


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return light_json.dumps(value) if isinstance(value, float) and value - value != 0.0 else value
