"""Lowering of flows to states: boxes, slots, names and failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llc.frontend.compile import Compiled, compile_text
from llc.frontend.core.library import LIBRARY, Defined
from llc.ir.nodes import Closure, Function, Prim, State, TailCall
from llc.ir.text import print_program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.machine.machine import Done, Effect
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault


def compiled(text: str) -> Compiled:
    result = compile_text(text, "test.sexp")
    assert [item for item in verify(result.program) if item.is_error] == []
    return result


def image(text: str) -> Image:
    return emit(compiled(text).program)


def outcome(text: str) -> Any:
    return Machine(image(text)).resume()


def value(text: str) -> Any:
    result = outcome(text)
    assert isinstance(result, Done), result
    return result.value


def ir(text: str) -> str:
    return print_program(compiled(text).program, spans=False)


def function(text: str, name: str = "program") -> Function:
    return compiled(text).program.function(name)


# --- slots and boxes --------------------------------------------------------------------------


def test_slots_are_named_after_variables() -> None:
    """Two variables of one name get a numeric suffix."""
    text = "(let ((total (now)) (rest (now))) (let ((total (list total rest))) (list total (now) total)))"
    assert function(text).locals[:3] == ("total", "rest", "total.2")


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        ("(let ((x (now))) (lambda () x))", False),
        ("(let ((x (now))) (set! x 1) x)", False),
        ("(let ((x (now))) (set! x 1) (lambda () x))", True),
        ("(let ((x (now))) (lambda () (set! x 1)))", True),
        ("(loop ((i 0)) (if (< i 3) (recur (+ i 1)) (lambda () i)))", False),
        ("(define (even n) (if (= n 0) true (odd (- n 1)))) (define (odd n) (not (even n))) even", False),
        ("(define (f) (g)) (define (g) x) (define x (now)) (f)", False),
        ("(define (f) x) (define y (f)) (define x (now)) y", True),
    ],
)
def test_only_assigned_or_early_captures_are_boxed(text: str, boxed: bool) -> None:
    """A variable that is not captured, or never assigned, is kept in its slot."""
    assert ("box(" in ir(text)) == boxed


def test_each_iteration_has_its_own_variables() -> None:
    """Closures made in a loop keep the variables that they captured, assigned or not."""
    text = """
        (define (calls fs) (map (lambda (f) (f)) fs))
        (list
          (calls (loop ((i 0) (fs nil)) (if (< i 3) (recur (+ i 1) (cons (lambda () i) fs)) fs)))
          (calls (loop ((i 0) (fs nil))
                   (if (< i 3)
                       (recur (+ i 1) (cons (lambda () (set! i (+ i 10)) i) fs))
                       fs))))
    """
    assert value(text) == [[2, 1, 0], [12, 11, 10]]


def test_operands_are_evaluated_before_later_assignments() -> None:
    """An assignment in a later operand does not change an earlier one."""
    assert value("(let ((x 1)) (list x (set! x 2) x (begin (set! x 3) x) x))") == [1, 2, 2, 3, 3]


def test_recur_assigns_all_variables_at_once() -> None:
    """`recur` evaluates every argument before it binds one."""
    assert value("(loop ((a 1) (b 2) (n 0)) (if (< n 3) (recur b a (+ n 1)) (list a b)))") == [2, 1]


# --- functions --------------------------------------------------------------------------------


def test_unused_functions_are_omitted() -> None:
    """Only reachable functions of the library and of the author are compiled."""
    program = compiled(
        "(define (used) (map list (list 1))) (define (unused) (filter list nil)) (used)"
    ).program
    names = {item.name for item in program.functions}
    assert {"program", "used", "map"} <= names
    assert not names & {"unused", "filter"}


def test_known_callee_is_called_directly() -> None:
    """The call of a function that is bound once uses no closure."""
    text = "(define (f n) (if (= n 0) (now) (f (- n 1)))) (f 3)"
    (call,) = (s.exit for s in function(text, "f").states if isinstance(s.exit, TailCall) and s.exit.args)
    assert isinstance(call.callee, Closure)
    assert (call.callee.function, call.callee.captures) == ("f", ())


def test_names_of_inner_functions() -> None:
    """An inner function is `outer/inner`; an anonymous one is named by its line."""
    text = (
        "(define (outer x)\n  (define (inner y) (list x y (now)))\n  (list inner (lambda () x)))\n(outer 1)"
    )
    names = {item.name for item in compiled(text).program.functions}
    assert {"outer", "outer/inner", "outer/lambda-3"} <= names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(define (f a &optional (b 2) (c (+ a b))) (list a b c)) (list (f 1) (f 1 5) (f 1 5 7))", None),
        ("(define (f a &rest more) (list a more)) (list (f 1) (f 1 2 3))", [[1, []], [1, [2, 3]]]),
        ("(define (f &optional (a 1) &rest more) (list a more)) (list (f) (f 2 3))", [[1, []], [2, [3]]]),
        (
            "(define (f &optional (a 1)) (lambda () (set! a (+ a 1)) a)) (let ((g (f 5))) (list (g) (g)))",
            [6, 7],
        ),
        ("(apply + 1 2 (list 3 4))", 10),
        ("(map apply (list + *) (list (list 1 2) (list 3 4)))", [3, 12]),
        ("(list (map - (list 1 2)) (apply max (list 3 9 4)))", [[-1, -2], 9]),
        ("(define (f x) x) (eq? f f)", True),
    ],
)
def test_parameter_passing(text: str, expected: Any) -> None:
    """Optional and rest parameters, spread arguments, library functions as values."""
    assert value(text) == (expected if expected is not None else [[1, 2, 3], [1, 5, 6], [1, 5, 7]])


def test_too_many_arguments_are_a_fault_of_the_call() -> None:
    """Also if only some parameters are optional."""
    diagnostic = outcome("(define (f a &optional (b 2)) a) (let ((g (if (now) f f))) (apply g (list 1 2 3)))")
    assert isinstance(diagnostic, Effect)
    text = "(define (f a &optional (b 2)) a) (apply f (list 1 2 3))"
    diagnostic = outcome(text)
    assert isinstance(diagnostic, Fault)
    assert (diagnostic.kind, diagnostic.message) == ("arity", "`f` takes at most 2 arguments")


# --- recursion and tail calls -----------------------------------------------------------------


def test_recursion_is_as_deep_as_memory_allows() -> None:
    """A million nested calls succeed."""
    assert value("(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (count 300000)") == 300_000


@pytest.mark.parametrize(
    "text",
    [
        "(define (f n) (if (= n 0) 'end (f (- n 1)))) (f 5000)",
        "(define (f n) (cond ((= n 0) 'end) (else (begin 1 (let ((m (- n 1))) (g m))))))"
        "(define (g n) (and true (or false (f n)))) (f 5000)",
        "(letrec ((f (lambda (n k) (if (= n 0) (k 'end) (f (- n 1) (lambda (x) (k x))))))) (f 5000 list))",
        '(define (f n) (try (error "x") (catch e (if (= n 0) \'end (f (- n 1)))))) (f 5000)',
        "(loop ((n 5000)) (if (= n 0) 'end (recur (- n 1))))",
        "(define (f n) (if (= n 0) 'end (apply apply (list f (list (- n 1)))))) (f 5000)",
        "(define (f n) (if (= n 0) 'end (apply apply (list apply f (list (list (- n 1))))))) (f 5000)",
    ],
)
def test_tail_calls_use_constant_memory(text: str) -> None:
    """Every form with a tail position, exception handlers included."""
    machine = Machine(image(text), fuel=0)
    deepest = 0
    while not isinstance(machine.resume(), Done):
        deepest = max(deepest, len(machine.frames()))
        machine.refuel(7)
    assert deepest <= 3


# --- faults -----------------------------------------------------------------------------------


def test_call_in_try_is_not_a_tail_call() -> None:
    """A fault of the called function is caught."""
    assert value('(define (f) (error "no")) (try (f) (catch e (get-field e "message")))') == "no"


def test_fault_does_not_undo_assignments() -> None:
    """`try` is not a transaction."""
    assert value("(let ((x 1)) (try (begin (set! x 2) (/ 1 0)) (catch e (list x (get-field e 'kind)))))") == [
        2,
        "division-by-zero",
    ]


def test_finally_runs_after_value_and_fault() -> None:
    """The fault is raised again after `finally`."""
    text = """
        (define log nil)
        (define (say x) (set! log (cons x log)) x)
        (list (try (say 1) (finally (say 2)))
              (try (try (begin (say 3) (error "no")) (finally (say 4))) (catch e (say 5)))
              log)
    """
    assert value(text) == [1, 5, [5, 4, 3, 2, 1]]


def test_read_before_initialisation_is_a_fault() -> None:
    """An uninitialised variable has no value, not null."""
    diagnostic = outcome("(define (f) x) (define y (f)) (define x 1) y")
    assert isinstance(diagnostic, Fault)
    assert (diagnostic.kind, diagnostic.message) == ("uninitialised", "`x` is used before it has its value")
    assert diagnostic.span is not None
    assert diagnostic.span[:3] == ("test.sexp", 1, 13)


def test_backtrace_has_source_names_and_positions() -> None:
    """Frames have function names; states are named after their call and have its position."""
    text = '(define (inner x)\n  (+ x 1))\n(define (outer x)\n  (list (inner x)))\n(list\n  (outer "a"))\n'
    found = outcome(text)
    assert isinstance(found, Fault)
    assert found.trace_lines() == [
        "in `program`, state `outer-6` (test.sexp:6:3)",
        "in `outer`, state `inner-4` (test.sexp:4:9)",
        "in `inner`, state `start` (test.sexp:2:3)",
    ]


# --- states -----------------------------------------------------------------------------------


def names(states: tuple[State, ...]) -> list[str]:
    return [state.name for state in states]


def test_state_names() -> None:
    """A state is named after its call or effect, otherwise after the reason of the jump."""
    text = "(define (check)\n  (sleep 1)\n  (if (now)\n    (list (now))\n    (sleep 2)))\n(list (check))"
    assert names(function(text, "check").states)[:3] == ["sleep-2", "now-3", "if-3"]


def test_constant_folding() -> None:
    """Literals, variables bound to them and tests of them are folded; operations that may fault are kept."""
    text = "(define limit 10) (define (f) (if (> limit 5) (* limit 2) (now))) (f)"
    assert "select" not in ir(text)
    assert len(function(text, "f").states) == 1
    assert isinstance(outcome("(/ 1 0)"), Fault)
    assert isinstance(outcome('(+ 1 "a")'), Fault)


@pytest.mark.parametrize(
    "text",
    [
        "(+ " * 700 + "1" + " (car (list 1)))" * 700,
        "(list " * 700 + "(now)" + ")" * 700,
        "(if (now) 1 " * 700 + "2" + ")" * 700,
        "(let ((x (list 1))) " * 700 + "x" + ")" * 700,
        "(lambda () " * 700 + "1" + ")" * 700,
        "(cond " + "((= (list) 1) 2) " * 5000 + "(else 3))",
        "(or " + "(= (list) 1) " * 5000 + "3)",
        "(let* (" + "".join(f"(x{n} (list {n})) " for n in range(5000)) + ") x4999)",
        "(begin " + "(now) " * 5000 + ")",
        "(list " + "(car (list 1)) " * 5000 + ")",
    ],
    ids=["sums", "lists", "ifs", "lets", "lambdas", "cond", "or", "let*", "begin", "operands"],
)
def test_deep_and_long_programs_compile(text: str) -> None:
    """The verifier accepts the compiled program."""
    image(text)


# --- snapshots --------------------------------------------------------------------------------

MIXED_PROGRAM = """
(define (make-counter start)
  (let ((n start)) (lambda () (set! n (+ n 1)) n)))
