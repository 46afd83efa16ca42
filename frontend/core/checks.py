"""Static checks of expanded programs whose names are all bound.

Checks the number of arguments, calls of values that are not functions, `recur` outside tail position,
unreachable code and unused variables. Reads core without changing it, and without recursion.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import assert_never

from ...ir.diagnostics import Diagnostic, count_words
from ...ir.records import frozen
from ...ir.spans import Span
from ..sexp.datum import Atom
from ..sexp.printer import show
from . import nodes as core
from .library import LIBRARY, ROWS


@frozen(eq=False)
class Expected:
    """An expected arity: the function `who` is called with these arguments."""

    value: core.Core
    who: str
    takes: tuple[str, ...]


def check(
    program: core.Core,
    locals: Iterable[core.Binding] = (),
    expected: Iterable[Expected] = (),
    *,
    has_errors: bool = False,
    functions: Mapping[core.Binding, core.Lambda] | None = None,
) -> list[Diagnostic]:
    """Check a program; return all diagnostics.

    Args:
        program: the core of the program.
        locals: variables to report if they are unused, unless there are errors.
        expected: arities that forms expect of their functions.
        has_errors: whether the expansion reported errors.
        functions: functions of variables that the program does not bind.
    """
    nodes = list(core.walk(program))
    known = {**(functions or {}), **_known_values(nodes)}
    expected = list(expected)
    elsewhere = {place.value for place in expected}
    found = [*_calls(nodes, known, elsewhere), *_unfit(expected, known), *_recurs(program, nodes)]
    if not has_errors and not found:
        found += _strings_as_numbers(nodes)
        found += _wrong_templates(nodes)
        found += _unreachable(nodes)
        found += _unused(locals)
    return found


# --- calls ------------------------------------------------------------------------------------


def _known_values(nodes: list[core.Core]) -> dict[core.Binding, core.Core]:
    """Return the values of the variables that are never assigned."""
    known: dict[core.Binding, core.Core] = {}
    for node in nodes:
        if isinstance(node, core.Let | core.Letrec):
            for binding, value in node.bindings:
                if not binding.is_assigned:
                    known[binding] = value
    return known


def _calls(
    nodes: list[core.Core], known: dict[core.Binding, core.Core], elsewhere: set[core.Core]
) -> Iterable[Diagnostic]:
    """Check the calls. elsewhere: functions whose calls are checked elsewhere."""
    for node in nodes:
        if isinstance(node, core.Apply):
            finding = _call(node, known)
            if finding is not None and _callee_value(node.callee, known) not in elsewhere:
                yield finding


def _unfit(expected: Iterable[Expected], known: dict[core.Binding, core.Core]) -> Iterable[Diagnostic]:
    for place in expected:
        function = _callee_value(place.value, known)
        count = len(place.takes)
        called = f"it is called with {count_words(count, count, 'argument')}: ({' '.join(place.takes)})"
        if isinstance(function, core.Literal):
            if function.value is not None or function.span is not None:
                yield Diagnostic(
                    "not-a-function", f"the {place.who} is not a function", place.value.span, called
                )
            continue
        fit = _arity(function) if function is not None else None
        if fit is not None and (count < fit[0] or (fit[1] is not None and count > fit[1])):
            message = f"this {place.who} takes {_arguments(*fit)}"
            yield Diagnostic("wrong-arity", message, place.value.span, called)


def _callee_value(callee: core.Core, known: dict[core.Binding, core.Core]) -> core.Core | None:
    """Return the value of a callee, followed through at most ten variables; None if it is unknown."""
    for _ in range(10):
        if not isinstance(callee, core.Variable):
            return callee
        value = known.get(callee.binding)
        if value is None:
            return None
        callee = value
    return None


def _arity(function: core.Core) -> tuple[int, int | None] | None:
    """Return the minimum and maximum number of arguments of a function; None as a maximum: any number."""
    if isinstance(function, core.Lambda):
        return function.least, function.most
    if isinstance(function, core.Library) and (entry := LIBRARY.get(function.name)) is not None:
        return entry.least, entry.most
    return None


def _call(node: core.Apply, known: dict[core.Binding, core.Core]) -> Diagnostic | None:
    callee = _callee_value(node.callee, known)
    name = node.callee.binding.name if isinstance(node.callee, core.Variable) else ""
    if isinstance(callee, core.Lambda):
        name = name or callee.name
    elif isinstance(callee, core.Library):
        name = callee.name
    elif isinstance(callee, core.Literal) or (
        isinstance(callee, core.Operation) and callee.op in ("list", "map")
    ):
        return _not_a_function(node, callee, name)
    fit = _arity(callee) if callee is not None else None
    if fit is None:
        return None
    least, most = fit
    count = len(node.args)
    if (most is None or count <= most) and (node.spread is not None or count >= least):
        return None
    who = f"`{name}`" if name else "this function"
    given = f"not {count}" + (" and more" if node.spread is not None else "")
    return Diagnostic(
        "wrong-arity",
        f"{who} takes {_arguments(least, most)}, {given}",
        node.span,
        help=_parameters(callee) if isinstance(callee, core.Lambda) else _usage(name),
    )


def _arguments(least: int, most: int | None) -> str:
    return count_words(least, most, "argument")


def parameters_of(function: core.Lambda) -> str:
    """Return a function's parameters as written, without brackets."""
    names = [binding.name for binding in function.parameters]
    if function.optionals:
        names += ["&optional", *(binding.name for binding, _ in function.optionals)]
    if function.rest is not None:
        names += ["&rest", function.rest.name]
    return " ".join(names)


