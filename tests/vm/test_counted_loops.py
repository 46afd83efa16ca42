"""Counted loops in the JIT tier run several iterations at a time with unchanged results."""

from __future__ import annotations

import pytest
from flow_runs import machine_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tiers import assert_tiers_agree, assert_tiers_agree_at_any_tick, outcome_data

from llc.vm.jit.model import counted_loop
from llc.vm.tiered import Machine
from llc.vm.values import bounds

LAWS = settings(
    deadline=None, max_examples=30, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)

HEAD = """
(define (bump x) (+ x 1))
(define (two x) (bump (bump x)))
(define (small? x) (< x 3))
(define (weigh x) (if (odd? x) (bump x) (* x x)))
(define total 0)
(define (note! x) (set! total (+ total x)))
(define (count-up) (let ((n 0)) (lambda () (set! n (+ n 1)) n)))
(define tick! (count-up))
"""
# Loops as recursive functions and as forms, with various bodies and exits.
SHAPES = (
    "(define (go i acc end items) {body}) (define (start first end) (go first 0 end {items}))",
    "(define (start first end) (loop ((i first) (acc 0) (end end) (items {items})) {loop_body}))",
    "(define (start first end) (let ((items {items})) (loop ((i first) (acc 0)) {short_body})))",
    "(define (start first end) (let ((items {items})) (let go ((acc 0) (i first)) {turned_body})))",
    "(define (start first end) (loop ((k 0) (acc 0)) (if (< k 3) (recur (+ k 1) (+ acc (loop ((i first) "
    "(acc k) (end end) (items {items})) {loop_body}))) acc)))",
    "(define (go i acc end items) (if (< i end) (go (+ i 1) (if (odd? i) acc {acc}) end items) acc)) "
    "(define (start first end) (+ (go first 0 end {items}) (go 0 1 4 (list 1 2 3 4))))",
)
BODIES = (
    "(if {test} {again} {exit})",
    "(if {test} (if {early} {exit} {again}) {exit})",
    "(if {test} (if {early} {again} {again}) (list i acc))",
    "(cond ((not {test}) {exit}) ({early} (list 'early i acc)) (else {again}))",
    "(if {test} (let ((item (nth i items))) (if {early} (list item i) {again})) {exit})",
    "(if {test} (begin {effect} {again}) {exit})",
    "(if {test} (begin {effect} (if {early} (begin {effect} {again}) {again})) {exit})",
    "(let ((old acc)) (if {test} (begin {effect} {again}) (list old i)))",
)
TESTS = (
    *("(< i end)", "(< i end)", "(<= i end)", "(> end i)", "(not (>= i end))", "(not (= i end))"),
    *("(> i end)", "(>= i end)", "(< i 4)", "(< i 4.5)", "(< i (length items))", "(< i (+ end 0))"),
)
NEXTS = (
    *("(+ i 1)", "(+ i 1)", "(+ 1 i)", "(- i -1)", "(- i 1)", "(+ i 2)", "(+ i 1.0)", "(bump i)"),
    *("(if (= i 2) 4 (+ i 1))", "(let ((next (+ i 1))) next)", "(+ i (nth 0 items))"),
)
ACCS = (
    *("(+ acc i)", "(+ acc (nth i items))", "(bump acc)", "(two acc)", "(* acc i)", "(tick!)", "(- i 1)"),
    *("(/ 6 (- 2 i))", "(+ acc (weigh i))", "i", "(+ i 1)", "(modulo (+ acc i) 7)", "(* (nth i items) 3)"),
    *("(if (small? i) acc (first items))", "(cons i nil)", '(string-append "a" i)'),
)
ENDS = ("end", "end", "end", "(- end 1)", "(if (= i 2) (+ end 1) end)", "4")
ITEMS = ("items", "items", "items", "(cons i items)", "(if (odd? i) (cons acc items) items)", "(rest items)")
EARLIES = ("(= i 3)", "(small? i)", "(odd? (nth i items))", "(> acc 9)", "(< i 2)", "(= (two i) 5)")
EXITS = ("acc", "(list acc i)", "(list i total (reverse items))", "(+ acc (nth 9 items))", "(bump i)")
EFFECTS = (
    *("(note! i)", "(tick!)", "(log-message i)", "(now)", "(set! acc (+ acc 1))", "(note! (nth i items))"),
    *("(set! i (+ i 1))", '(if (= i 2) (error "two" i) 1)', "(set! items (cons i items))"),
)
LISTS = (
    *("(list 3 1 4 1 5)", "(list 3 1 4 1 5)", "(range 0 8)", '(list 1 2.5 "x" null true)', "nil"),
    "(cons 1 (cons 2 (cons 3 nil)))",
)
FIRSTS = ("0", "0", "0", "1", "-2", "5", "2.0", "100000000000000000000", "true")
LASTS = ("4", "5", "9", "0", "-3", "3.5", "100000000000000000003", "null")
CALLS = (
    "(start {first} {end})",
    "(list (start 0 3) (start {first} {end}))",
    '(try (start {first} {end}) (catch e (list total (get e "message"))))',
    '(list (try (start {first} {end}) (catch e (get e "message"))) (start 0 4) total)',
    "(map (lambda (k) (start k {end})) (list 0 1 {first}))",
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    def pick(options: tuple[str, ...]) -> str:
        return draw(st.sampled_from(options))

    parts = {"test": pick(TESTS), "early": pick(EARLIES), "exit": pick(EXITS), "effect": pick(EFFECTS)}
    acc, next_, end, items = pick(ACCS), pick(NEXTS), pick(ENDS), pick(ITEMS)
    body = pick(BODIES)
    bodies = {
        "body": body.format(again=f"(go {next_} {acc} {end} {items})", **parts),
        "loop_body": body.format(again=f"(recur {next_} {acc} {end} {items})", **parts),
        "short_body": body.format(again=f"(recur {next_} {acc})", **parts),
        "turned_body": body.format(again=f"(go {acc} {next_})", **parts),
    }
    shape = pick(SHAPES).format(acc=acc, items=pick(LISTS), **bodies)
    return f"{HEAD}{shape} {pick(CALLS).format(first=pick(FIRSTS), end=pick(LASTS))}"


MIN_BATCHES = st.sampled_from([0, 0, 2, 16])


@LAWS
@given(programs(), st.integers(1, 12), st.integers(0, 1 << 24), MIN_BATCHES)
def test_counted_loops_behave_the_same(text: str, quantum: int, turns: int, min_batch: int) -> None:
    """For any bound, step and body, and any switch between the tiers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_loop, "MIN_BATCH", min_batch)
        assert_tiers_agree(machine_of(text).image, quantum, [], turns)


@LAWS
@given(programs(), MIN_BATCHES)
def test_counted_loops_stop_at_any_tick(text: str, min_batch: int) -> None:
    """A batch of iterations ends where the fuel ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_loop, "MIN_BATCH", min_batch)
        assert_tiers_agree_at_any_tick(machine_of(text).image, [], 60)


