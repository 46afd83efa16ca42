"""What llc takes from the Python interpreter itself, for speed at the start and later.

A run of a compiled image takes less time than Python needs to load `re`, `contextlib` and `collections`. So
its modules take from here what they need of those: types that are written in C and are there without them, a
`re` that is loaded when it is first used, patterns that are compiled then, `suppress`. The digests are those
of `hashlib` without OpenSSL. The interpreter's own modules are private, so where one is missing the public
one is taken.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False


class DeferredModule:
    """A module that is loaded when the first of its names is used, which may raise ImportError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(__import__(self._name), name)
        return value


if TYPE_CHECKING:
    import re
    from collections import deque
    from functools import partial
    from hashlib import blake2b, sha256
    from operator import length_hint
    from types import TracebackType
    from typing import Any
else:
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    try:
        from _sha2 import sha256  # since 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256
    try:
        from _collections import deque
        from _functools import partial
        from _operator import length_hint
    except ImportError:
        from collections import deque
        from functools import partial
        from operator import length_hint

    re = DeferredModule("re")

__all__ = [
    "CollectorRests",
    "DeferredModule",
    "blake2b",
    "deque",
    "import_module",
    "late_pattern",
    "length_hint",
    "partial",
    "re",
    "sha256",
    "suppress",
]


class _LatePattern:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(re.compile(self.pattern), name)
        return value


def late_pattern(text: str) -> re.Pattern[str]:
    """A regular expression that is compiled when it is first used: most commands use few of theirs."""
    return _LatePattern(text)  # type: ignore[return-value]


def import_module(name: str) -> Any:
    """As `importlib.import_module`, for absolute names."""
    __import__(name)
    return sys.modules[name]


class suppress:
    """As `contextlib.suppress`."""

    __slots__ = ("_errors",)

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return kind is not None and issubclass(kind, self._errors)


class CollectorRests:
    """Context manager: disable the garbage collector inside, and restore its previous state.

    For work that makes many objects which are kept, where collecting would take half of the time.
    """

    def __enter__(self) -> None:
        self._was_collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was_collecting:
            gc.enable()
