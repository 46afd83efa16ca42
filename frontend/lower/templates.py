"""Lowering of templates to expressions: the slots that `${namespace.path}` reads, and the effects needed
first.

Must not contain: the parser of templates (`template`). `spec/interpolation.md` lists the namespaces.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ...ir.builder import expr, freeze, prim
from ...ir.nodes import Expr, Slot
from ...ir.records import define, frozen
from ...ir.spans import Span
from ..template.nodes import QUOTING_PRIMITIVES, Constant, Literal, Template, Variable

# Like `$(…)` in a shell, these fields drop the final newline of an output.
PRINTED = ("output", "stderr")


# The active time of the run at the start of a nested loop.
BEGUN = Slot("begun_ms")


@define
class Needs:
    """The host data that a template needs before it can be expanded."""

    env: dict[str, None] = attrs.Factory(dict)
    clock: bool = False

    def __bool__(self) -> bool:
        return bool(self.env) or self.clock


@frozen
class Place:
    """Context of a template: its state, and the mapping of offsets to spans.

    is_inner: whether the loop is nested and starts at `BEGUN`.
    """

    state: str
    loop: str
    within: Callable[[int, int], Span | None]
    is_inner: bool = False


def text_of(template: Template, place: Place, needs: Needs) -> Expr:
    """The expanded text: a literal if it is constant, otherwise a `concat`."""
    parts: list[Expr] = []
    for part in template.parts:
        match part:
            case Literal(text):
                parts.append(expr(text))
            case Constant(value):
                parts.append(prim("text", freeze(value)))
            case Variable():
                value = read(part, place, needs)
                if part.plain is not None:
                    value = prim("shell_plain", value, part.plain)
                if part.quoting != "none":
                    value = prim(QUOTING_PRIMITIVES[part.quoting], value, *part.around)
                parts.append(value)
    if len(parts) == 1:
        only = parts[0]
        return only if isinstance(template.parts[0], Literal) else prim("text", only)
    return prim("concat", *parts) if parts else expr("")


def value_of(template: Template, place: Place, needs: Needs) -> Expr:
    """Like `text_of`, but a template that is a single variable keeps the type of its value."""
    match template.single:
        case Variable() as variable:
            return read(variable, place, needs)
        case Constant(value):
            return expr(freeze(value))
    return text_of(template, place, needs)


def base_of(variable: Variable, place: Place, needs: Needs) -> tuple[Expr, tuple[str, ...]]:
    """The value at which a variable's path starts, and the remaining path."""
    head, *rest = variable.path
    match variable.namespace:
        case "captured":
            return Slot(f"captured.{head}"), tuple(rest)
        case "prev" | "result":
            return Slot(variable.namespace), variable.path
        case "context":
            if not variable.is_runtime_value:  # a variable without a value faults when it is used
                return expr(freeze({})), variable.path
            return Slot(f"context.{head}"), tuple(rest)
        case "env":
            needs.env[head] = None
            return prim("without_nulls", prim("get", Slot("env"), "values")), variable.path
        case "state":
            return (Slot("iteration") if head == "iteration" else expr(place.state)), ()
        case "loop":
            if head == "name":
                return expr(place.loop), ()
            if head in ("started_at", "run_dir"):
                return Slot(head), ()
            needs.clock = True
            elapsed = prim("get", Slot("now"), "elapsed_ms")
            if place.is_inner:
                elapsed = prim("sub", elapsed, BEGUN)
            return (elapsed if head == "elapsed_ms" else prim("duration", elapsed)), ()
    raise AssertionError(variable.namespace)


def read(variable: Variable, place: Place, needs: Needs) -> Expr:
    """The value of a variable; a fault that names the variable if it is undefined and has no default."""
    base, path = base_of(variable, place, needs)
    span = place.within(variable.start, variable.end)
    if variable.default is not None:
        value: Expr = prim("lookup_or", base, path, variable.default, span=span)
    elif path or variable.namespace == "captured":
        value = prim("lookup", base, path, variable.name, span=span)
    else:
        value = base
    if variable.path[-1] in PRINTED and variable.namespace in ("captured", "prev"):
        value = prim("trim_newline", value)
    return filtered(variable, value)


def filtered(variable: Variable, value: Expr) -> Expr:
    """Apply the filters of a variable to its value."""
    for part, count in variable.filters:
        value = prim(part, value, count)
    return value


def lenient(template: Template, place: Place, needs: Needs) -> Expr:
    """Like `value_of`, but empty if a variable without a default is undefined; for `previous`."""
    variable = template.single
    if isinstance(variable, Variable):
        base, path = base_of(variable, place, needs)
        return filtered(variable, prim("lookup_or", base, path, variable.default or ""))
    missing: Expr | None = None
    for variable in template.variables:
        base, path = base_of(variable, place, needs)
        if variable.default is None and (path or variable.namespace == "captured"):
            is_missing = prim("is_null", prim("lookup_or", base, path, None))
            missing = is_missing if missing is None else prim("or", missing, is_missing)
    parts = [
        attrs.evolve(part, default=part.default or "") if isinstance(part, Variable) else part
        for part in template.parts
    ]
    whole = value_of(attrs.evolve(template, parts=tuple(parts)), place, needs)
    return whole if missing is None else prim("select", missing, "", whole)
