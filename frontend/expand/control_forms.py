"""Control flow forms: conditionals, loops, faults."""

from __future__ import annotations

from typing import Any

from ...ir.diagnostics import count_words
from ..core.forms import Steps, form
from ..core.nodes import (
    Apply,
    Binding,
    Core,
    Fail,
    If,
    Lambda,
    Let,
    Library,
    Literal,
    Loop,
    Operation,
    Recur,
    Try,
    Variable,
    sequence,
)
from ..core.scope import FunctionMark, Scope, identifier_of, is_word, value_of
from ..sexp.datum import Datum, Form
from ..sexp.printer import show
from .binding_forms import bind_all, expand_inits, join, read_bindings
from .expansion import Context

COND = "(cond (test value…)… (else value…))"
CASE = "(case key ((datum…) value…)… (else value…))"
DO = "(do ((name start next)…) (test value…) body…)"
LOOP = "(loop count body…) or (loop ((name start)…) body… (recur next…))"
_BAD_COUNT = "the count of `loop` must be a whole number, 0 or more"
TRY = "(try body… (catch name handler…) (finally body…)), with `catch` or `finally` or both"


def use(binding: Binding, datum: Datum) -> Variable:
    """Return a reference to a variable that a form created."""
    binding.references += 1
    return Variable(binding, span=datum.span)


def expand_all(items: tuple[Datum, ...], scope: Scope, datum: Datum) -> Steps:
    """Expand forms in order, in the current scope and body; nil for none."""
    found: list[Core] = []
    for item in items:
        found.append((yield item, scope))
    return sequence(found, datum.span)


@form("if", "(if test then otherwise)", "The value of `then` if the test is true, else of `otherwise`.", 2, 3)
def expand_if(x: Context, datum: Form, scope: Scope) -> Steps:
    if len(datum.items) == 3:
        written = show(datum, limit=60).removesuffix(")")
        x.error(
            "missing-else",
            "`if` has no else branch",
            datum.span,
            "no value if the test is false",
            help=f"write {written} null), or `when` for a body without one",
        )
    test = yield datum.items[1], scope
    then = yield datum.items[2], scope
    otherwise = (yield datum.items[3], scope) if len(datum.items) == 4 else Literal(None)
    return If(test, then, otherwise, span=datum.span)


@form("begin", "(begin form…)", "Evaluate forms in order; returns the last value. Creates no scope.")
def expand_begin(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield expand_all(datum.items[1:], scope, datum))


form("progn", "(progn form…)", "The same as `begin`.")(expand_begin)


@form("when", "(when test body…)", "The value of the body if the test is true, else nil.", 1)
def expand_when(x: Context, datum: Form, scope: Scope) -> Steps:
    test = yield datum.items[1], scope
    body = yield expand_all(datum.items[2:], scope, datum)
    return If(test, body, Literal(()), span=datum.span)


@form("unless", "(unless test body…)", "The value of the body if the test is false, else nil.", 1)
def expand_unless(x: Context, datum: Form, scope: Scope) -> Steps:
    test = yield datum.items[1], scope
    body = yield expand_all(datum.items[2:], scope, datum)
    return If(test, Literal(()), body, span=datum.span)


@form("and", "(and form…)", "The first false value, else the last; `true` for none.")
def expand_and(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield _junction(datum, scope, is_and=True))


@form("or", "(or form…)", "The first true value, else the last; `false` for none.")
def expand_or(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield _junction(datum, scope, is_and=False))


def _junction(datum: Form, scope: Scope, *, is_and: bool) -> Steps:
    values: list[Core] = []
    for item in datum.items[1:]:
        values.append((yield item, scope))
    if not values:
        return Literal(is_and, span=datum.span)
    core = values.pop()
    while values:
        value = values.pop()
        binding = Binding("and" if is_and else "or", None, scope.function)
        test, kept = use(binding, datum), use(binding, datum)
        choice = If(test, core, kept, span=value.span) if is_and else If(test, kept, core, span=value.span)
        core = Let(((binding, value),), choice, span=datum.span)
    return core


