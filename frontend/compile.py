"""From a source to a program: the frontend's one entry.

Reads, desugars, checks and lowers a loop or a flow, with what the command line overrides. Everything
found wrong comes out together, in one `CompileError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ..ir.diagnostics import CompileError, Diagnostic, suggest
from ..ir.gc_pause import CollectorRests
from ..ir.nodes import Program
from ..ir.records import frozen
from ..ir.spans import Source
from .loop.checks import check
from .loop.paradigms import loop_of
from .loop.project_checks import Project, check_surroundings
from .loop.reader import read_loop
from .loop.schema import Loop, model_name
from .lower.loop import lower
from .source.document import Document
from .source.files import read_source, text_source
from .source.yaml_tree import read_scalar

if TYPE_CHECKING:
    from .core import nodes as core
    from .link.linker import Settings
    from .tasks.registry import TaskRegistry

# The model that judges output where neither the loop, the command line nor the environment
# names one. Chosen for what judging needs: quick and cheap.
DEFAULT_LLM_MODEL = "claude-haiku-4-5"


# What a flow's file is called, and what stands for the path of an expression that has no file.
FLOW_SUFFIX = ".sexp"
EXPRESSION = "<expression>"


@frozen
class Overrides:
    """What a caller sets over what a loop says.

    context: variables as (key, text); a text that reads as a YAML scalar is that scalar.
    llm_enabled: False judges slash commands by their exit code.
    llm_model: replaces the loop's model. default_model: used where the loop names none.
    arguments: variables of a flow as (name, text); a text that is JSON is the value that says.
    folder: the project's `.loops`, whose tools and tasks flows may call; None: there is none.
    project: whom to ask for agents and prices; None: nobody.
    declare: further tools and tasks, as `--declare` names them.
    max_expansions, max_nesting: how often macros of a flow expand, and how deep its brackets go.
    """

    max_iterations: int | None = None
    context: tuple[tuple[str, str], ...] = ()
    llm_enabled: bool | None = None
    llm_model: str | None = None
    default_model: str = DEFAULT_LLM_MODEL
    arguments: tuple[tuple[str, str], ...] = ()
    folder: str | None = None
    project: Project | None = None
    declare: tuple[str, ...] = ()
    max_expansions: int | None = None
    max_nesting: int | None = None


NOTHING_OVERRIDDEN = Overrides()


@frozen
class Compiled:
    """A program, the loop or the flow's core it was lowered from, and the warnings met on the way."""

    program: Program
    loop: Loop | None
    diagnostics: tuple[Diagnostic, ...]
    core: core.Lambda | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.program.sources


def compile_file(path: str, overrides: Overrides = NOTHING_OVERRIDDEN) -> Compiled:
    """Compile a loop's or a flow's file; CompileError with everything that is wrong with it."""
    return compile_source(read_source(path), overrides)


def compile_text(text: str, path: str = "<text>", overrides: Overrides = NOTHING_OVERRIDDEN) -> Compiled:
    """Compile a loop or, where `path` ends in `.sexp`, a flow given as text; `path` stands in diagnostics."""
    return compile_source(text_source(text, path), overrides)


def compile_source(source: Source, overrides: Overrides = NOTHING_OVERRIDDEN) -> Compiled:
    """Compile a loop or a flow, by its path; CompileError with everything that is wrong with it."""
    with CollectorRests():
        return _compile_flow(source, overrides) if is_flow_path(source.path) else _compile(source, overrides)


def _compile(source: Source, overrides: Overrides) -> Compiled:
    loop, document, found = load(source, overrides)
    if loop is not None and any(state.call is not None for state in loop.states.values()):
        return _compile_calling(loop, source, document, found, overrides)
    if loop is None or any(diagnostic.is_error for diagnostic in found):
        raise CompileError(found, document.sources)
    program = lower(loop, document.sources, document.within, overrides.default_model)
    return Compiled(program, loop, tuple(found))


def _compile_calling(
    loop: Loop, source: Source, document: Document, found: list[Diagnostic], overrides: Overrides
) -> Compiled:
    """A loop that calls functions of other files, which become part of its program."""
    from .core.parts import LoopPart
    from .link.linker import Joint

    joint = Joint(_settings(overrides), _declared(overrides))
    with joint.reading(source.path):
        calls = joint.calls(loop, source.path)
    found += joint.diagnostics
    sources = (*document.sources, *joint.sources.values())
    if any(diagnostic.is_error for diagnostic in found):
        raise CompileError(found, sources)
    from .link.flow import definition
    from .lower.program import lower_calling_loop

    model = model_name(loop, overrides.default_model)
    part = LoopPart(loop.name, loop, (), document.within, model, calls)
    return Compiled(lower_calling_loop(part, sources, definition), loop, tuple(found))


def _declared(overrides: Overrides) -> TaskRegistry:
    from .tasks.registry import TaskRegistry

    return TaskRegistry(overrides.folder, overrides.declare)


def _settings(overrides: Overrides) -> Settings:
    from .link.linker import Settings

    return Settings(
        overrides.default_model,
        overrides.llm_enabled,
        overrides.llm_model,
        overrides.max_expansions,
        overrides.max_nesting,
        overrides.project,
    )


def is_flow_path(path: str) -> bool:
    """Whether a source with this path is a flow; an expression given by itself is one too."""
    return path.endswith(FLOW_SUFFIX) or path == EXPRESSION


def _compile_flow(source: Source, overrides: Overrides) -> Compiled:
    from .link.flow import compile_flow  # the language's own frontend; a loop does without

    instead = "to set a variable: --arg name=value"
    given = (
        (overrides.max_iterations, "limit of iterations of its own", None),
        (overrides.context, "context variables", instead),
    )
    problems = [
        Diagnostic("bad-override", f"a flow has no {what}", help=help) for value, what, help in given if value
    ]
    if problems:
        raise CompileError(problems, [source])
    flow = compile_flow(source, overrides.arguments, _declared(overrides), _settings(overrides))
    if not flow.program.meta.loops and (overrides.llm_model or overrides.llm_enabled is False):
        message = "a flow that runs no loop has no model that judges its output"
        raise CompileError([Diagnostic("bad-override", message)], [source])
    return Compiled(flow.program, None, flow.diagnostics, flow.core)


def load(source: Source, overrides: Overrides) -> tuple[Loop | None, Document, list[Diagnostic]]:
    """The loop a source describes as FSM, overrides applied and checked; None if it cannot be read."""
    spec, document, found = read_loop(source)
    if spec is None:
        return None, document, found
    made, document = loop_of(spec, document)
    if made is None:
        return None, document, found
    loop, problems = override(made, overrides, source)
    found += problems
    found += check(loop, document)
    found += check_surroundings(loop, overrides.project, overrides.default_model)
    return loop, document, found


def override(loop: Loop, overrides: Overrides, source: Source) -> tuple[Loop, list[Diagnostic]]:
    """The loop with what the caller sets over it."""
    problems: list[Diagnostic] = []
    changes: dict[str, Any] = {}
    if overrides.arguments:
        instead = "to set a context variable: --context name=value"
        problems.append(Diagnostic("bad-override", "a loop takes no arguments", help=instead))
    if overrides.declare and not any(state.call is not None for state in loop.states.values()):
        problems.append(Diagnostic("bad-override", "the loop calls no functions, so it uses no tools"))
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
