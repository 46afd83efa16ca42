"""From a source to a program: the frontend's one entry.

Reads, desugars, checks and lowers a loop, with what the command line overrides. Everything found
wrong comes out together, in one `CompileError`.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..ir.diagnostics import CompileError, Diagnostic, suggest
from ..ir.nodes import Program
from ..ir.spans import Source
from .check import check
from .documents import Document, read_scalar, read_source, text_source
from .lower import lower
from .paradigms import to_fsm
from .schema import Loop
from .structure import read_loop

# The model that judges output where neither the loop, the command line nor the environment
# names one. Chosen for what judging needs: quick and cheap.
DEFAULT_LLM_MODEL = "claude-haiku-4-5"


@attrs.frozen
class Overrides:
    """What a caller sets over what a loop says.

    context: variables as (key, text); a text that reads as a YAML scalar is that scalar.
    llm_enabled: False judges slash commands by their exit code.
    llm_model: replaces the loop's model. default_model: used where the loop names none.
    """

    max_iterations: int | None = None
    context: tuple[tuple[str, str], ...] = ()
    llm_enabled: bool | None = None
    llm_model: str | None = None
    default_model: str = DEFAULT_LLM_MODEL


@attrs.frozen
class Compiled:
    """A program, the loop it was lowered from, and the warnings met on the way."""

    program: Program
    loop: Loop
    diagnostics: tuple[Diagnostic, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.program.sources


def compile_file(path: str, overrides: Overrides = Overrides()) -> Compiled:
    """Compile a loop's file; CompileError with everything that is wrong with it."""
    return compile_source(read_source(path), overrides)


def compile_text(text: str, path: str = "<text>", overrides: Overrides = Overrides()) -> Compiled:
    """Compile a loop given as text; `path` stands in diagnostics."""
    return compile_source(text_source(text, path), overrides)


def compile_source(source: Source, overrides: Overrides = Overrides()) -> Compiled:
    """Compile a loop; CompileError with everything that is wrong with it."""
    loop, document, found = load(source, overrides)
    if loop is None or any(diagnostic.is_error for diagnostic in found):
        raise CompileError(found, [source])
    program = lower(loop, (source,), document.within, overrides.default_model)
    return Compiled(program, loop, tuple(found))


def load(source: Source, overrides: Overrides) -> tuple[Loop | None, Document, list[Diagnostic]]:
    """The loop a source describes as FSM, overrides applied and checked; None if it cannot be read."""
    spec, document, found = read_loop(source)
    if spec is None:
        return None, document, found
    loop, problems = override(to_fsm(spec), overrides, source)
    found += problems
    found += check(loop, document)
    return loop, document, found


def override(loop: Loop, overrides: Overrides, source: Source) -> tuple[Loop, list[Diagnostic]]:
    """The loop with what the caller sets over it."""
    problems: list[Diagnostic] = []
    changes: dict[str, Any] = {}
    if overrides.max_iterations is not None:
        if overrides.max_iterations < 1:
            problems.append(Diagnostic("bad-override", "max_iterations must be 1 or more"))
        else:
            changes["max_iterations"] = overrides.max_iterations
    context = dict(loop.context)
    for key, text in overrides.context:
        if key not in context and f"context.{key}" not in (source.text or ""):
            help = suggest(key, context, "the loop's context has")
            problems.append(
                Diagnostic("unknown-context", f"nothing in the loop reads context `{key}`", help=help)
            )
            continue
        try:
            context[key] = read_scalar(text)
        except ValueError:
            context[key] = text
    if overrides.context:
        changes["context"] = context
    llm: dict[str, Any] = {}
    if overrides.llm_enabled is not None:
        llm["enabled"] = overrides.llm_enabled
    if overrides.llm_model is not None:
        llm["model"] = overrides.llm_model
    if llm:
        changes["llm"] = attrs.evolve(loop.llm, **llm)
    return (attrs.evolve(loop, **changes) if changes else loop), problems
