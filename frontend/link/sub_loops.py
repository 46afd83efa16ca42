"""Resolution of `loop:` in a state: the file of the named loop, and the values in its `context`.

Values that are known at compile time become constants of the nested loop; the others become its
parameters, as for a loop that a flow runs. Must not contain: reading of files (`linker`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import dirname, normpath
from typing import Any

from ...ir.diagnostics import Diagnostic, suggest
from ...ir.scalars import scalar_or_text
from ...ir.spans import Source
from ..core.program_parts import Request
from ..loop.composition import MissingFile, file_suffixes, locate
from ..loop.dialect import INPUT_HASH
from ..loop.dialect_schema import LITTLE_LOOPS
from ..loop.schema import Loop, StateSpec
from ..loop.texts import argument_texts, bindings_of, template_of
from ..loop.variable_checks import fixed_text
from ..template.nodes import Constant, RuntimeValue
from .calls import Report


def fixed_name(loop: Loop, state: StateSpec) -> str | None:
    """The name of the loop that a state runs; None if it is computed at run time."""
    assert state.loop is not None
    name = fixed_text(template_of(loop, state.name, "value", state.loop))
    return name if name or "${" not in state.loop else None


def request_of(
    loop: Loop, state: StateSpec, name: str, importer: str, error: Report, is_late: bool = False
) -> tuple[str, Request, dict[str, Any]] | None:
    """The path of the loop that a state runs, the request for it, and its values by key; None after a
    diagnostic.
    """
    span = state.span_of("loop", "parallel")
    if not name.strip():
        error("unknown-loop", "the name of the loop is empty", span, "", "write the name of a loop")
        return None
    path = locate(name, dirname(importer), file_suffixes(name), "loop")
    if isinstance(path, MissingFile):
        error(path.id, path.message, span, path.label, path.help)
        return None
    values = bindings_of(loop, state)
    constants: dict[str, Any] = {}
    for key, value in values.items():
        known, constant = _constant(loop, state, value)
        if known:
            constants[key] = constant
    if INPUT_HASH not in values and "input" in values and "input" not in constants:
        values[INPUT_HASH] = values["input"]  # the call converts it to a digest
    given = tuple(key for key in values if key not in constants)
    # Only keys of `with` have a span, and take precedence over the loop's own values.
    spans = {
        key: state.span_of(f"with.{key}", "with") if key in (state.bindings or {}) else None for key in values
    }
    request = Request(
        name, span, constants, given, spans, None, is_state=True, dialect=loop.dialect, is_late=is_late
    )
    return normpath(path), request, values


def _constant(loop: Loop, state: StateSpec, value: Any) -> tuple[bool, Any]:
    """Whether a value is known at compile time, and the value."""
    if isinstance(value, str):
        template = template_of(loop, state.name, "value", value)
        if isinstance(template.single, Constant):
            return True, template.single.value
        return template.fixed is not None, template.fixed
    return not any(argument_texts(value)), value


def with_bindings(loop: Loop, request: Request) -> tuple[Loop, list[Diagnostic]]:
    """The loop with the values of a state, and diagnostics for missing ones; only `with` replaces the loop's
    `context`.
    """
    context, spans = dict(loop.context), dict(loop.spans)
    for key, place in request.spans.items():
        if place is None and f"context.{key}" in loop.spans:
            continue
        if key == INPUT_HASH and place is None and LITTLE_LOOPS not in (request.dialect, loop.dialect):
            continue
        value = request.constants.get(key, RuntimeValue())
        context[key] = scalar_or_text(value) if isinstance(value, str) else value
        if place is not None:
            spans[f"context.{key}"] = place
    if INPUT_HASH in context:  # always the last parameter, so that an imported loop is the same program
        context[INPUT_HASH] = context.pop(INPUT_HASH)
    is_input = loop.dialect == LITTLE_LOOPS or loop.input_key == "input"
    if is_input and "input" not in request.spans and "context.input" not in spans:
        context.pop("input", None)  # only a run from outside has an empty `input`
    changed = loop.evolve(context=context, spans=spans)
    needed = [name for name, parameter in (loop.parameters or {}).items() if parameter.required]
    missing = [name for name in needed if name not in request.spans and name != "run_dir"]
    if not missing or not any(request.spans.values()):
        return changed, []
    names = ", ".join(f"`{name}`" for name in missing)
    help = f"add `with: {{{missing[0]}: …}}`"
    return changed, [
        Diagnostic("missing-argument", f"loop `{loop.name}` needs {names}", request.span, "", help)
    ]


def unread_bindings(loop: Loop, request: Request, sources: Iterable[Source]) -> Iterator[Diagnostic]:
    """Warnings for keys of `with` that the loop, whose files are all in `sources`, never reads."""
    if request.is_late or any(state.context_passthrough for state in loop.states.values()):
        return
    known = {key for key in loop.context if key not in request.spans} | (loop.parameters or {}).keys()
    texts = [source.text or "" for source in sources]
    for key, place in request.spans.items():
        is_own = key in known or f"key:context.{key}" in loop.spans
        if place is None or is_own or any(f"context.{key}" in text for text in texts):
            continue
        severity = "warning" if request.dialect == LITTLE_LOOPS else "error"
        help = suggest(key, known, "its context has")
        message = f"loop `{loop.name}` does not read `{key}`"
        yield Diagnostic("unknown-context", message, place, "", help, severity)