def _parameters(function: core.Lambda) -> str:
    where = f", in line {function.span.line}" if function.span is not None else ""
    return f"its parameters are ({parameters_of(function)}){where}"


def _usage(name: str) -> str | None:
    for row in ROWS:
        if row.name == name:
            return f"write ({row.name} {row.operands})".replace(" )", ")")
    return None


def _not_a_function(node: core.Apply, callee: core.Literal | core.Operation, name: str) -> Diagnostic | None:
    help = f"to use its value, write {name} without brackets"
    if isinstance(callee, core.Operation) or isinstance(callee.value, tuple):
        what = "a map" if isinstance(callee, core.Operation) and callee.op == "map" else "a list"
        help = help if name else "a bracket calls its first item: remove the outer brackets"
    elif callee.value is None and callee.span is None:
        # The placeholder of a form with an error.
        return None
    else:
        shown = show(Atom(callee.value), limit=40)
        what = f"`{shown}`"
        help = help if name else f"a bracket calls its first item; write a list as (list {shown} …)"
        if isinstance(callee.value, int) and not name and not node.args:
            help = f"to read an item of a list, write (list-ref list {shown})"
    message = f"`{name}` is {what}, not a function" if name else f"{what} is not a function"
    return Diagnostic("not-a-function", message, node.callee.span or node.span, "called here", help=help)


# Library functions whose operands are numbers.
_NUMERIC_FUNCTIONS = frozenset(
    row.name
    for row in ROWS
    if row.operands and all(word.rstrip("…?") == "number" for word in row.operands.split())
)


def _strings_as_numbers(nodes: list[core.Core]) -> Iterable[Diagnostic]:
    """Warn about strings as operands of numeric functions; each such call is a fault."""
    for node in nodes:
        if not (isinstance(node, core.Apply) and isinstance(node.callee, core.Library)):
            continue
        name = node.callee.name
        if name not in _NUMERIC_FUNCTIONS:
            continue
        for arg in node.args:
            if isinstance(arg, core.Literal) and isinstance(arg.value, str) and arg.span is not None:
                help = "use `string-append` to join strings" if name == "+" else None
                if name in ("=", "<", ">"):
                    help = f"compare strings with `{'equal?' if name == '=' else 'string<?'}`"
                if arg.value.strip().lstrip("-").replace(".", "", 1).isdecimal():
                    help = f"write the number without quotes: {arg.value.strip()}"
                message = f"`{name}` takes numbers, not a string"
                yield Diagnostic("wrong-type", message, arg.span, "not this", help=help, severity="warning")


def _wrong_templates(nodes: list[core.Core]) -> Iterable[Diagnostic]:
    """Warn about calls of `format` whose number of values differs from that of the placeholders; each is a
    fault.
    """
    for node in nodes:
        if not (isinstance(node, core.Apply) and isinstance(node.callee, core.Library) and node.args):
            continue
        template = node.args[0]
        if node.callee.name != "format" or node.spread is not None or not isinstance(template, core.Literal):
            continue
        if not isinstance(template.value, str):
            continue
        places = sum(mark in "as" for mark in re.findall(r"~(.)", template.value))
        values = len(node.args) - 1
        if places != values:
            has, given = count_words(places, places, "place"), count_words(values, values, "value")
            message = f"the template has {has}, but the call has {given}"
            help = "placeholders are `~a`, and `~s` for strings in quotes; `%s` and `{}` are ordinary text"
            yield Diagnostic("wrong-arity", message, template.span, "", help, "warning")