(define counter (make-counter 10))
(define shared (list 1 2 3))
(define ring (let ((self nil)) (set! self (lambda () (if (null? self) 'lost 'found))) self))
(define (walk n)
  (if (= n 0)
      (list (now))
      (let ((deeper (walk (- n 1))))
        (append (list (counter) (length shared)) deeper))))
(list (try (begin (now) (error "stop")) (catch e (list (get-field e "message") (now))) (finally (counter)))
      (walk 3)
      (ring)
      (map (lambda (x) (begin (now) (* x 2))) shared))
"""


def test_restore_at_every_effect_changes_nothing() -> None:
    """Closures, boxes, cycles, `try`, recursion and shared lists survive a snapshot."""
    program = image(MIXED_PROGRAM)

    def run(is_restored: bool) -> tuple[Any, list[str], int]:
        machine = Machine(program)
        kinds: list[str] = []
        answer = None
        while True:
            stop = machine.resume(answer)
            if isinstance(stop, Done):
                return stop.value, kinds, machine.ticks
            assert isinstance(stop, Effect), stop
            kinds.append(stop.kind)
            answer = {"time": f"t{stop.seq}", "elapsed_ms": 0}
            if is_restored:
                machine = Machine.restore(program, json.loads(json.dumps(machine.snapshot())))

    assert run(True) == run(False)
    assert run(False)[0] == [
        ["stop", "t2"],
        [14, 3, 13, 3, 12, 3, "t3"],
        "found",
        [2, 4, 6],
    ]


def test_fault_has_the_innermost_span() -> None:
    diagnostic = outcome("(list 1\n  (+ 2\n     (car (list))))")
    assert isinstance(diagnostic, Fault)
    assert diagnostic.span is not None
    assert diagnostic.span[1:3] == (3, 6)


def test_nesting_of_primitives_is_limited() -> None:
    """A deep sum is split into temporaries, in evaluation order."""
    body = function("(+ " * 150 + "(car (list 1))" + " 1)" * 150).states[0].body
    assert any(isinstance(part.value, Prim) for part in body if hasattr(part, "value"))


# --- faults within the library ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("(sleep -1)", (1, 1)),
        ("(map 5 (list 1))", (1, 1)),
        ("(define (order xs)\n  (sort xs))\n(order (list 1 null))", (2, 3)),
        ("(define (each f xs)\n  (if (null? xs) 0\n      (for-each f xs)))\n(each 5 '(1))", (3, 7)),
    ],
)
def test_library_fault_has_the_span_of_the_last_call(text: str, place: tuple[int, int]) -> None:
    """The frame of the author's function is in the backtrace."""
    fault = outcome(text)
    assert isinstance(fault, Fault)
    assert fault.span is not None
    assert (fault.span[0], fault.span[1:3]) == ("test.sexp", place)


