"""From a source to a program: the entry of the frontend.

Reads, desugars, checks and lowers a loop or a flow under `CompileOptions`; IR text is read and verified. All
findings are reported together, in one `CompileError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.compile_options import DEFAULT_OPTIONS, IR_SUFFIX, CompileOptions
from ..ir.diagnostics import CompileError, Diagnostic
from ..ir.nodes import Program
from ..ir.python_internals import CollectorRests
from ..ir.records import frozen
from ..ir.spans import Source
from .loop.load import load, with_options
from .loop.schema import Loop
from .lower.loop import lower
from .lower.proof import proof_findings
from .source.files import is_flow_path, read_source, text_source

# A loop that calls no functions is compiled without the S-expression language.
if TYPE_CHECKING:
    from .core.nodes import Lambda


@frozen
class Compiled:
    """A program, the loop or the core of the flow it was lowered from, and the warnings."""

    program: Program
    loop: Loop | None
    diagnostics: tuple[Diagnostic, ...]
    core: Lambda | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.program.sources


def compile_file(path: str, options: CompileOptions = DEFAULT_OPTIONS) -> Compiled:
    """Compile the file of a loop or a flow, or read IR text. Raises CompileError with all findings."""
    return compile_source(read_source(path), options)


def compile_text(text: str, path: str = "<text>", options: CompileOptions = DEFAULT_OPTIONS) -> Compiled:
    """Compile the text of a loop or, depending on `path`, of a flow or of IR; diagnostics show `path`."""
    return compile_source(text_source(text, path), options)


def compile_source(source: Source, options: CompileOptions = DEFAULT_OPTIONS) -> Compiled:
    """Compile a source, depending on its path. Raises CompileError with all findings."""
    with CollectorRests():
        if source.path.endswith(IR_SUFFIX):
            return _read_ir(source, options)
        return _compile_flow(source, options) if is_flow_path(source.path) else _compile_loop(source, options)


def _read_ir(source: Source, options: CompileOptions) -> Compiled:
    from .link.ir_file import read_ir

    program, found = read_ir(source, options)
    return Compiled(program, None, tuple(found))


def _compile_loop(source: Source, options: CompileOptions) -> Compiled:
    loop, document, found = load(source, options, lambda made: with_options(made, options, source))
    if loop is not None and any(state.calls for state in loop.states.values()):
        from .link.flow import compile_calling_loop

        program = compile_calling_loop(loop, document, found, options)
    elif loop is None or any(diagnostic.is_error for diagnostic in found):
        raise CompileError(found, document.sources)
    else:
        program = lower(loop, document.sources, document.within, options.default_model)
    if loop.require == "proof":
        unproven = list(proof_findings(program, "error"))
        if unproven:
            raise CompileError([*found, *unproven], program.sources)
    return Compiled(program, loop, tuple(found))


def _compile_flow(source: Source, options: CompileOptions) -> Compiled:
    from .link.flow import compile_flow

    instead = "to set a variable: --arg name=value"
    given = (
        (options.max_iterations, "limit of iterations of its own", None),
        (options.context, "context variables", instead),
    )
    problems = [
        Diagnostic("bad-override", f"a flow has no {what}", help=help) for value, what, help in given if value
    ]
    if problems:
        raise CompileError(problems, [source])
    flow = compile_flow(source, options)
    if not flow.program.meta.loops and (options.llm_model or options.llm_enabled is False):
        message = "a flow that runs no loop has no model that evaluates its output"
        raise CompileError([Diagnostic("bad-override", message)], [source])
    return Compiled(flow.program, None, flow.diagnostics, flow.core)