# --- recur ------------------------------------------------------------------------------------


def _recurs(program: core.Core, nodes: list[core.Core]) -> Iterable[Diagnostic]:
    """Check that `recur` is in tail position of its loop."""
    if not any(isinstance(node, core.Recur) for node in nodes):
        return
    todo: list[tuple[core.Core, bool]] = [(program, False)]
    while todo:
        node, is_last = todo.pop()
        match node:
            case core.Recur(args=args):
                if not is_last:
                    yield Diagnostic(
                        "recur-not-last",
                        "`recur` is not in tail position of its loop",
                        node.span,
                        "the loop continues after this form",
                        help="make it the last form of its branch, outside `try`; or write a function, "
                        "which may call itself anywhere",
                    )
                todo.extend((arg, False) for arg in args)
            case core.If(test=test, then=then, otherwise=otherwise):
                todo += [(otherwise, is_last), (then, is_last), (test, False)]
            case core.Let(bindings=bindings, body=body) | core.Letrec(bindings=bindings, body=body):
                todo.append((body, is_last))
                todo.extend((value, False) for _, value in bindings)
            case core.Loop(bindings=bindings, body=body):
                todo.append((body, True))
                todo.extend((value, False) for _, value in bindings)
            case core.Sequence(items=items):
                todo.append((items[-1], is_last))
                todo.extend((item, False) for item in items[:-1])
            case core.Try(body=body, handler=handler):
                todo += [(handler, is_last), (body, False)]
            case (
                core.Literal() | core.Variable() | core.Library() | core.External() | core.Assign()
                | core.Lambda() | core.Apply() | core.Parallel() | core.Operation() | core.Perform()
                | core.Note() | core.Fail()
            ):  # fmt: skip
                todo.extend((child, False) for child in core.children(node))
            case _:
                assert_never(node)


# --- code that is never reached ---------------------------------------------------------------


def _unreachable(nodes: list[core.Core]) -> Iterable[Diagnostic]:
    # Outer nodes precede inner ones in `nodes`, so the reverse order visits inner ones first.
    ends: set[core.Core] = set()
    found: list[Diagnostic] = []
    for node in reversed(nodes):
        kind = type(node)
        if kind in core.LEAVES:
            continue
        # Only `Fail` and `Recur` never return by themselves; any other node only because of a node inside it.
        if (ends or kind is core.Fail or kind is core.Recur) and _never_ends(node, ends):
            ends.add(node)
        if isinstance(node, core.If) and isinstance(node.test, core.Literal) and node.test.span is not None:
            branch = node.otherwise if node.test.value else node.then
            if _is_own(branch, node.span):
                word = "true" if node.test.value else "false"
                found.append(_warning(branch.span, f"the test is always {word}"))
        after: list[core.Core] = []
        if isinstance(node, core.Sequence):
            after = list(node.items)
        elif isinstance(node, core.Let | core.Letrec):
            after = [*(value for _, value in node.bindings), node.body]
        for item, following in itertools.pairwise(after if ends else ()):
            if item in ends:
                if _is_own(following, node.span):
                    found.append(_warning(following.span, "the form before it never returns"))
                break
    return found


def _is_own(node: core.Core, around: Span | None) -> bool:
    """Whether the author wrote this node; other nodes come from forms and macros."""
    return node.span is not None and node.span != around


def _never_ends(node: core.Core, ends: set[core.Core]) -> bool:
    match node:
        case core.Fail() | core.Recur():
            return True
        case core.Lambda():
            return False
        case core.If(test=core.Literal(value=value), then=then, otherwise=otherwise):
            return (then if value else otherwise) in ends
        case core.If(test=test, then=then, otherwise=otherwise):
            return test in ends or (then in ends and otherwise in ends)
        case core.Try(body=body, handler=handler):
            return body in ends and handler in ends
        case _:
            return any(child in ends for child in core.children(node))


def _warning(span: Span | None, why: str) -> Diagnostic:
    return Diagnostic("unreachable-code", "this is never evaluated", span, why, severity="warning")


# --- variables that are never used ------------------------------------------------------------


def _unused(locals: Iterable[core.Binding]) -> Iterable[Diagnostic]:
    for binding in locals:
        if not binding.references:
            what = "set, but never read" if binding.is_assigned else "never used"
            yield Diagnostic(
                "unused-binding",
                f"`{binding.name}` is {what}",
                binding.span,
                help=f"remove it, or rename it to `_{binding.name}`",
                severity="warning",
            )
