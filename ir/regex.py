"""Regular expressions of programs: RE2's, which takes time linear in the text for every pattern.

google-re2 has no wheel for musl (Alpine). Where it is not installed, the package `llc` gives another engine,
which matches in a helper process with limits (`runtime/effects/regex.py`).
"""

from __future__ import annotations

from .python_internals import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    class Match(Protocol):
        """One match; offsets are in bytes."""

        def start(self) -> int: ...
        def end(self) -> int: ...
        def group(self, number: int = 0, /) -> bytes | None: ...
        def groups(self) -> tuple[bytes | None, ...]: ...

    class Expression(Protocol):
        """A compiled pattern for texts in UTF-8. Without RE2 both methods raise MatchLimit."""

        def search(self, text: bytes, /) -> Match | None: ...
        def finditer(self, text: bytes, /) -> Iterable[Match]: ...


class MatchLimit(ValueError):
    """A match without RE2 took too much time or memory."""


def encoded(text: str) -> bytes:
    """A text as expressions take it."""
    return text.encode("utf-8", "replace")


def load_re2() -> Any:
    """The module `re2`, or None where it is not installed."""
    try:
        import re2  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    return re2


def compiled(pattern: str) -> Expression:
    """The expression of a pattern. ValueError, with a message for people, where it is none."""
    re2 = load_re2()
    if re2 is None:
        engine: Callable[[str], Expression] = import_module(__package__.rpartition(".")[0]).match_in_helper
        return engine(pattern)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(encoded(pattern), options)  # type: ignore[no-any-return, unused-ignore]
    except re2.error as error:
        said = error.args[0] if error.args else "invalid"
        raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None
