"""Deferred imports for modules whose names few commands need: `fcntl`, `select`, `threading` and so on.

Loading them all takes several milliseconds, more than `llc --help` does for itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(namespace: dict[str, Any], sources: dict[str, tuple[str, ...]], name: str) -> Any:
    """Import `name` from the module that has it into `namespace`; for a module's `__getattr__`.

    sources: module → the names that are taken from it. Raises AttributeError.
    """
    for module, names in sources.items():
        if name in names:
            loaded = __import__(module)  # `importlib` takes longer to load than most of them
            for one in names:
                namespace.setdefault(one, getattr(loaded, one))
            return namespace[name]
    raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
