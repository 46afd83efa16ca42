"""Compilation of programs that contain flows: reading, expansion, linking, lowering; library functions of
`stdlib/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from posixpath import basename, splitext

from ...ir.builder import freeze
from ...ir.compile_options import DEFAULT_OPTIONS, LIBRARY_FOLDER, CompileOptions
from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.nodes import Program
from ...ir.records import frozen
from ...ir.spans import Source
from ...stdlib import read_text
from ..core import nodes as core
from ..core.library import LIBRARY, Defined
from ..core.program_parts import LoopPart
from ..expand.expansion import Environment
from ..expand.program import expand, expand_library
from ..loop.schema import Loop, model_name
from ..lower.program import lower_calling_loop, lower_flow
from ..sexp.reader import read
from ..source.document import Document
from ..source.files import EXPRESSION_PATH, text_source
from .error_recovery import is_worth_expanding, reliable_findings
from .linker import Linker, imported_source


@frozen
class Flow:
    """A compiled flow: its program, its core, and its warnings."""

    program: Program
    core: core.Lambda
    diagnostics: tuple[Diagnostic, ...]


def compile_flow(source: Source, options: CompileOptions = DEFAULT_OPTIONS) -> Flow:
    """Compile a flow. Raises CompileError with all diagnostics."""
    linker = Linker(options)
    declared, limits = linker.declared, linker.limits
    data, found = read(source, limits.nesting)
    is_read = not any(diagnostic.is_error for diagnostic in found)
    if not is_read and not is_worth_expanding(found):
        raise CompileError(found, [source])
    with linker.reading(source.path):
        environment = Environment(tuple(options.arguments), imported_source, linker.loop, limits, declared)
        expansion = expand(data, source, environment)
    if not is_read:
        raise CompileError([*found, *reliable_findings(found, expansion.diagnostics, data)], [source])
    found += expansion.diagnostics
    found += linker.diagnostics
    found += _unused(expansion.program)
    sources = (*(expansion.sources or (source,)), *linker.sources.values())
    if any(diagnostic.is_error for diagnostic in found):
        raise CompileError(found, (*sources, *(declared.found.sources if declared.found else ())))
    literals = [core.Literal(freeze(value)) for value in options.arguments.values()]
    variables = tuple(zip(expansion.program.parameters, literals, strict=True))
    root: core.Core = expansion.program.body
    if variables:
        root = core.Let(variables, root, span=root.span)
    name = "expression" if source.path == EXPRESSION_PATH else splitext(basename(source.path))[0]
    return Flow(lower_flow(root, name, sources, definition), expansion.program, tuple(found))


def compile_calling_loop(
    loop: Loop, document: Document, found: list[Diagnostic], options: CompileOptions
) -> Program:
    """Compile a loop with the functions of other files that it calls; adds to the diagnostics in `found`."""
    path = document.source.path
    linker = Linker(options)
    with linker.reading(path):
        calls = linker.calls(loop, path)
    found += linker.diagnostics
    sources = (*document.sources, *linker.sources.values())
    if any(diagnostic.is_error for diagnostic in found):
        raise CompileError(found, sources)
    model = model_name(loop, options.default_model)
    part = LoopPart(loop.name, loop, (), document.within, model, calls)
    return lower_calling_loop(part, sources, definition)


def _unused(program: core.Lambda) -> Iterator[Diagnostic]:
    """A warning for each given argument that the program does not use."""
    if program.parameters:
        used = {node.binding for node in core.walk(program) if isinstance(node, core.Variable)}
        for binding in program.parameters:
            if binding not in used:
                message = f"the flow does not read the argument `{binding.name}`"
                yield Diagnostic("unused-argument", message, severity="warning")


def definition(name: str) -> core.Lambda:
    """The library function of this name that is defined in `stdlib/`."""
    entry = LIBRARY[name]
    assert isinstance(entry, Defined)
    return _library_file(entry.file)[name]


@cache
def _library_file(file: str) -> dict[str, core.Lambda]:
    source = text_source(read_text(file), f"{LIBRARY_FOLDER}{file}")
    data, found = read(source)
    functions, more = expand_library(data)
    errors = [diagnostic for diagnostic in (*found, *more) if diagnostic.is_error]
    if errors:
        raise CompileError(errors, [source])
    return functions
