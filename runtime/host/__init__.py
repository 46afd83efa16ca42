"""Interface to the operating system: files, clock, processes and all other system services.

Only modules of this package import `os` (except `os.path`), `time`, `subprocess`, `threading`, `signal`,
`select`, `fcntl`, `termios`, `tempfile`, `shutil` and similar modules; `tests/test_layers.py` enforces this.

There is one module for each concern: `files`, `pipes`, `clock`, `processes`, `signals`, `threads`,
`environment`, `terminal`. Functions have the names of the standard library (`files.fdatasync` is
`os.fdatasync`); each module documents its differences. Import the module and call its functions as
attributes:

    from ..host import clock, files

    started_at = clock.monotonic()
    with files.open(path, "rb") as file: ...

Never import a function by name (`from ..host.clock import monotonic`) and never store one in a default
argument or a constant: `protocol.installed` replaces the attributes of these modules by those of another
host, for example a simulation, but not such copies. The attributes are the functions of the standard library,
so a call has no overhead.

A handle (`files.open_handle`, `pipes.pipe`) is an opaque int: pass it to functions of this package only.

Must not contain: anything that depends on runs, journals, effects or programs. The remaining modules are
small shared parts of the lowest layer: errors and exit codes, masking of secrets, the output screen, paths of
a project, the context of an effect.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(namespace: dict[str, Any], sources: dict[str, tuple[str, ...]], name: str) -> Any:
    """Import `name` lazily into the namespace of a module; for the module's `__getattr__`.

    For names of modules that few commands need (`fcntl`, `select`, `threading` …): importing all of them
    takes several milliseconds. sources: module → names to import from it. Raises AttributeError.
    """
    for module, names in sources.items():
        if name in names:
            loaded = __import__(module)  # importing `importlib` is slower than most of these modules
            for attribute in names:
                namespace.setdefault(attribute, getattr(loaded, attribute))
            return namespace[name]
    raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
