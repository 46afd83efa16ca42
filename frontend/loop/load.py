"""From a source to a checked loop: read, convert to states, apply the compile options, check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ...ir.compile_options import CompileOptions
from ...ir.diagnostics import Diagnostic, suggest
from ...ir.spans import Source
from ..source.document import Document
from .checks import check
from .dialect import check_parameters, translate, unused_keys, with_scope, with_setting_variables
from .project_checks import check_project
from .reader import read_loop
from .schema import Loop, LoopSettings

# Applies changes of the caller to a loop; returns the loop and diagnostics.
Change = Callable[[Loop], tuple[Loop, list[Diagnostic]]]


def load(
    source: Source, options: CompileOptions, change: Change
) -> tuple[Loop | None, Document, list[Diagnostic]]:
    """The loop of a source as states and jumps, changed and checked; None if it is invalid."""
    spec, document, found = read_loop(source, options.dialect)
    if spec is None:
        return None, document, found
    made, document = loop_of(spec, document)
    if made is None:
        return None, document, found
    loop, problems = change(made)
    found += problems
    loop = with_setting_variables(with_scope(loop), document)
    found += [*unused_keys(loop), *check_parameters(loop)]
    found += check(loop, document)
    found += check_project(loop, options.project, options.default_model)
    return loop, document, found


def loop_of(spec: LoopSettings, document: Document) -> tuple[Loop | None, Document]:
    """The loop as states, and the document that knows its positions; None after an error."""
    if isinstance(spec, Loop):
        return translate(spec), document
    # Deferred: a loop of states, the common case, does not need the other paradigms.
    from .natural import as_states

    return as_states(cast("Any", spec), document)


def with_llm_options(loop: Loop, options: CompileOptions) -> Loop:
    """Apply the model settings of the options to a loop."""
    changes = {"enabled": options.llm_enabled, "model": options.llm_model}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    return loop.evolve(llm=loop.llm.evolve(**given)) if given else loop


def with_options(loop: Loop, options: CompileOptions, source: Source) -> tuple[Loop, list[Diagnostic]]:
    """Apply the compile options to a loop; report options that do not fit it."""
    problems: list[Diagnostic] = []
    if options.arguments:
        instead = "to set a context variable: --context name=value"
        problems.append(Diagnostic("bad-override", "a loop takes no arguments", help=instead))
    if options.declare and not any(state.calls for state in loop.states.values()):
        problems.append(Diagnostic("bad-override", "the loop calls no functions, so it uses no tools"))
    loop = with_llm_options(loop, options)
    if options.max_iterations is not None:
        if options.max_iterations < 1:
            problems.append(Diagnostic("bad-override", "max_iterations must be 1 or more"))
        else:
            loop = loop.evolve(max_iterations=options.max_iterations)
    unread = list(unread_context(loop, options.context, source))
    for key in unread:
        help = suggest(key, loop.context, "the loop's context has")
        message = f"the loop does not read context `{key}`"
        problems.append(Diagnostic("unknown-context", message, help=help))
    given = {key: value for key, value in options.context.items() if key not in unread}
    return (loop.evolve(context={**loop.context, **given}) if given else loop), problems


def unread_context(loop: Loop, keys: Iterable[str], source: Source) -> Iterator[str]:
    """The context keys that a loop neither declares nor reads."""
    for key in keys:
        if key not in loop.context and f"context.{key}" not in (source.text or ""):
            yield key
