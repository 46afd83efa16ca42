"""From a flow's source to its program: read, expand, lower, and what of `stdlib/` that needs.

Files are read here and nowhere else behind the expander: what a flow imports, and the functions of
the library that are written in the language.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from posixpath import basename, splitext
from typing import Any

from ...ir.builder import freeze
from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.nodes import Program
from ...ir.records import frozen
from ...ir.spans import Source
from ...stdlib import read_text
from ..compile import DEFAULT_LLM_MODEL, EXPRESSION
from ..core import nodes as core
from ..core.library import LIBRARY, Defined
from ..expand.context import Environment
from ..expand.program import expand, expand_library
from ..lower.program import lower_flow
from ..sexp.reader import read
from ..source.files import read_source, text_source
from ..tasks.registry import TaskRegistry
from .error_recovery import is_worth_expanding, said_beside
from .linker import Joint, Settings

_SETTINGS = Settings(DEFAULT_LLM_MODEL)


@frozen
class Flow:
    """A compiled flow: its program, its core, and the warnings met on the way."""

    program: Program
    core: core.Lambda
    diagnostics: tuple[Diagnostic, ...]


def compile_flow(
    source: Source,
    arguments: Sequence[tuple[str, str]] = (),
    declared: TaskRegistry | None = None,
    settings: Settings = _SETTINGS,
) -> Flow:
    """Compile a flow with values for variables as (name, text); see `argument`.

    declared: the tools and tasks around it. settings: for the loops that it runs. CompileError with
    everything that is wrong with it.
    """
    declared = declared or TaskRegistry()
    given = {name: argument(text) for name, text in arguments}
    limits = settings.limits
    data, found = read(source, limits.nesting)
    is_read = not any(diagnostic.is_error for diagnostic in found)
    if not is_read and not is_worth_expanding(found):
        raise CompileError(found, [source])
    joint = Joint(settings, declared)
    with joint.reading(source.path):
        expansion = expand(data, source, Environment(tuple(given), load, joint.loop, limits, declared))
    if not is_read:
        raise CompileError([*found, *said_beside(found, expansion.diagnostics, data)], [source])
    found += expansion.diagnostics
    found += joint.diagnostics
    found += _unused(expansion.program)
    sources = (*(expansion.sources or (source,)), *joint.sources.values())
    if any(diagnostic.is_error for diagnostic in found):
        raise CompileError(found, (*sources, *(declared.found.sources if declared.found else ())))
    literals = [core.Literal(value) for value in given.values()]
    variables = tuple(zip(expansion.program.parameters, literals, strict=True))
    root: core.Core = expansion.program.body
    if variables:
        root = core.Let(variables, root, span=root.span)
    name = "expression" if source.path == EXPRESSION else splitext(basename(source.path))[0]
    return Flow(lower_flow(root, name, sources, definition), expansion.program, tuple(found))


def _unused(program: core.Lambda) -> Iterator[Diagnostic]:
    """A warning for each argument that was given for nothing."""
    if program.parameters:
        used = {node.binding for node in core.walk(program) if isinstance(node, core.Variable)}
        for binding in program.parameters:
            if binding not in used:
                message = f"nothing in the flow reads the argument `{binding.name}`"
                yield Diagnostic("unused-argument", message, severity="warning")


def argument(text: str) -> Any:
    """The value of an argument given as text: what it is as JSON, else the text itself."""
    try:
        return freeze(json.loads(text))
    except (ValueError, RecursionError):
        return text


def definition(name: str) -> core.Lambda:
    """The function of the library that is defined in `stdlib/` under this name."""
    entry = LIBRARY[name]
    assert isinstance(entry, Defined)
    return _library_file(entry.file)[name]


@cache
def _library_file(file: str) -> dict[str, core.Lambda]:
    source = text_source(read_text(file), f"stdlib/{file}")
    data, found = read(source)
    functions, more = expand_library(data, source)
    errors = [diagnostic for diagnostic in (*found, *more) if diagnostic.is_error]
    if errors:
        raise CompileError(errors, [source])
    return functions


def load(path: str, importer: str) -> Source:
    """The source that an `import` in the file `importer` names."""
    from pathlib import PurePath

    folder = PurePath("" if importer == EXPRESSION else importer).parent
    return read_source(str(folder / path))