# --- cond and case ----------------------------------------------------------------------------


@form("cond", COND, "The value of the first clause whose test is true; nil if there is none.")
def expand_cond(x: Context, datum: Form, scope: Scope) -> Steps:
    rows: list[tuple[Any, Any, Core]] = []
    last: Core = Literal(())
    clauses = datum.items[1:]
    for index, clause in enumerate(clauses):
        if not isinstance(clause, Form) or not clause.items or clause.tail is not None or clause.is_marked:
            return _without_brackets(x, datum, index)
    for index, clause in enumerate(clauses):
        assert isinstance(clause, Form)
        head, body = clause.items[0], clause.items[1:]
        if is_word(head, "else", scope):
            if index + 1 < len(clauses):
                _after_else(x, "cond", clauses[index + 1])
            last = yield expand_all(body, scope, clause)
            break
        test = yield head, scope
        if isinstance(test, Library) and body:
            written = f"({show(clause, limit=60)} value…)"
            help = f"write each clause in brackets, with its test and its values: {written}"
            x.error("bad-clause", f"`{test.name}` is a function, which is always true", head.span, help=help)
            continue
        if not body:
            binding = Binding("cond", None, scope.function)
            rows.append((binding, test, use(binding, clause)))
        elif is_word(body[0], "=>", scope):
            if len(body) != 2:
                x.error("bad-clause", "`=>` takes one function", clause.span, help="write (test => function)")
                continue
            function = yield body[1], scope
            binding = Binding("cond", None, scope.function)
            rows.append((binding, test, Apply(function, (use(binding, clause),), span=clause.span)))
        else:
            rows.append((None, test, (yield expand_all(body, scope, clause))))
    core = last
    for binding, test, value in reversed(rows):
        if binding is None:
            core = If(test, value, core, span=test.span)
        else:
            choice = If(Variable(binding, span=test.span), value, core, span=test.span)
            binding.references += 1
            core = Let(((binding, test),), choice, span=test.span)
    return core


def _without_brackets(x: Context, datum: Form, index: int) -> Core:
    """Report a clause of `cond` that is not a list; it is usually a value, or a test without brackets."""
    clauses = datum.items[1:]
    clause = clauses[index]
    written = f"(test {show(clause, limit=60)})"
    before = clauses[index - 1] if index else None
    if isinstance(before, Form) and before.items:
        is_clause = isinstance(before.items[0], Form) or identifier_of(before.items[0]) is None
        written = f"(else {show(clause, limit=60)})" if is_clause else show(Form((before, clause)), limit=60)
    help = f"write each clause in brackets, with its test and its values: {written}"
    return x.error("bad-clause", "a clause of `cond` must be (test value…)", clause.span, help=help)


def _after_else(x: Context, name: str, clause: Datum) -> None:
    x.error(
        "bad-clause",
        f"no clause may follow the `else` clause of `{name}`",
        clause.span,
        help="put `else` last",
    )


