"""The public machine (`llc.Machine`): interprets, then runs translated code once a program is warm.

`vm/machine` does not know the compiled tier; this subclass provides it. Code that creates a machine for
execution uses this class, and code that only accepts machines is typed with `machine.machine.Machine`.
"""

from __future__ import annotations

from .code.image import Image
from .machine import machine
from .values.values import FunctionValue


class Machine(machine.Machine):
    """A run of an image, with the compiled tier (`machine.machine.Machine` documents the arguments)."""

    __slots__ = ()

    def translate(self) -> machine.CompiledTier | str:
        # Deferred: most runs end before they are warm, and greenlet and the translator are slow to import.
        from .jit.codegen.translate import obstacle
        from .jit.runtime.tier import DirectTier

        return obstacle(self.image) or DirectTier(self)


def start(image: Image, function: FunctionValue, fuel: int | None = None, tier: str = "auto") -> Machine:
    """A machine that calls a function value of the image, whose entry is a `code.linking.Linker`'s."""
    made = Machine(image, [None], fuel, tier)
    made.calls[0].slots[0] = function
    return made
