"""Table of the values of a report: deduplicated, masked, bounded, as JSON that JavaScript reads exactly.

A step refers to a value by its index. Long texts are cut, with a note that names the file with the full text.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable
from typing import Any

from ..host import secrets
from ..journal.codec import strict_json
from ..journal.journal import BlobError
from ..recordings.recording import unpacked

# Limit of characters of a text; after MAX_TOTAL_BYTES of values, the lower limit. An output in a journal is
# shorter (`spec/effects.md`).
MAX_TEXT_CHARS = 2 << 20
MAX_TOTAL_BYTES = 64 << 20
_REDUCED_TEXT_CHARS = 4096
# Larger integers are not exact in JavaScript.
_MAX_EXACT_INTEGER = 2**53
_MAX_DEPTH = 64
_TOO_DEEP = "[nested too deep to be shown]"


class Values:
    """The values of a run, each as JSON in UTF-8 (`items`).

    fetch: returns a long text of the run by its hash and size. path_of: the file of a long text.
    is_bare: replace texts by their lengths.
    """

    def __init__(
        self, fetch: Callable[[str, int], str], path_of: Callable[[str], str], is_bare: bool = False
    ) -> None:
        self.items: list[bytes] = []
        self._fetch = fetch
        self._path_of = path_of
        self._is_bare = is_bare
        # Indices by the digest of the JSON, and by the digest of the value before masking.
        self._by_json: dict[bytes, int] = {}
        self._by_value: dict[tuple[bytes, bool], int] = {}
        self._size = 0

    def add_packed(self, packed: Any) -> int:
        """Add a value in the form of the journal; return its index."""
        try:
            value = unpacked(packed, self._fetch_shortened, secrets.hidden)
        except BlobError as error:
            value = f"[lost: {error}]"
        return self.add(value)

    def add(self, value: Any, is_content: bool = True) -> int:
        """Add plain data; return its index. is_content: False for names and commands, which are kept."""
        is_bare = self._is_bare and is_content
        # Most values, such as slots, are repeated: skip their preparation.
        key = _value_key(value)
        index = None if key is None else self._by_value.get((key, is_bare))
        if index is None:
            index = self._add(strict_json(self._prepare(value, is_bare)))
            if key is not None:
                self._by_value[key, is_bare] = index
        return index

    def _add(self, data: bytes) -> int:
        digest = _digest(data)
        index = self._by_json.get(digest)
        if index is None:
            index = self._by_json[digest] = len(self.items)
            self.items.append(data)
            self._size += len(data)
        return index

    def prepared(self, value: Any) -> Any:
        """Plain data, masked and bounded as in the table, without adding it."""
        return self._prepare(value, False)

    def _fetch_shortened(self, name: str, size: int) -> str:
        try:
            text = self._fetch(name, size)
        except BlobError as error:
            return f"[{size} bytes, lost: {error}]"
        return self._cut(secrets.masked(text), f"; the whole text is in {self._path_of(name)}")

    def _cut(self, text: str, hint: str = "") -> str:
        limit = MAX_TEXT_CHARS if self._size < MAX_TOTAL_BYTES else _REDUCED_TEXT_CHARS
        if len(text) <= limit:
            return text
        half = limit // 2 - 400  # leaves room for the note, so that the text is cut only once
        return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters are left out{hint}]\n{text[-half:]}"

    def _prepare(self, value: Any, is_bare: bool) -> Any:
        """A copy of a value, masked and bounded, that JavaScript reads exactly."""
        root: list[Any] = [value]
        stack: list[tuple[Any, Any, int]] = [(root, 0, 0)]
        while stack:
            holder, key, depth = stack.pop()
            item = holder[key]
            if isinstance(item, str):
                holder[key] = f"[{len(item):,} characters]" if is_bare and item else self._text(item)
            elif isinstance(item, bool) or item is None:
                pass
            elif isinstance(item, int | float):
                if not -_MAX_EXACT_INTEGER <= item <= _MAX_EXACT_INTEGER:  # also NaN and infinity
                    holder[key] = str(item)
            elif depth > _MAX_DEPTH:
                holder[key] = _TOO_DEEP
            elif isinstance(item, dict):
                holder[key] = copy = {secrets.masked(str(name)): entry for name, entry in item.items()}
                stack.extend((copy, name, depth + 1) for name in copy)
            elif isinstance(item, list | tuple):
                holder[key] = items = list(item)
                stack.extend((items, index, depth + 1) for index in range(len(items)))
            else:
                holder[key] = self._text(str(item))
        return root[0]

    def _text(self, text: str) -> str:
        return self._cut(secrets.masked(text))


def _digest(data: bytes) -> bytes:
    return data if len(data) <= 32 else hashlib.sha256(data).digest()


def _value_key(value: Any) -> bytes | None:
    """Key that identifies plain data including its types; None if the value cannot be marshalled.

    Marshal version 2 has no references, so that equal values have equal bytes.
    """
    try:
        return _digest(marshal.dumps(value, 2))
    except ValueError:  # nested too deep, or not plain data
        return None