@form("case", CASE, "The value of the first clause that lists the key, by `equal?`; nil if there is none.", 1)
def expand_case(x: Context, datum: Form, scope: Scope) -> Steps:
    key = yield datum.items[1], scope
    binding = Binding("case", None, scope.function)
    rows: list[tuple[Core, Core]] = []
    last: Core = Literal(())
    clauses = datum.items[2:]
    seen: dict[Any, int] = {}
    for index, clause in enumerate(clauses):
        if not isinstance(clause, Form) or len(clause.items) < 2 or clause.tail is not None:
            x.error(
                "bad-clause",
                "a clause of `case` must be ((datum…) value…)",
                clause.span,
                help=f"write {CASE}",
            )
            continue
        head, body = clause.items[0], clause.items[1:]
        is_else = is_word(head, "else", scope)
        if is_word(body[0], "=>", scope):
            if len(body) != 2:
                x.error("bad-clause", "`=>` takes one function", clause.span)
                continue
            function = yield body[1], scope
            value: Core = Apply(function, (use(binding, clause),), span=clause.span)
        else:
            value = yield expand_all(body, scope, clause)
        if is_else:
            if index + 1 < len(clauses):
                _after_else(x, "case", clauses[index + 1])
            last = value
            break
        if not isinstance(head, Form) or head.is_marked:
            written, how = f"({show(head, limit=40)})", "in brackets"
            if isinstance(head, Form):
                quoted, how = head.items[1], "without a quotation mark"
                written = show(quoted, limit=40)
                written = written if isinstance(quoted, Form) else f"({written})"
            message = f"write the data of a clause {how}"
            x.error("bad-clause", message, head.span, help=f"write ({written} …)")
            continue
        tests = tuple(_case_tests(x, head, binding, seen))
        test = tests[0] if len(tests) == 1 else Operation("or", tests, span=head.span)
        rows.append((test if tests else Literal(False), value))
    core = last
    for test, value in reversed(rows):
        core = If(test, value, core, span=test.span)
    return Let(((binding, key),), core, span=datum.span)


def _case_tests(x: Context, head: Form, binding: Binding, seen: dict[Any, int]) -> list[Core]:
    tests: list[Core] = []
    for item in head.items:
        try:
            value = value_of(item)
        except ValueError:
            x.error("dotted-list", "a dotted pair is not a value", item.span)
            continue
        key = show(item)
        if key in seen:
            x.warn(
                "unreachable-code", f"`{key}` already occurs in an earlier clause", item.span, "never chosen"
            )
        seen[key] = 1
        tests.append(Operation("eq", (use(binding, item), Literal(value, span=item.span)), span=item.span))
    return tests


# --- loops ------------------------------------------------------------------------------


@form("loop", LOOP, "Evaluate the body a number of times, or until it ends without `recur`.", 2)
def expand_loop(x: Context, datum: Form, scope: Scope) -> Steps:
    clause = datum.items[1]
    if isinstance(clause, Form) and all(isinstance(item, Form) for item in clause.items):
        return (yield _loop_with_variables(x, datum, clause, scope))
    count = yield clause, scope
    if isinstance(count, Literal) and not is_count(count.value):
        x.error("bad-count", _BAD_COUNT, clause.span, help=f"write {LOOP}")
    rounds = Binding("rounds", None, scope.function)
    done = Binding("round", None, scope.function)
    result = Binding("result", None, scope.function)
    inside = Scope(scope, loop=-1)
    body = yield expand_all(datum.items[2:], inside, datum)
    again = Recur((Operation("add", (use(done, datum), Literal(1))), body))
    test = Operation("lt", (use(done, datum), use(rounds, datum)), span=clause.span)
    choice = If(test, again, use(result, datum), span=datum.span)
    loop = Loop(((done, Literal(0)), (result, Literal(()))), choice, span=datum.span)
    return Let(((rounds, _checked_count(count, scope, clause)),), loop, span=datum.span)


def is_count(value: object) -> bool:
    """Whether a value is a whole number, 0 or more; floats with a whole value count, as for `integer?`."""
    return (type(value) is int or (type(value) is float and value.is_integer())) and value >= 0


def _checked_count(count: Core, scope: Scope, clause: Datum) -> Core:
    """Return the count with a run-time check; an invalid count is a fault."""
    if isinstance(count, Literal):
        return count
    binding = Binding("count", None, scope.function)

    def wrong() -> Core:
        shown = Apply(Library("to-string"), (use(binding, clause),))
        message = Operation("concat", (Literal(_BAD_COUNT + ", not "), shown))
        fault = Operation("map", (Literal("kind"), Literal("type-error"), Literal("message"), message))
        return Fail(fault, span=clause.span)

    whole = Operation("is_integer", (use(binding, clause),), span=clause.span)
    positive = Operation("ge", (use(binding, clause), Literal(0)), span=clause.span)
    checked = If(positive, use(binding, clause), wrong(), span=clause.span)
    return Let(((binding, count),), If(whole, checked, wrong(), span=clause.span), span=clause.span)


