"""Core as text: the expansion of forms, for `--emit expanded`."""

from __future__ import annotations

import pytest
from flow_texts import expansion

from llc.frontend.core.nodes import Apply, Binding, Lambda, Let, Letrec, Variable, walk
from llc.frontend.core.printer import expanded_text

CASES = {
    "(when (> 1 0) 1 2)": "(if (> 1 0) (begin 1 2) ())",
    "(or a b)": "(let* ((or.2 a)) (if or.2 or.2 b))",
    "(and a b)": "(let* ((and.2 a)) (if and.2 b and.2))",
    "(let ((a 2)) (let ((a (+ a 1))) a))": "(let* ((a.2 2)) (let* ((a.3 (+ a.2 1))) a.3))",
    "(cond (a 1) (b => car))": "(if a 1 (let* ((cond.2 b)) (if cond.2 (car cond.2) ())))",
    "(case a ((1) 2) ((x y) 3) (else 4))": "(let* ((case.2 a)) (if (op:eq case.2 1) 2 "
    "(if (op:or (op:eq case.2 'x) (op:eq case.2 'y)) 3 4)))",
    "(while a b)": "(loop () (if a (begin b (recur)) ()))",
    "(loop 3 a)": "(let* ((rounds 3))\n  (loop ((round.2 0) (result ())) (if (op:lt round.2 rounds) "
    "(recur (op:add round.2 1) a) result)))",
    "(let again ((i 0)) (again i))": "(letrec* ((again (lambda (i) (again i)))) (again 0))",
    "(map (car item) a)": "(map (lambda (item) (car item)) a)",
    "(if a (bind x 1) 2)": "(define x null)\n(if a (set! x 1) 2)",
    "(apply + 1 a)": "(apply + 1 a)",
    "(try a (catch e b))": "(try a (catch e b))",
    "(lambda (x &optional (y x) &rest z) z)": "(lambda (x &optional (y x) &rest z) z)",
    "`(1 ,a ,@b)": "(append (op:list 1 a) b)",
    '\'(a ("b" null))': '\'(a ("b" null))',
    "(error a)": "(error a)",
    "(dict (k a))": '(op:map "k" a)',
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_a_form_expands_to_core(text: str, expected: str) -> None:
    """Each form is printed as core forms in which every variable has a unique name."""
    result = expansion(f"(define a 1) (define b 2) {text}")
    assert not result.diagnostics
    lines = expanded_text(result.program).splitlines()
    rest = [line for line in lines if line not in ("(define a 1)", "(define b 2)")]
    assert "\n".join(rest) == expected


def test_wide_forms_are_broken_into_lines() -> None:
    """A line is at most one screen wide where the form can be broken."""
    text = "(list " + " ".join(f"(list {number} {number})" for number in range(40)) + ")"
    lines = expanded_text(expansion(text).program).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 100


def test_deep_program_is_printed() -> None:
    """Ten thousand nested `If` nodes are printed without recursion."""
    clauses = " ".join(f"((= 1 {number}) {number})" for number in range(2_000))
    assert expanded_text(expansion(f"(cond {clauses})").program).count("(if") == 2_000


def _bindings(text: str) -> dict[str, Binding]:
    bindings: dict[str, Binding] = {}
    for node in walk(expansion(text).program):
        if isinstance(node, Let | Letrec):
            bindings |= {binding.name: binding for binding, _ in node.bindings}
        elif isinstance(node, Lambda):
            bindings |= {binding.name: binding for binding in node.parameters}
    return bindings


def test_assigned_bindings_are_marked() -> None:
    bindings = _bindings("(let ((a 1) (b 2) (c 3)) (set! b 4) (set! c 5) (lambda (d) (list a c d b)))")
    assert {name for name, binding in bindings.items() if binding.is_assigned} == {"b", "c"}


def test_bindings_are_unique() -> None:
    """Two variables of one name are two bindings; each use refers to one of them."""
    program = expansion("(define (f x) (let ((x x)) x)) (f 1)").program
    used = [node.binding for node in walk(program) if isinstance(node, Variable) and node.binding.name == "x"]
    assert len(set(used)) == 2
    assert any(isinstance(node, Apply) for node in walk(program))
