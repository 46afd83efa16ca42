"""IR text files as programs: parsed, and verified like an image.

A text that `llc compile` wrote lists the sources of its spans; a text without sources is its own source. Must
not contain: the syntax (`ir.text_reader`), the rules of a program (`ir.verify`).
"""

from __future__ import annotations

import re

import attrs

from ...ir.compile_options import CompileOptions
from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.nodes import Program
from ...ir.spans import Source, Span
from ...ir.text import parse_program
from ...ir.verify import verify_runnable

_META = re.compile(r"\bmeta\b")
# The options that override a part of a program, with the values that override nothing.
_OVERRIDES: dict[str, object] = {
    "max_iterations": None,
    "context": {},
    "arguments": {},
    "llm_enabled": None,
    "llm_model": None,
}


def read_ir(source: Source, options: CompileOptions) -> tuple[Program, list[Diagnostic]]:
    """Read an IR text; return the program and its warnings. Raises CompileError with spans in the text."""
    text = source.text or ""
    if any(getattr(options, name) != default for name, default in _OVERRIDES.items()):
        help = "compile its loop or flow with the options instead: `llc compile LOOP … -o FILE.ir`"
        message = "IR text is a compiled program, which no option can override"
        raise CompileError([Diagnostic("bad-override", message, help=help)], [source])
    program = parse_program(text, source.path, places="added")
    found = list(verify_runnable(program))
    if found and program.sources:
        # Errors are shown at their places in the IR text, not at the spans of the original source.
        found = list(verify_runnable(parse_program(text, source.path, places="own")))
    if any(diagnostic.is_error for diagnostic in found):
        raise CompileError([_placed(diagnostic, text, source.path) for diagnostic in found], [source])
    return program if program.sources else attrs.evolve(program, sources=(source,)), found


def _placed(diagnostic: Diagnostic, text: str, path: str) -> Diagnostic:
    """The diagnostic with a span; one about the whole program gets the lines of the program's head."""
    if diagnostic.span is not None:
        return diagnostic
    word = _META.search(text) if diagnostic.id == "bad-meta" else None
    at = word.start() if word is not None else 0
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return attrs.evolve(diagnostic, span=Span(path, line, column, line, column + len("meta")))
