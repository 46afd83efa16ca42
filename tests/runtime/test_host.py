"""The host protocol: another implementation can replace the operating system."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace

import pytest

from llc.runtime.host import clock, files, protocol
from llc.runtime.host.effect_context import Interrupt


def host_of(**replacements: object) -> SimpleNamespace:
    """The real host with some functions replaced; keywords have the form `part_function`."""
    parts = {
        part: SimpleNamespace(
            **{name: getattr(module, name) for name in protocol.PARTS[part] if hasattr(module, name)}
        )
        for part, module in protocol.MODULES.items()
    }
    for name, function in replacements.items():
        part, _, member = name.partition("_")
        setattr(parts[part], member, function)
    return SimpleNamespace(**parts)


def test_installed_host_is_used_and_restored() -> None:
    """Inside `installed` the module has the functions of the other host, afterwards those of the system."""
    real = clock.monotonic
    with protocol.installed(host_of(clock_monotonic=lambda: 7.0)):
        assert clock.monotonic() == 7.0
        assert files.open is open
    assert clock.monotonic is real


def test_wait_uses_the_clock_of_the_host() -> None:
    """An `Interrupt` uses the clock of the host: with a clock that jumps, the wait ends at once."""
    moments = iter((0.0, 1e9))
    interrupt = Interrupt()
    with protocol.installed(host_of(clock_monotonic=lambda: next(moments))):
        interrupt.wait(1e6)
    interrupt.close()


@pytest.mark.parametrize("part", protocol.PARTS)
def test_protocol_names_all_functions_of_a_module(part: str) -> None:
    """Every public function of a module belongs to the protocol or is derived from its functions."""
    module = protocol.MODULES[part]
    derived = {
        "clock": {"timestamp", "gmtime", "localtime", "strftime", "strptime"},
        "files": {"fsdecode", "fsencode", "fspath", "DirEntry", "PathLike", "sync_names"},
        "pipes": {"listen"},
        "environment": {"environ", "environb", "node", "platform", "python_version", "sysconf"},
        "processes": {
            "TimeoutExpired", "WIFSTOPPED", "waitstatus_to_exitcode",
            "is_alive", "start", "exit_handle",
        },
        "signals": {"Signals", "default_int_handler", "name_of", "number_of"},
        "terminal": {"TerminalError"},
        "threads": {"Empty"},
    }  # fmt: skip
    deferred = chain(*getattr(module, "_DEFERRED", {}).values())
    public_names = {
        name
        for name in {*vars(module), *deferred} - {"load"}
        if callable(getattr(module, name, None)) and not name.startswith(("_", "SIG", "POSIX"))
    }
    assert public_names - derived.get(part, set()) <= set(protocol.PARTS[part])
    assert all(hasattr(module, name) for name in protocol.PARTS[part])
