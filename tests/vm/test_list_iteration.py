"""Iteration over lists with items of any type: type inference of the JIT tier is sound."""

from __future__ import annotations

from flow_runs import machine_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tiers import assert_tiers_agree, assert_tiers_agree_at_any_tick

LAWS = settings(
    deadline=None, max_examples=30, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)

SHAPES = (
    "(define (walk items i acc) {walk}) (define (start items) (walk items 1 2))",
    "(define (start items) (let walk ((items items) (i 1) (acc 2)) {walk}))",
    "(define (walk items i acc) {walk}) (define (start items) (loop ((k 0) (found nil)) (if (< k 3) "
    "(recur (+ k 1) (cons (walk items k 1) found)) found)))",
    "(define (start items) (loop ((items items) (i 1) (acc 2)) {loop}))",
    "(define (safe? items i acc) {walk}) (define (start items) (let next ((q 0) (sum 0)) (if (> q 3) sum "
    "(if (safe? items q 1) (next (+ q 1) (+ sum 1)) (next (+ q 1) sum)))))",
)
BODIES = (
    "(if ({empty} items) {end} (let ((x (first items))) (if {test} {again} {other})))",
    "(or ({empty} items) (let ((x (first items))) (and {test} {test2} {again})))",
    "(if ({empty} items) {end} (let* ((x (first items)) (y {value})) (if {test} {other} {again})))",
    "(if ({empty} items) {end} (let ((x (first items))) (set! x {value}) (if {test2} {again} {again})))",
    "(if (pair? items) (let* ((x (first items)) (y (if {test} {value} x))) (begin (set! y {value}) {again})) "
    "{end})",
)
TESTS = (
    *(
        "(not (= x i))",
        "(not (= x (+ i acc)))",
        "(< x i)",
        "(and (> x 0) (< x 9))",
        "(even? x)",
        "(number? x)",
    ),
    *("(equal? x 3)", "(null? x)", "(= (* x x) (+ x x))", "(pair? x)", "(= (length items) 2)", "(list? x)"),
)
VALUES = (
    *("x", "(+ x 1)", "(* x x)", "(+ (* x x) (- x 1))", "(if (list? x) (first x) x)", "(cons x items)", "i"),
    *("(- x)", "(/ x 2)", "(rest items)", "(now)", "null"),
)
NEXTS = ("(rest items)",) * 4 + ("(rest (rest items))", "(if (= i 2) (cons i (rest items)) (rest items))")
LISTS = (
    *("(list 1 2 3 4)", "(cons 1 (cons 2 (cons 3 nil)))", "(list 1 2.5 3)", '(list 1 "a" 2)', "nil"),
    *("(range 0 12)", "(list true 1)", "(list (list 1 2) 3 null)", "(cons 5 (list 1 2 3))", "null", "7"),
    *("(list 2 100000000000000000000000 3)", "(cons 1 (range 0 9))", "(list 4.0 4)"),
)
CALLS = (
    "(start {list})",
    "(list (start {list}) (start (list 1 2 3)))",
    '(list (start (cons 1 nil)) (try (start {list}) (catch e (get e "message"))))',
    "(map start (list {list} (list 3 4)))",
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    def pick(options: tuple[str, ...]) -> str:
        return draw(st.sampled_from(options))

    value = pick(VALUES)
    arguments = (
        pick(NEXTS),
        pick(("(+ i 1)", "i", "(+ i x)", "(* i 2)")),
        pick(("acc", "(+ acc i)", "x", value)),
    )
    parts = {"test": pick(TESTS), "test2": pick(TESTS), "value": value, "empty": pick(("null?", "empty?"))}
    parts |= {"end": pick(("true", "acc", "(list i acc)")), "other": pick(("false", "x", "(list x i)"))}
    body = pick(BODIES)
    shape = pick(SHAPES)
    name = "safe?" if "safe?" in shape else "walk"
    text = shape.format(
        walk=body.format(again=f"({name} {' '.join(arguments)})", **parts),
        loop=body.format(again=f"(recur {' '.join(arguments)})", **parts),
    )
    return f"{text} {pick(CALLS).format(list=pick(LISTS))}"


@LAWS
@given(programs(), st.integers(1, 12), st.integers(0, 1 << 24))
def test_iteration_behaves_the_same(text: str, quantum: int, turns: int) -> None:
    """Integers mixed with other types, pairs with arrays and null, at any stop."""
    assert_tiers_agree(machine_of(text).image, quantum, [], turns)


@LAWS
@given(programs())
def test_iteration_stops_at_any_tick(text: str) -> None:
    """State and slots are the same."""
    assert_tiers_agree_at_any_tick(machine_of(text).image, [], 60)
