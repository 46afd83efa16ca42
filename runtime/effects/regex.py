"""Regular expressions without RE2: matching in a helper process, with limits.

The helper matches with Python's `re`, which can take exponential time, so it is killed after `LIMIT` seconds
and has limited memory. `regex_worker` accepts only patterns that RE2 also accepts.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from ...ir.regex import MatchLimit
from ..host import processes, threads
from ..host.effect_context import Interrupt
from ..host.screen import Screen
from ..models.helper_process import Worker, WorkerEnded, WorkerTimeout, bare_environment

# Timeout of one match, in seconds.
LIMIT = 5.0
NOTE = (
    "note: google-re2 is not installed: regular expressions are matched in a helper process, "
    f"slowly and for at most {LIMIT:g} s each (operating.md, Without RE2)\n"
)


class HelperMatch:
    """A match in a text. bounds: start and end of the match and of each group, in bytes."""

    def __init__(self, text: bytes, bounds: list[list[int] | None]) -> None:
        self._text = text
        self._bounds = bounds

    def start(self) -> int:
        return self._bounds[0][0] if self._bounds[0] else 0

    def end(self) -> int:
        return self._bounds[0][1] if self._bounds[0] else 0

    def group(self, number: int = 0) -> bytes | None:
        bounds = self._bounds[number]
        return None if bounds is None else self._text[bounds[0] : bounds[1]]

    def groups(self) -> tuple[bytes | None, ...]:
        return tuple(self.group(number) for number in range(1, len(self._bounds)))


class HelperExpression:
    """A compiled pattern that the helper matches; has the interface of RE2's patterns."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def search(self, text: bytes) -> HelperMatch | None:
        return next(iter(self._matches(text, limit=1)), None)

    def finditer(self, text: bytes) -> list[HelperMatch]:
        return self._matches(text)

    def _matches(self, text: bytes, limit: int | None = None) -> list[HelperMatch]:
        request = {"pattern": self._pattern, "text": text.decode("utf-8", "replace"), "max_matches": limit}
        return [HelperMatch(text, bounds) for bounds in _ask(request)["matches"]]


@lru_cache(maxsize=256)
def match_in_helper(pattern: str) -> HelperExpression:
    """Compile a pattern in the helper. Raises ValueError for an invalid pattern."""
    _ask({"pattern": pattern, "text": None})
    return HelperExpression(pattern)


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = _helper.ask({**request, "limit": LIMIT})
    except WorkerTimeout:
        raise MatchLimit(f"without RE2, a match may take {LIMIT:g} s, and this one takes longer") from None
    except WorkerEnded as error:
        raise MatchLimit(f"without RE2, the helper process of a match ended: {error}") from None
    if "error" in answer:
        raise (MatchLimit if "limit" in answer else ValueError)(answer["error"])
    return answer


class _Helper:
    """The helper of this process; started for the first match. A forked process starts its own helper."""

    def __init__(self) -> None:
        self._lock = threads.Lock()
        self._worker: Worker | None = None
        self._owner = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._worker is None:
                Screen(sys.stderr).write(NOTE)
            if self._worker is None or self._owner != processes.getpid():
                self._worker = Worker("effects.regex_worker", bare_environment())
                self._owner = processes.getpid()
            return self._worker.ask(request, LIMIT, Interrupt())


_helper = _Helper()
