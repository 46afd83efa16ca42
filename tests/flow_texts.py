"""Run S-expression programs from text, for the language tests.

Expectations are comments in the text: `; => value` after an expression, `; fault: kind` after one that fails,
`; error: id` or `; warning: id` on the line of a diagnostic.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from llc.frontend.expand.expansion import Environment
from llc.frontend.expand.program import ALONE, Expansion, expand
from llc.frontend.link.flow import compile_flow
from llc.frontend.sexp.datum import Form
from llc.frontend.sexp.reader import read
from llc.frontend.source.files import text_source
from llc.ir.diagnostics import Diagnostic, render_all
from llc.ir.nodes import Program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine

MARK = re.compile(r";\s*(=>|fault:|error:|warning:)\s*(.*)")


class Mark(NamedTuple):
    """An expectation: line (from 1), kind and expected text."""

    line: int
    kind: str
    text: str


def marks(text: str) -> list[Mark]:
    return [
        Mark(number, match[1].strip(":"), match[2].strip())
        for number, line in enumerate(text.split("\n"), 1)
        if (match := MARK.search(line))
    ]


def expansion(text: str, environment: Environment = ALONE) -> Expansion:
    """The core of a text, with the diagnostics of the reader and the expander."""
    source = text_source(text, "test.sexp")
    data, diagnostics = read(source)
    result = expand(data, source, environment)
    return Expansion(result.program, (*diagnostics, *result.diagnostics), result.sources)


def findings(text: str, environment: Environment = ALONE) -> tuple[Diagnostic, ...]:
    return expansion(text, environment).diagnostics


def compiled(text: str) -> Program:
    """The verified program of a text without errors."""
    result = expansion(text)
    errors = [item for item in result.diagnostics if item.is_error]
    assert not errors, render_all(errors, result.sources)
    program = compile_flow(text_source(text, "test.sexp")).program
    wrong = [item for item in verify(program) if item.is_error]
    assert not wrong, render_all(wrong, result.sources)
    return program


def run(text: str) -> tuple[Any, list[tuple[str, dict[str, Any]]]]:
    """Outcome (Done or Fault) and notes of a program; each effect is answered with an empty map."""
    machine = Machine(emit(compiled(text)), fuel=10_000_000)
    outcome = machine.resume()
    notes = machine.take_notes()
    while isinstance(outcome, Effect):
        outcome = machine.resume({})
        notes += machine.take_notes()
    return outcome, notes


def value_text(text: str) -> str:
    """The printed value of a program's last form; `fault: kind` for a fault."""
    data, _ = read(text_source(text, "test.sexp"))
    last = data[-1]
    assert last.span is not None
    is_definition = isinstance(last, Form) and str(last.head).startswith("Symbol('define")
    if not is_definition:
        lines = text.split("\n")
        offset = sum(len(line) + 1 for line in lines[: last.span.line - 1]) + last.span.column - 1
        text = f"{text[:offset]}(to-string (list {text[offset:]}\n))"
    outcome, _ = run(text)
    kind = getattr(outcome, "kind", None)
    if kind is not None:
        return f"fault: {kind}"
    value = str(outcome.value)
    return value[1:-1]
