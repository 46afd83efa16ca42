"""Verifier of untrusted images: checks the bytecode, then the program that it lifts to.

A separate module, because a run of an already verified image does not import the verifier.
"""

from __future__ import annotations

from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.nodes import Program
from ...ir.python_internals import CollectorRests
from ...ir.verify import verify_runnable
from ...vm.code.image import Image
from ...vm.code.lift import lift
from ...vm.code.verify import verify_image as verify_code


def verify_image(image: Image) -> None:
    """Raise CompileError for an image that the compiler cannot have produced."""
    with CollectorRests():
        errors = [diagnostic for diagnostic in verify_code(image) if diagnostic.is_error]
        if not errors:
            errors = _errors_of(lift(image, places=False))
            if errors:  # lift again with places, which only diagnostics need
                errors = _errors_of(lift(image)) or errors
    if errors:
        raise CompileError(errors)


def _errors_of(program: Program) -> list[Diagnostic]:
    return [diagnostic for diagnostic in verify_runnable(program) if diagnostic.is_error]