TIERS = ("interpreter", "direct")
LONG = (
    "(reduce (lambda (a b) (+ a b)) 0 (map (lambda (x) (* x x)) (filter odd? (range 0 40))))",
    "(find (lambda (x) (> x 30)) (range 0 40))",
    "(map (lambda (x) (/ 6 (- 30 x))) (range 0 40))",
    '(try (for-each (lambda (x) (if (= x 33) (error "here" x) null)) (range 0 40))'
    ' (catch e (get e "message")))',
    "(define n 0) (let go ((i 40)) (if (> i 0) (begin (set! n (+ n i)) (go (- i 1))) n))",
    "(loop ((i 0) (s 0)) (if (< i 40) (recur (+ i 1)"
    " (loop ((j 5) (t s)) (if (= j 30) t (recur (+ j 1) (+ t i))))) s))",
)


@pytest.mark.parametrize("text", LONG)
def test_long_loops_stop_at_any_tick(text: str) -> None:
    """Many iterations, in batches of the usual size."""
    assert_tiers_agree_at_any_tick(machine_of(text).image, [], 150)


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("quantum", [1, 7, 40, 1000])
def test_long_loops_switch_tiers(text: str, quantum: int) -> None:
    """Each tier can continue a loop that the other started."""
    assert_tiers_agree(machine_of(text).image, quantum, [], 0b011010011)


@pytest.mark.parametrize("items", [20, 39, 40, 41, 60])
def test_list_limit_inside_a_batch(items: int) -> None:
    """The fault occurs at the first item beyond the limit, although items are not checked one by one."""
    text = "(map (lambda (x) (+ x 1)) (filter (lambda (x) (> x 2)) (range 0 43)))"
    own = (
        "(define (go i found) (if (< i 90) (go (+ i 1) (if (odd? i) (cons i found) found)) (reverse found)))"
        " (go 0 nil)"
    )
    for program in (text, own):
        image = machine_of(program).image
        bounds.set_bounds(items=items)
        try:
            outcomes = [(outcome_data(m.resume()), m.ticks) for m in (Machine(image, tier=t) for t in TIERS)]
        finally:
            bounds.set_bounds(items=1 << 23)
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("items", [4, 19, 20])
def test_list_beyond_the_limit_from_the_start(items: int) -> None:
    """After the limit was lowered, the fault is the same."""
    text = "(define (go i acc) (if (< i 50) (go (+ i 1) (cons i acc)) (reverse acc)))"
    image = machine_of(f"{text} (go 0 '({'1 ' * 20}))").image
    bounds.set_bounds(items=items)
    try:
        outcomes = [
            (outcome_data(m.resume()), m.ticks) for m in (Machine(image, fuel=500, tier=t) for t in TIERS)
        ]
    finally:
        bounds.set_bounds(items=1 << 23)
    assert outcomes[0] == outcomes[1]
