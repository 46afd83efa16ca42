"""The documented library: every example runs, every name is a function."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import pytest
from flow_runs import finish, machine_of, outcome_of, value_of
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.blocks import text_of
from spec.tables import compare

from llc.frontend.core.library import LIBRARY, ROWS, Defined, Primitive
from llc.frontend.link.flow import definition
from llc.frontend.lower.constant_folding import fold
from llc.ir.nodes import Const
from llc.ir.primitives import PRIMITIVES
from llc.vm.primitives.handlers import HANDLERS
from llc.vm.values.bounds import MAX_BITS, MAX_ITEMS, MAX_TEXT
from llc.vm.values.faults import Fault

EXAMPLES = [(row.name, *example) for row in ROWS for example in row.examples]


@pytest.mark.parametrize(("name", "expression", "outcome"), EXAMPLES, ids=[e[1] for e in EXAMPLES])
def test_documented_example_has_its_outcome(name: str, expression: str, outcome: str) -> None:
    """The outcome is a printed value, or the kind of a fault."""
    assert outcome_of(expression) == outcome


def test_every_row_has_a_meaning_and_an_example() -> None:
    """The example uses the name."""
    for row in ROWS:
        assert row.doc.endswith("."), row.name
        assert any(row.name in expression for expression, _ in row.examples), row.name


def sections() -> Iterator[str]:
    """The sections of `spec/library.md`, generated from the table."""
    section = ""
    for row in ROWS:
        if row.section != section:
            section = row.section
            yield f"\n## {section}"
        call = f"({row.name} {row.operands})" if row.operands else f"({row.name})"
        yield from ("", f"### `{call}`", "", *wrap(row.doc, 105), "", "```sexp")
        for expression, outcome in row.examples:
            is_plain = outcome.startswith("exit ")
            shown = (
                outcome if is_plain else f"fault {outcome[2:]}" if outcome[:2] == "! " else f"=> {outcome}"
            )
            yield f"{expression}  ; {shown}"
        yield "```"


def test_chapter_matches_the_table(update: bool) -> None:
    compare("library.md", lambda name: sections(), update)
    text = text_of("library.md")
    assert all(f" {bound} " in text for bound in (MAX_BITS, MAX_ITEMS, MAX_TEXT))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_arity_of_a_row_is_the_arity_of_its_primitive(row: object) -> None:
    """Operands are checked by the table, so the primitive must accept every count that the table allows."""
    entry = LIBRARY[row.name]  # type: ignore[attr-defined]
    if isinstance(entry, Primitive):
        signature = PRIMITIVES[entry.op]
        assert signature.least <= entry.least
        assert signature.most is None or (entry.most is not None and entry.most <= signature.most)
    elif isinstance(entry, Defined):
        function = definition(row.name)  # type: ignore[attr-defined]
        assert len(function.parameters) == entry.least
        most = None if function.rest else entry.least + len(function.optionals)
        assert most is None or most == entry.most


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_every_library_name_is_a_value(name: str) -> None:
    """It can be passed as an argument and inspected, whatever its implementation."""
    assert value_of(f"(let ((f {name})) (function? f))") is True


@pytest.mark.parametrize(
    ("direct", "indirect"),
    [
        ("(+ 1 2)", "((lambda (f) (f 1 2)) +)"),
        ("(map abs '(-1))", "((lambda (f) (f abs '(-1))) map)"),
        ("(sort '(2 1) <)", "((lambda (f) (f '(2 1) <)) sort)"),
        ("(apply list 1 '(2))", "((lambda (f) (f list 1 '(2))) apply)"),
        ('(env "HOME")', '((lambda (f) (f "HOME")) env)'),
    ],
)
def test_library_function_as_argument_behaves_the_same(direct: str, indirect: str) -> None:
    """The result does not depend on the name by which the function is called."""
    assert outcome_of(direct) == outcome_of(indirect)


# --- functions written in the language --------------------------------------------------------

NUMBERS = st.lists(st.integers(-20, 20), max_size=12)


def written(numbers: list[int]) -> str:
    return f"(list {' '.join(map(str, numbers))})"


@given(NUMBERS)
def test_sort_with_comparison_sorts(numbers: list[int]) -> None:
    assert value_of(f"(sort {written(numbers)} <)") == sorted(numbers)
    assert value_of(f"(sort {written(numbers)} >)") == sorted(numbers, reverse=True)


@given(NUMBERS)
def test_sort_is_stable(numbers: list[int]) -> None:
    """Numbers sorted by the last digit keep the order of equal items."""
    by_digit = "(lambda (x y) (< (modulo x 10) (modulo y 10)))"
    assert value_of(f"(sort {written(numbers)} {by_digit})") == sorted(numbers, key=lambda x: x % 10)


@given(NUMBERS)
def test_higher_order_functions_agree_with_python(numbers: list[int]) -> None:
    items = written(numbers)
    assert value_of(f"(map (lambda (x) (* x x)) {items})") == [x * x for x in numbers]
    assert value_of(f"(filter even? {items})") == [x for x in numbers if x % 2 == 0]
    assert value_of(f"(reduce + 0 {items})") == sum(numbers)
    assert value_of(f"(reduce (lambda (a x) (cons x a)) nil {items})") == numbers[::-1]
    assert value_of(f"(fold-right cons nil {items})") == numbers
    assert value_of(f"(any? even? {items})") is any(x % 2 == 0 for x in numbers)
    assert value_of(f"(every? even? {items})") is all(x % 2 == 0 for x in numbers)
    assert value_of(f"(find even? {items})") == next((x for x in numbers if x % 2 == 0), None)


def test_long_lists_do_not_recurse() -> None:
    """Each traversal handles fifty thousand items."""
    text = (
        "(let ((n (range 200000))) (list (length (map abs n)) (reduce + 0 (filter even? n)) (every? abs n)))"
    )
    assert value_of(text) == [200_000, sum(range(0, 200_000, 2)), False]


def test_effects_of_a_function_argument_are_ordered() -> None:
    """Each item has its effect once, from left to right; snapshots in between change nothing."""
    text = '(map (lambda (name) (list name (env name "-") (now))) \'("HOME" "NONE"))'
    expected = [["HOME", "/home/ann", "2024-01-15T10:30:00.000Z"], ["NONE", "-", "2024-01-15T10:30:00.000Z"]]
    assert finish(machine_of(text)) == expected
    assert finish(machine_of(text), restoring=True) == expected


def test_log_is_a_note() -> None:
    """Values are printed in the notation of the language, strings bare, separated by blanks."""
    machine = machine_of('(log-message "n =" 3 \'(a "b") null)')
    assert finish(machine) is None
    assert machine.take_notes() == [("log", {"message": 'n = 3 (a "b") null'})]


@pytest.mark.parametrize(
    "expression",
    [
        "(map 5 '(1))",
        "(map abs 5)",
        "(filter even? 'a)",
        '(reduce + 0 "abc")',
        "(sort '(2 1) 5)",
        "(sort '(a b))",
        "(apply abs '(1 2))",
        "(first (dict (a 1)))",
        "(sleep -1)",
        '(exit "now")',
        "(env 'HOME)",
        "(string-append (range 100000))",
        '(first (string-append "" (json-format (range 100000))))',
    ],
)
def test_fault_messages_are_short(expression: str) -> None:
    """For any operand."""
    fault = finish(machine_of(expression))
    assert isinstance(fault, Fault)
    assert fault.kind in ("type-error", "arity", "not-a-function")
    assert len(fault.message) < 500


OPERANDS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([2.0, 0.5, "", "a", (), (1,)])


@pytest.mark.parametrize("op", sorted({entry.op for entry in LIBRARY.values() if hasattr(entry, "op")}))
@settings(max_examples=20)
@given(values=st.lists(OPERANDS, min_size=1, max_size=3))
def test_constant_folding_agrees_with_the_machine(op: str, values: list[object]) -> None:
    """A folded operation has the value and type of the operation at run time."""
    row = PRIMITIVES[op]
    if len(values) < row.least or (row.most is not None and len(values) > row.most):
        return
    folded = fold(op, [Const(value) for value in values], None)
    if isinstance(folded, Const):
        assert folded == Const(HANDLERS[op](*values))
