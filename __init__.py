"""llc: compile automation loops and workflows to states and jumps, and run them.

    image = llc.compile(text)          # a loop's YAML to an image
    machine = llc.Machine(image)       # performs nothing: asks for effects, takes results
    outcome = llc.run("fix-types")     # the whole of `llc run`, silently
    outcomes = llc.run_many(["lint", "types"])  # many in one process, as `llc batch`
    value = llc.evaluate("(+ 1 x)", {"x": 2})

The names below are the public API; everything is imported when first used, so that `import llc`
costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ir.diagnostics import CompileError, Diagnostic
    from .runtime.api import FlowError, compile, evaluate, run, run_many
    from .runtime.errors import UserError
    from .runtime.execution.outcome import Outcome
    from .runtime.store.journal import JournalError
    from .vm.code.image import Image, ImageError
    from .vm.machine.machine import Done, Effect, Machine, OutOfFuel, Waiting
    from .vm.values.faults import Fault

__all__ = [
    "CompileError",
    "Diagnostic",
    "Done",
    "Effect",
    "Fault",
    "FlowError",
    "Image",
    "ImageError",
    "JournalError",
    "Machine",
    "OutOfFuel",
    "Outcome",
    "UserError",
    "Waiting",
    "__version__",
    "compile",
    "evaluate",
    "run",
    "run_many",
]

_HOMES = {
    "CompileError": "ir.diagnostics",
    "Diagnostic": "ir.diagnostics",
    "Done": "vm.machine.machine",
    "Effect": "vm.machine.machine",
    "Fault": "vm.values.faults",
    "Image": "vm.code.image",
    "ImageError": "vm.code.image",
    "JournalError": "runtime.store.journal",
    "Machine": "vm.machine.machine",
    "OutOfFuel": "vm.machine.machine",
    "Outcome": "runtime.execution.outcome",
    "UserError": "runtime.errors",
    "Waiting": "vm.machine.machine",
    "FlowError": "runtime.api",
    "compile": "runtime.api",
    "evaluate": "runtime.api",
    "run": "runtime.api",
    "run_many": "runtime.api",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
