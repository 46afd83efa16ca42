"""Verification of an image from outside: its bytecode, then the program that it lifts to.

A module of its own because a run of a known image starts without the verifier.
"""

from __future__ import annotations

from ...ir.diagnostics import CompileError
from ...ir.python_internals import CollectorRests
from ...ir.verify import verify_runnable
from ...vm.code.image import Image
from ...vm.code.lift import lift
from ...vm.code.verify import verify_image as verify_code


def verify_image(image: Image) -> None:
    """Raise CompileError for an image that the compiler cannot have made."""
    with CollectorRests():
        found = [diagnostic for diagnostic in verify_code(image) if diagnostic.is_error]
        if not found:
            found = [
                diagnostic for diagnostic in verify_runnable(lift(image, places=False)) if diagnostic.is_error
            ]
            if found:  # lifted again with places, which only diagnostics need
                found = [
                    diagnostic for diagnostic in verify_runnable(lift(image)) if diagnostic.is_error
                ] or found
    if found:
        raise CompileError(found)
