"""Table of the values of a report: each different one once, masked, bounded, as JSON that a page can read.

A step names a value by its index. Long texts are cut here, with a note that tells where the whole one is.
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

# Characters of one text that are kept, and of all texts, after which only the ends of long ones are kept. An
# output in a journal is shorter (`spec/effects.md`).
LONGEST = 2 << 20
MOST = 64 << 20
_SHORT = 4096
# Larger integers are not exact in JavaScript.
_EXACT = 2**53
_DEEPEST = 64
_TOO_DEEP = "[nested too deep to be shown]"


class Values:
    """The values so far, each as JSON in UTF-8.

    fetch: a long text of the run by its hash and size. where: the place of a long text, for the note about
    a cut. is_bare: texts are left out, except for their length.
    """

    def __init__(
        self, fetch: Callable[[str, int], str], where: Callable[[str], str], is_bare: bool = False
    ) -> None:
        self.items: list[bytes] = []
        self._fetch = fetch
        self._where = where
        self._is_bare = is_bare
        self._known: dict[bytes, int] = {}
        # By their values as they were given.
        self._seen: dict[tuple[bytes, bool], int] = {}
        self._size = 0

    def add_packed(self, packed: Any) -> int:
        """Add a value as it is in a journal; its index."""
        try:
            value = unpacked(packed, self._fetch_shortened, secrets.hidden)
        except BlobError as error:
            value = f"[lost: {error}]"
        return self.add(value)

    def add(self, value: Any, is_content: bool = True) -> int:
        """Add plain data; its index. is_content: not when it is a name or a command, which is always kept."""
        is_bare = self._is_bare and is_content
        # Most values were there before, as slots are: those need not be prepared again.
        raw = _raw(value)
        known = None if raw is None else self._seen.get((raw, is_bare))
        if known is None:
            known = self._add(strict_json(self._prepared(value, is_bare)))
            if raw is not None:
                self._seen[raw, is_bare] = known
        return known

    def _add(self, data: bytes) -> int:
        digest = _digest(data)
        known = self._known.get(digest)
        if known is None:
            known = self._known[digest] = len(self.items)
            self.items.append(data)
            self._size += len(data)
        return known

    def prepared(self, value: Any) -> Any:
        """Plain data as a value of the table is, without adding it."""
        return self._prepared(value, False)

    def _fetch_shortened(self, name: str, size: int) -> str:
        try:
            text = self._fetch(name, size)
        except BlobError as error:
            return f"[{size} bytes, lost: {error}]"
        return self._cut(secrets.masked(text), f"; the whole text is in {self._where(name)}")

    def _cut(self, text: str, where: str = "") -> str:
        most = LONGEST if self._size < MOST else _SHORT
        if len(text) <= most:
            return text
        half = most // 2 - 400  # with the note it is short enough, so that it is cut only once
        return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters are left out{where}]\n{text[-half:]}"

    def _prepared(self, value: Any, is_bare: bool) -> Any:
        """A value that JSON holds and JavaScript reads exactly, without secrets."""
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
                if not -_EXACT <= item <= _EXACT:  # NaN and infinity, too
                    holder[key] = str(item)
            elif depth > _DEEPEST:
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


def _raw(value: Any) -> bytes | None:
    """What tells plain data from other, with its types; None for what has no such form.

    Version 2 has no references, so that equal values are equal bytes.
    """
    try:
        return _digest(marshal.dumps(value, 2))
    except ValueError:  # nested too deep, or no plain data
        return None