def test_library_makes_no_tail_calls_of_its_arguments() -> None:
    """A library function waits in one frame for the function that it is given; only `apply` makes a tail
    call.
    """
    names = [name for name, entry in LIBRARY.items() if isinstance(entry, Defined) and ":" not in name]
    program = compiled(f"(length (list {' '.join(names)}))").program
    last = [state.exit for function in program.functions for state in function.states]
    callees = [exit_.callee for exit_ in last if isinstance(exit_, TailCall)]
    assert callees
    assert all(isinstance(callee, Closure) for callee in callees)


@pytest.mark.parametrize(
    ("next", "kind"),
    [
        ("(recur (+ i text) (/ 1 i))", "type-error"),
        ("(recur (/ 1 i) (+ i text))", "division-by-zero"),
        ("(recur j (/ 1 i))", "division-by-zero"),
    ],
)
def test_recur_evaluates_from_left_to_right(next: str, kind: str) -> None:
    """The first of several faults is raised, whichever variables the others read."""
    fault = outcome(f'(define (f text) (loop ((i 0) (j 0)) {next})) (f "a")')
    assert isinstance(fault, Fault)
    assert fault.kind == kind


def test_loop_variables_use_values_of_the_previous_iteration() -> None:
    text = "(loop ((a 1) (b 2) (c 3) (left 4)) (if (= left 0) (list a b c) (recur b c (+ a b) (- left 1))))"
    a, b, c = 1, 2, 3
    for _ in range(4):
        a, b, c = b, c, a + b
    assert value(text) == [a, b, c]
