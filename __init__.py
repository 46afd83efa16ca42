"""llc: compile automation loops and workflows to states and jumps, and run them.

    image = llc.compile(text)          # a loop's YAML to an image
    machine = llc.Machine(image)       # requests effects and takes their results; performs none itself
    outcome = llc.run("fix-types")     # as `llc run`, without output
    outcomes = llc.run_many(["lint", "types"])  # several runs in one process, as `llc batch`
    value = llc.evaluate("(+ 1 x)", {"x": 2})

`__all__` lists the public API. Each name is imported on first use, so that `import llc` is fast.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ir.diagnostics import CompileError, Diagnostic
    from .runtime.effects.scripted_world import NoRule
    from .runtime.host.effect_context import Exited
    from .runtime.host.errors import UserError
    from .runtime.journal.journal import JournalError
    from .runtime.journal.outcome import Outcome
    from .runtime.launch.api import run, run_many
    from .runtime.launch.program_api import FlowError, compile, evaluate
    from .vm.code.image import Image, ImageError
    from .vm.machine.machine import Done, Effect, OutOfFuel, Waiting
    from .vm.tiered import Machine
    from .vm.values.faults import Fault

__all__ = [
    "CompileError",
    "Diagnostic",
    "Done",
    "Effect",
    "Exited",
    "Fault",
    "FlowError",
    "Image",
    "ImageError",
    "JournalError",
    "Machine",
    "NoRule",
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

# Public name: module that defines it.
_MODULES = {
    "CompileError": "ir.diagnostics",
    "Diagnostic": "ir.diagnostics",
    "Done": "vm.machine.machine",
    "Effect": "vm.machine.machine",
    "Exited": "runtime.host.effect_context",
    "Fault": "vm.values.faults",
    "Image": "vm.code.image",
    "ImageError": "vm.code.image",
    "JournalError": "runtime.journal.journal",
    "Machine": "vm.tiered",
    "NoRule": "runtime.effects.scripted_world",
    "OutOfFuel": "vm.machine.machine",
    "Outcome": "runtime.journal.outcome",
    "UserError": "runtime.host.errors",
    "Waiting": "vm.machine.machine",
    "FlowError": "runtime.launch.program_api",
    "compile": "runtime.launch.program_api",
    "evaluate": "runtime.launch.program_api",
    "match_in_helper": "runtime.effects.regex",  # for `ir/regex.py`
    "run": "runtime.launch.api",
    "run_many": "runtime.launch.api",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