def _loop_with_variables(x: Context, datum: Form, clause: Form, scope: Scope) -> Steps:
    pairs = read_bindings(x, clause, LOOP)
    values: Any = yield expand_inits(x, pairs, scope, "loop")
    inside = Scope(scope, loop=len(pairs))
    bindings = bind_all(x, [name for name, _ in pairs], inside, is_local=False)
    body = yield expand_all(datum.items[2:], inside, datum)
    return Loop(join(bindings, values), body, span=datum.span)


@form(
    "recur",
    "(recur next…)",
    "Start the next iteration of the nearest `loop` with new values of its variables.",
)
def expand_recur(x: Context, datum: Form, scope: Scope) -> Steps:
    args: list[Core] = []
    for item in datum.items[1:]:
        args.append((yield item, scope))
    if scope.loop is None or scope.loop < 0:
        x.error(
            "recur-outside-loop",
            "`recur` is outside of a `loop` with variables",
            datum.span,
            help="`recur` cannot leave a function: call the function, or write (loop ((name start)…) …)",
        )
        return Literal(None)
    if len(args) != scope.loop:
        x.error(
            "wrong-arity",
            f"`recur` takes {count_words(scope.loop, scope.loop, 'value')} here, not {len(args)}",
            datum.span,
            "one for each variable of the loop",
        )
        return Literal(None)
    return Recur(tuple(args), span=datum.span)


@form("while", "(while test body…)", "Repeat the body while the test is true; returns nil.", 1)
def expand_while(x: Context, datum: Form, scope: Scope) -> Steps:
    inside = Scope(scope, loop=-1)
    test = yield datum.items[1], inside
    body = yield expand_all(datum.items[2:], inside, datum)
    items = [body] if len(datum.items) > 2 else []
    again = sequence([*items, Recur((), span=None)], datum.span)
    return Loop((), If(test, again, Literal(()), span=datum.span), span=datum.span)


@form("do", DO, "Repeat with the next values until the test is true; returns the value after the test.", 2)
def expand_do(x: Context, datum: Form, scope: Scope) -> Steps:
    """`do` of R7RS: a variable without a next value keeps its value."""
    clause, ending = datum.items[1], datum.items[2]
    if isinstance(clause, Form) and clause.items and not any(isinstance(item, Form) for item in clause.items):
        help = f"write {DO}; (begin form…) evaluates one after another"
        return x.error(
            "bad-binding", "the first operand of `do` must be its variables", clause.span, help=help
        )
    steps: list[Datum] = []
    shortened = clause
    if isinstance(clause, Form):
        starts: list[Datum] = []
        for item in clause.items:
            if isinstance(item, Form) and len(item.items) == 3:
                steps.append(item.items[2])
                item = Form(item.items[:2], item.place)
            else:
                steps.append(item.items[0] if isinstance(item, Form) and item.items else item)
            starts.append(item)
        shortened = Form(tuple(starts), clause.place, "(", clause.tail)
    if not isinstance(ending, Form) or not ending.items or ending.tail is not None:
        return x.error(
            "bad-clause", "the second operand of `do` must be (test value…)", ending.span, help=f"write {DO}"
        )
    pairs = read_bindings(x, shortened, DO)
    values: Any = yield expand_inits(x, pairs, scope, "do")
    inside = Scope(scope, loop=-1)
    bindings = bind_all(x, [name for name, _ in pairs], inside, is_local=False)
    test = yield ending.items[0], inside
    result = yield expand_all(ending.items[1:], inside, ending)
    body: list[Core] = []
    for item in datum.items[3:]:
        body.append((yield item, inside))
    again: list[Core] = []
    for _, step in zip(pairs, steps, strict=False):
        again.append((yield step, inside))
    choice = If(test, result, sequence([*body, Recur(tuple(again))], datum.span), span=datum.span)
    return Loop(join(bindings, values), choice, span=datum.span)


# --- faults -----------------------------------------------------------------------------------


