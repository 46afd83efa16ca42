"""`parallel-map`: `map` with concurrent calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flow_runs import finish, machine_of, value_of
from flow_texts import findings, value_text

import llc
from llc.vm.machine.machine import Done, Effect
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault

VALUES = {
    # a function or an expression, by the form of the first operand
    "(parallel-map abs '(-1 2))": "(1 2)",
    "(parallel-map (* item item) '(1 2 3))": "(1 4 9)",
    "(parallel-map (lambda (x) (+ x 1)) '(1 2))": "(2 3)",
    "(define (f x) (list x)) (parallel-map f '(1 2))": "((1) (2))",
    "(let ((f (lambda (x) (list x)))) (parallel-map f '(1 2)))": "((1) (2))",
    "(define-syntax id (syntax-rules () ((id x) (lambda (y) x)))) (parallel-map (id 5) '(1 2))": "(5 5)",
    "(define-syntax twice (syntax-rules () ((twice x) (* 2 x)))) (parallel-map (twice item) '(1 2))": "(2 4)",
    "(define-syntax all (syntax-rules () ((all l) (parallel-map (+ item 1) l)))) (all '(1 2))": "(2 3)",
    # lists
    "(parallel-map abs nil)": "()",
    "(parallel-map abs null)": "()",
    "(parallel-map (list item) (cons 1 '(2)))": "((1) (2))",
    "(parallel-map (+ 1 item) (parallel-map (* item 10) '(1 2)))": "(11 21)",
    # inside one another: the inner `item` hides the outer
    "(parallel-map (parallel-map (* item 2) item) '((1 2) () (3)))": "((2 4) () (6))",
    "(parallel-map (map (* item 2) item) '((1 2) (3)))": "((2 4) (6))",
    "(map (parallel-map (* item 2) item) '((1 2) (3)))": "((2 4) (6))",
    # as a first-class value
    "(map (lambda (f) (f abs '(-1))) (list map parallel-map))": "((1) (1))",
    "(apply parallel-map (list abs '(-1 2)))": "(1 2)",
    "(function? parallel-map)": "true",
    # bound to something else
    "(let ((parallel-map list)) (parallel-map 1 2))": "(1 2)",
    "(define (parallel-map a) (list a)) (parallel-map 7)": "(7)",
    # variables of the enclosing scope
    "(define n 0) (parallel-map (set! n (+ n item)) '(1 2 3)) n": "6",
    "(let ((n 0)) (parallel-map (begin (sleep 0) (set! n (+ n item))) '(1 2 3)) n)": "6",
    """(loop ((i 0) (found nil))
         (if (= i 3) found (recur (+ i 1) (append found (parallel-map (+ i item) '(0 10))))))""":
        "(0 10 1 11 2 12)",
    """(define makers (parallel-map (begin (sleep 0) (lambda () item)) '(1 2)))
       (map (lambda (f) (f)) makers)""": "(1 2)",
    # faults
    "(try (parallel-map (/ 1 item) '(1 0)) (catch f (get f \"kind\")))": '"division-by-zero"',
    "(parallel-map (try (/ 1 item) (catch f 0)) '(1 0))": "(1 0)",
    "(try (parallel-map (begin (sleep 0) (error item)) '(\"a\" \"b\")) (catch f (get f \"message\")))": '"a"',
    "(try (parallel-map abs 5) (catch f (get f \"kind\")))": '"type-error"',
    "(try (parallel-map 5 '(1)) (catch f (get f \"kind\")))": '"not-a-function"',
    "(try (parallel-map (lambda () 1) '(1)) (catch f (get f \"kind\")))": '"arity"',
    """(define log nil)
       (try (parallel-map (try (begin (sleep 0) (if (= item 2) (error "two") item))
                               (finally (set! log (cons item log))))
                          '(1 2 3))
         (catch f (set! log (cons (get f "message") log))))
       log""": '("two" 3 2 1)',
}  # fmt: skip


@pytest.mark.parametrize("text", VALUES, ids=range(len(VALUES)))
def test_values(text: str) -> None:
    """The result is the same in one run and with a snapshot at each effect."""
    assert value_text(text) == VALUES[text]
    program = f'(format "~s" (begin {text}))' if "define" not in text else f'(format "~s" (let () {text}))'
    direct, restored = (finish(machine_of(program), restoring=restoring) for restoring in (False, True))
    assert direct == restored == VALUES[text]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("(parallel-map abs)", "wrong-arity"),
        ("(parallel-map)", "wrong-arity"),
        ("(parallel-map + '(1) '(2))", "wrong-arity"),
        ("(parallel-map (+ 1 1) '(1))", "item-unused"),
        ("(loop ((i 0)) (parallel-map (recur item) '(1)))", "recur-outside-loop"),
    ],
)
def test_errors(text: str, id: str) -> None:
    assert id in [finding.id for finding in findings(text)]


def test_calls_are_concurrent() -> None:
    """All calls perform their effects before the first answer, and each continues when its answer comes."""
    machine = machine_of("(parallel-map (begin (sleep item) (sleep (* 10 item)) item) '(1 2 3))")
    performed = [drained.args["seconds"] for drained in run_ready(machine)]
    assert performed == [1, 2, 3]
    assert machine.resume({}, 2).args == {"seconds": 20}  # type: ignore[union-attr]
    assert machine.resume({}, 4).__class__.__name__ == "Waiting"
    assert machine.resume({}, 1).args == {"seconds": 10}  # type: ignore[union-attr]
    for seq in (5, 3):
        machine.resume({}, seq)
    (last,) = machine.waiting
    done = machine.resume({}, last)
    assert isinstance(done, Done)
    assert done.value == [1, 2, 3]


def run_ready(machine: Machine) -> list[Any]:
    effects = []
    while machine.is_ready:
        outcome = machine.resume()
        assert isinstance(outcome, Effect)
        effects.append(outcome)
    return effects


def test_fault_has_the_span_in_the_called_function() -> None:
    """The backtrace contains `parallel-map`."""
    fault = finish(machine_of("(define (f x) (/ 1 x))\n(list\n  (parallel-map f '(1 0)))"))
    assert isinstance(fault, Fault)
    assert fault.span is not None
    assert fault.span[1:3] == (1, 15)
    assert [line.split("(")[0].split(",")[0] for line in fault.trace_lines()] == ["in `program`", "in `f`"]


def test_evaluate_runs_calls_sequentially() -> None:
    """`llc.evaluate` needs no host and gives the same values."""
    text = "(parallel-map (begin (sleep 0.001) (* n item)) '(1 2 3))"
    assert llc.evaluate(text, {"n": 2}) == [2, 4, 6]
    with pytest.raises(llc.FlowError, match="division-by-zero"):
        llc.evaluate("(parallel-map (/ 1 item) '(1 0 2))")


def test_ten_thousand_concurrent_calls() -> None:
    assert value_of("(length (parallel-map (begin (sleep 0) item) (range 10000)))") == 10_000


CONFIGURED = """
(define (maximum) (get-field *loop-config* 'max-iterations))
(define (run count)
  (director-evaluator-loop
    (max-iterations count) (initial-director-input 0)
    (director (lambda (input n) input))
    (executor (lambda (plan n) (let ((before (maximum))) (now) (list before (maximum)))))
    (evaluator (lambda (result plan n) (now) null))
    (controller (lambda (feedback plan result n) (list 'continue n)))))
(define (inner n) (let ((each (run n))) (list each (maximum))))
(define (outer)
  (director-evaluator-loop
    (max-iterations 9) (initial-director-input 0)
    (director (lambda (input n) (list (parallel-map inner (list 1 2 3)) (maximum))))
    (executor (lambda (plan n) plan))
    (evaluator (lambda (result plan n) null))
    (controller (lambda (feedback plan result n) (list 'stop result)))))
(let* ((first (parallel-map run (list 1 2 3))) (nested (outer)))
  (list first nested *loop-config*))
"""


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
@pytest.mark.parametrize("through_snapshots", [False, True])
def test_loop_configuration_is_local_to_its_strand(tier: str, through_snapshots: bool) -> None:
    """Concurrent director loops see their own configuration; afterwards the outer one is restored."""
    machine = Machine(machine_of(CONFIGURED).image, tier=tier)
    outcome = None
    while not isinstance(outcome, Done):
        while machine.is_ready:
            outcome = machine.resume()
            assert isinstance(outcome, Effect), outcome
        if through_snapshots:
            stored = json.dumps(machine.snapshot())
            machine = Machine.restore(machine.image, json.loads(stored), tier=tier)
            assert json.dumps(machine.snapshot()) == stored
        outcome = machine.resume({"time": 0}, [*machine.waiting][-1])
    each = [[count, count] for count in (1, 2, 3)]
    assert outcome.value == [each, [[[one, 9] for one in each], 9], None]
