"""The host protocol: another implementation can replace the operating system."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace

import pytest

from llc.runtime.host import clock, files, protocol
from llc.runtime.host.effect_context import Interrupt


def host_of(**changed: object) -> SimpleNamespace:
    """The real host with other functions, by `part_function`."""
    parts = {
        part: SimpleNamespace(
            **{name: getattr(module, name) for name in protocol.PARTS[part] if hasattr(module, name)}
        )
        for part, module in protocol.MODULES.items()
    }
    for name, function in changed.items():
        part, _, member = name.partition("_")
        setattr(parts[part], member, function)
    return SimpleNamespace(**parts)


def test_an_installed_host_is_used_and_taken_out_again() -> None:
    """Inside `installed` the module's functions are the other host's, afterwards those of the system."""
    real = clock.monotonic
    with protocol.installed(host_of(clock_monotonic=lambda: 7.0)):
        assert clock.monotonic() == 7.0
        assert files.open is open
    assert clock.monotonic is real


def test_a_wait_takes_its_time_from_the_host() -> None:
    """An `Interrupt` waits on the clock of the host: by a clock that leaps it is over at once."""
    moments = iter((0.0, 1e9))
    interrupt = Interrupt()
    with protocol.installed(host_of(clock_monotonic=lambda: next(moments))):
        interrupt.wait(1e6)
    interrupt.close()


@pytest.mark.parametrize("part", protocol.PARTS)
def test_a_part_names_all_functions_of_its_module(part: str) -> None:
    """What a module offers is a function of the protocol, a constant or a type, or built from those."""
    module = protocol.MODULES[part]
    derived = {
        "clock": {"timestamp", "gmtime", "localtime", "strftime", "strptime"},
        "files": {"fsdecode", "fsencode", "fspath", "DirEntry", "PathLike", "sync_names"},
        "pipes": {"listen"},
        "environment": {"environ", "environb", "node", "platform", "python_version", "sysconf"},
        "processes": {
            "TimeoutExpired", "WIFSTOPPED", "waitstatus_to_exitcode",
            "is_alive", "start",
        },
        "signals": {"Signals", "default_int_handler", "name_of", "number_of"},
        "terminal": {"TerminalError"},
        "threads": {"Empty"},
    }  # fmt: skip
    deferred = chain(*getattr(module, "_DEFERRED", {}).values())
    offered = {
        name
        for name in {*vars(module), *deferred} - {"load"}
        if callable(getattr(module, name, None)) and not name.startswith(("_", "SIG", "POSIX"))
    }
    assert offered - derived.get(part, set()) <= set(protocol.PARTS[part])
    assert all(hasattr(module, name) for name in protocol.PARTS[part])
