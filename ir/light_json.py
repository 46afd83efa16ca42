"""JSON without the package `json`, which takes longer to load than a small run.

The parts in C of that package are private to the interpreter, so where one is missing or differs, `json`
itself is taken. It is also taken for every text that they do not accept, so that errors are its own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = [
    "dumps",
    "dumps_ascii",
    "dumps_compact",
    "dumps_compact_ascii",
    "dumps_indented",
    "finite_parts",
    "loads",
]


def _refuse(value: object) -> None:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _parts(
    is_ascii: bool, comma: str, colon: str, has_nan: bool = True
) -> Callable[[Any, int], Iterable[str]]:
    """A function from data, and 0, to the parts of its JSON. A cycle raises RecursionError.

    has_nan: whether it accepts NaN and infinity, which JSON does not have; else they raise ValueError.
    """
    try:
        from _json import encode_basestring, encode_basestring_ascii, make_encoder

        quote = encode_basestring_ascii if is_ascii else encode_basestring
        made = make_encoder(None, _refuse, quote, None, colon, comma, False, False, has_nan)
    except (ImportError, TypeError):
        from json import JSONEncoder

        encode = JSONEncoder(
            ensure_ascii=is_ascii, separators=(comma, colon), check_circular=False, allow_nan=has_nan
        ).encode
        return lambda value, indent: (encode(value),)
    return made


def _encoder(is_ascii: bool, comma: str, colon: str) -> Callable[[Any], str]:
    """A function from data to JSON; see `_parts`."""
    made = _parts(is_ascii, comma, colon)
    return lambda value: "".join(made(value, 0))


dumps = _encoder(False, ", ", ": ")
dumps_ascii = _encoder(True, ", ", ": ")
dumps_compact = _encoder(False, ",", ":")
dumps_compact_ascii = _encoder(True, ",", ":")
# For `"".join(finite_parts(value, 0))`: compact, without NaN, and without a call of Python's own.
finite_parts = _parts(False, ",", ":", has_nan=False)


def dumps_indented(value: Any, margin: str = "\n") -> str:
    """Data as JSON with one entry on each line, indented by two spaces; `margin`: what begins a line."""
    inner = margin + "  "
    if value and isinstance(value, dict):
        # The encoder writes the key, which need not be a string.
        rows = [dumps({key: 0})[1:-2] + dumps_indented(item, inner) for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(rows)}{margin}}}"
    if value and isinstance(value, list | tuple):
        rows = [dumps_indented(item, inner) for item in value]
        return f"[{inner}{f',{inner}'.join(rows)}{margin}]"
    return dumps(value)


class _Settings:
    """What the scanner takes from a `json.JSONDecoder`."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.__getitem__


def _scanner() -> Callable[[str, int], tuple[Any, int]]:
    """A function from a text and an offset in it to the data there, and the offset of its end."""
    scan: Any
    try:
        from _json import make_scanner

        scan = make_scanner(_Settings)  # type: ignore[arg-type]
    except (ImportError, TypeError, AttributeError):
        from json import JSONDecoder

        scan = JSONDecoder().raw_decode
    return scan  # type: ignore[no-any-return]


_scan = _scanner()


def loads(text: str | bytes) -> Any:
    """The data of a JSON text, as `json.loads`. Raises ValueError, RecursionError."""
    try:
        decoded = text.decode("utf-8", "surrogatepass") if isinstance(text, bytes) else text
        value, end = _scan(decoded, 0)
        if end == len(decoded) or not decoded[end:].strip(" \t\n\r"):
            return value
    except (StopIteration, ValueError, SystemError):
        pass  # SystemError: its own error is defined in a module that is not loaded
    import json

    return json.loads(text)
