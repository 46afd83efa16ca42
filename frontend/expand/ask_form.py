"""The form `ask`: a question to a person.

Clauses that are known when compiling are checked here, all of them when the question is asked
(`stdlib/calls.sexp`, `calls:ask`). The effect is performed by `runtime/effects/ask.py`; see `spec/people.md`.
"""

from __future__ import annotations

from ...ir.constants import Symbol
from ...ir.diagnostics import suggest
from ..core.forms import Steps, form
from ..core.nodes import Apply, Core, Library, Literal, Operation
from ..core.scope import Scope, identifier_of
from ..sexp.datum import Datum, Form
from .expansion import Context

CLAUSES = ("choices", "default", "timeout")
_USAGE = '(ask question [(choices "yes" "no")] [(default "no")] [(timeout seconds)])'


@form(
    "ask",
    "(ask question [(choices text…)] [(default text)] [(timeout seconds)])",
    "Ask a person; returns the answer, a string.",
    1,
    is_bindable=True,
)
def expand_ask(x: Context, datum: Form, scope: Scope) -> Steps:
    if datum.tail is not None:
        return x.refuse_dotted(datum)
    question = yield datum.items[1], scope
    given: dict[str, tuple[Core, Datum]] = {}
    for operand in datum.items[2:]:
        yield _clause(x, operand, scope, given)
    _check(x, question, given, datum)
    values = [given[name][0] if name in given else Literal(None) for name in CLAUSES]
    return Apply(Library("calls:ask", span=datum.items[0].span), (question, *values), span=datum.span)


def _clause(x: Context, operand: Datum, scope: Scope, given: dict[str, tuple[Core, Datum]]) -> Steps:
    head = identifier_of(operand.items[0]) if isinstance(operand, Form) and operand.items else None
    if head is None or head.name not in CLAUSES:
        help = f"write {_USAGE}"
        if head is not None:
            help = suggest(head.name, CLAUSES, "its clauses are") or help
        x.error("bad-clause", "not a clause of `ask`", operand.span, help=help)
        return Literal(None)
    assert isinstance(operand, Form)
    values: list[Core] = []
    for item in operand.items[1:]:
        values.append((yield item, scope))
    if head.name in given:
        first = given[head.name][1].span
        where = f"first given in line {first.line}" if first is not None else None
        x.error("repeated-clause", f"`{head.name}` occurs twice", operand.span, "given again", help=where)
    elif operand.tail is not None:
        x.refuse_dotted(operand)
    elif not values or (head.name != "choices" and len(values) > 1):
        takes = "at least one string" if head.name == "choices" else "one value"
        x.error("bad-clause", f"`{head.name}` takes {takes}", operand.span, help=f"write {_USAGE}")
    elif head.name == "choices":
        given[head.name] = (Operation("list", tuple(values), span=operand.span), operand)
    else:
        given[head.name] = (values[0], operand)
    return Literal(None)


def _text(core: Core) -> str | None:
    """The text of a literal string or symbol."""
    if not isinstance(core, Literal):
        return None
    if isinstance(core.value, Symbol):
        return core.value.name
    return core.value if isinstance(core.value, str) else None


def _check(x: Context, question: Core, given: dict[str, tuple[Core, Datum]], datum: Form) -> None:
    """Check the values that are known at compile time."""
    if isinstance(question, Literal) and question.span is not None and _text(question) is None:
        x.error("wrong-type", "the question must be a string", question.span, "not a string")
    choices = given.get("choices")
    texts: list[str] | None = None
    if choices is not None:
        core, place = choices
        assert isinstance(core, Operation)
        texts = []
        for item in core.args:
            text = _text(item)
            if text is None:
                if isinstance(item, Literal) and item.span is not None and not isinstance(item.value, tuple):
                    x.error("wrong-type", "a choice must be a string", item.span, "not a string")
                texts = None
                break
            if text in texts:
                x.error("repeated-choice", f"the choice `{text}` occurs twice", item.span or place.span)
            texts.append(text)
    default = given.get("default")
    said = _text(default[0]) if default is not None else None
    if default is not None and texts is not None and said is not None and said not in texts:
        message = f"the default `{said}` is not one of the choices"
        x.error("unknown-choice", message, default[1].span, help=suggest(said, texts, "the choices are"))
    timeout = given.get("timeout")
    if timeout is not None and isinstance(timeout[0], Literal) and timeout[0].span is not None:
        value = timeout[0].value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
            message = "`timeout` must be a number of seconds above 0"
            x.error("wrong-type", message, timeout[0].span, "not this")
