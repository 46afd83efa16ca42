"""The interface to the operating system: files, clock, processes and everything else that is outside.

Only modules of this package import `os` (except `os.path`), `time`, `subprocess`, `threading`, `signal`,
`select`, `fcntl`, `termios`, `tempfile`, `shutil` and their like; `tests/test_layers.py` enforces it.

One module per concern: `files`, `pipes`, `clock`, `processes`, `signals`, `threads`, `environment`,
`terminal`. Names are those of the standard library (`files.fdatasync` is `os.fdatasync`); what differs is
documented in the module. Import the module and call through it:

    from ..host import clock, files

    began = clock.monotonic()
    with files.open(path, "rb") as file: ...

Never import a function by name (`from ..host.clock import monotonic`) and never keep one in a default
argument or a constant: `protocol.installed` replaces the attributes of these modules by those of another
host, for example a simulation, and such a copy would still be the real one. Because the attributes are
the functions of the standard library themselves, a call costs the same as a direct one.

A handle (`files.open_handle`, `pipes.pipe`) is an opaque int: pass it to functions of this package only.

What must not be here: anything that knows of runs, journals, effects or programs. The other modules are
small shared parts of the lowest layer: errors and exit codes, masking of secrets, the output screen, paths of
a project, the context of an effect.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(namespace: dict[str, Any], sources: dict[str, tuple[str, ...]], name: str) -> Any:
    """Import `name` from the module that has it into `namespace`; for a module's `__getattr__`.

    For names that few commands need, of `fcntl`, `select`, `threading` and so on: loading them all takes
    several milliseconds. sources: module → the names that are taken from it. Raises AttributeError.
    """
    for module, names in sources.items():
        if name in names:
            loaded = __import__(module)  # `importlib` takes longer to load than most of them
            for one in names:
                namespace.setdefault(one, getattr(loaded, one))
            return namespace[name]
    raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