@form("try", TRY, "The value of the body; `catch` handles a fault in it, `finally` always runs.", 1)
def expand_try(x: Context, datum: Form, scope: Scope) -> Steps:
    body: list[Datum] = []
    clauses: dict[str, Form] = {}
    for item in datum.items[1:]:
        word = _clause_word(item, scope)
        if word is not None and isinstance(item, Form):
            if word in clauses:
                x.error("repeated-clause", f"`try` has two `{word}` clauses", item.span, help=f"write {TRY}")
            elif word == "catch" and "finally" in clauses:
                x.error("bad-clause", "`catch` must come before `finally`", item.span, help=f"write {TRY}")
            clauses[word] = item
        else:
            if clauses:
                x.error(
                    "bad-clause",
                    "the body of `try` must come before its clauses",
                    item.span,
                    help=f"write {TRY}",
                )
            body.append(item)
    heads = [identifier_of(item.items[0]) for item in body if isinstance(item, Form) and item.items]
    if not clauses and not any(head and x.is_foreign(head, scope) for head in heads):
        x.error("missing-clause", "`try` needs `catch` or `finally`", datum.span, help=f"write {TRY}")
    core = yield expand_all(tuple(body), Scope(scope, loop=-1), datum)
    if "catch" in clauses:
        core = yield _catch(x, core, clauses["catch"], scope)
    if "finally" in clauses:
        core = yield _finally(core, clauses["finally"], scope)
    return core


def _clause_word(item: Datum, scope: Scope) -> str | None:
    if isinstance(item, Form) and item.items:
        for word in ("catch", "finally"):
            if is_word(item.items[0], word, scope):
                return word
    return None


def _catch(x: Context, core: Core, clause: Form, scope: Scope) -> Steps:
    items = clause.items[1:]
    target: Datum | None = items[0] if items else None
    if isinstance(target, Form) and len(target.items) == 1:
        target = target.items[0]
    if target is None or identifier_of(target) is None:
        message = "`catch` takes a name for the fault, then the forms of the handler"
        return x.error("bad-clause", message, clause.span, help="write (catch fault handler…)")
    inside = Scope(scope)
    binding = bind_all(x, [target], inside, is_local=False)[0] or Binding("fault")
    handler = yield expand_all(items[1:], inside, clause)
    return Try(core, binding, handler, span=clause.span)


def _finally(core: Core, clause: Form, scope: Scope) -> Steps:
    """Compile the clean-up to a function, which is called after the body and after a fault."""
    function = FunctionMark("finally")
    inside = Scope(scope, function=function)
    body = yield expand_all(clause.items[1:], inside, clause)
    cleanup = Binding("finally", None, scope.function)
    result = Binding("result", None, scope.function)
    fault = Binding("fault", None, scope.function)
    after_fault = Apply(use(cleanup, clause), (), span=clause.span)
    after = Apply(use(cleanup, clause), (), span=clause.span)
    again = Fail(use(fault, clause), span=clause.span)
    guarded = Try(core, fault, sequence([after_fault, again], clause.span), span=clause.span)
    value = Let(((result, guarded),), sequence([after, use(result, clause)], clause.span), span=clause.span)
    thunk = Lambda((), (), None, body, "finally", span=clause.span)
    return Let(((cleanup, thunk),), value, span=clause.span)


@form("assert", "(assert test [message])", "The value of the test; a fault if it is false.", 1, 2)
def expand_assert(x: Context, datum: Form, scope: Scope) -> Steps:
    test = yield datum.items[1], scope
    message: Core = Literal("assertion failed: " + show(datum.items[1], limit=200))
    if len(datum.items) == 3:
        message = yield datum.items[2], scope
    binding = Binding("assert", None, scope.function)
    fault = Operation("map", (Literal("kind"), Literal("assertion"), Literal("message"), message))
    choice = If(use(binding, datum), use(binding, datum), Fail(fault, span=datum.span), span=datum.span)
    return Let(((binding, test),), choice, span=datum.span)
