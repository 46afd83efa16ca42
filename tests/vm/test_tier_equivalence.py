"""Generated flows that use the library behave the same in every tier. `make fuzz` runs many."""

from __future__ import annotations

import pytest
from flow_runs import machine_of
from hypothesis import given
from hypothesis import strategies as st
from library_programs import LibraryGenerator
from shrinking import shrink
from tiers import LAWS, assert_flow_tiers_agree, assert_tiers_agree_at_any_tick

from llc.vm.code.image import Image

QUANTA = st.integers(1, 60)
TURNS = st.integers(0, 1 << 24)


def image_of(text: str) -> Image:
    return machine_of(text).image


@LAWS
@given(st.integers(0, 1 << 48), QUANTA, TURNS)
def test_library_flows_behave_the_same(seed: int, quantum: int, turns: int) -> None:
    """Lists, maps and strings are created, changed and passed in all ways."""
    assert_flow_tiers_agree(image_of, LibraryGenerator(seed).program(), quantum, turns)


# {change} sets an entry of a map to which a global or captured variable refers.
OWNERS = (
    '(define g (dict ("k" 0)))\n(define (f i) {use})\n(list (try (f 1) (catch e (get e "message"))) (f 2) g)',
    '(define (f i) (let ((g (dict ("k" 0)))) (let ((h (lambda () g))) (list {use} (h) g))))\n'
    "(list (f 1) (f 2))",
)
USES = (
    "(begin {change} g)",
    "(list g {change} g)",
    "(list (loop () g) {change})",
    "(let ((o g)) (begin {change} (list o g)))",
    "(let ((o g)) (list {change} o))",
    '(let ((o {change})) (begin (set! g (put g "u" 8)) o))',
    "(begin (for-each (lambda (x) {change}) (list 1 2 3)) g)",
    "(map (lambda (x) {change}) (list 1 2))",
)
MAPS = ("g", "(let ((a g)) a)", "(loop () g)", "(begin (now) g)", '(put g "y" 2)')
KEYS = ('"k"', '"z"', "(to-string (length (keys g)))", '(begin (set! g (put g "q" 5)) "k")', "1")
VALUES = (
    "1",
    "g",
    "(loop () g)",
    "(let ((o g)) (lambda () o))",
    '(let ((o g)) (put o "w" 1))',
    '(get g "k" 3)',
    '(begin (set! g (put g "h" 0)) g)',
)
CHANGES = st.builds("(set! g (put {} {} {}))".format, *map(st.sampled_from, (MAPS, KEYS, VALUES)))
HELD = st.builds(
    lambda owner, use, change: owner.format(use=use.format(change=change)),
    st.sampled_from(OWNERS),
    st.sampled_from(USES),
    CHANGES,
)


@LAWS
@given(HELD, QUANTA, TURNS)
def test_shared_maps_behave_the_same(text: str, quantum: int, turns: int) -> None:
    """Each way to share a map with each way to change it."""
    assert_flow_tiers_agree(image_of, text, quantum, turns)


@pytest.mark.parametrize(
    "text",
    [
        # Whether the function returns depends on its inferred result.
        "(define (f1 n a) (if <= (f1 (f1 n a) sort) (reduce n a)))\n((f1 false list))",
    ],
)
def test_earlier_counterexamples_behave_the_same(text: str) -> None:
    """Flows that once behaved differently or did not end."""
    for quantum in (1, 3, 7, 200):
        assert_flow_tiers_agree(image_of, text, quantum, 0b0110100110)


# Tail calls of inlined functions: the frame of the caller is gone, although both share the generated code.
TAIL_CALLS = (
    # Out of a loop, out of an inlined function, and out of the callee of a tail call.
    """(define (node a b) (list a b (modulo a b)))
    (define (make a b) (if (< a b) (node b a) (node a b)))
    (define (next i) (make (+ i 1) (- i 3)))
    (let go ((i 0) (kept nil)) (if (= i 6) kept (go (+ i 1) (cons (try (next i) (catch e e)) kept))))""",
    # With captures, through a variable, and with the answer of an effect.
    """(define (twice f x) (f (f x)))
    (define (adder n) (let ((m (+ n 1))) (lambda (x) (let ((y (now))) (list m x y)))))
    (define (both n) (let ((add (adder n)) (unused (list n))) (twice add n)))
    (list (both 1) (both "a"))""",
    # Faults below dead frames, which spans and backtraces omit.
    """(define (last x) (+ (first x) 1))
    (define (middle x) (let ((y (list x x))) (last (first y))))
    (define (outer x) (let ((kept (list 7 x))) (+ 1 (middle (second kept)))))
    (list (try (outer (list 1)) (catch e e)) (try (outer (list "s")) (catch e e)) (outer 3))""",
    # Library functions in tail position, with an unknown function.
    """(define (total f xs) (reduce f 0 (map f xs xs)))
    (define (pick f) (if (null? f) (lambda (a b) (+ a b)) f))
    (list (total (pick nil) (list 1 2 3)) (total (pick -) (list 1 2 3))
          (try (total (pick 4) (list 1)) (catch e (get e "kind"))))""",
)

# Inlined functions in functions that catch faults: faults of the inlined function and of its callees go to
# the handler of the calling state, and the caller's slots have their values at the call.
HANDLERS = (
    """(define (half n) (if (odd? n) (error 'odd (string-append "n " n)) (quotient n 2)))
    (define (quarter n) (let ((h (half n))) (half h)))
    (define (safe n) (let ((m (half (* 2 n)))) (try (list m (quarter n)) (catch e (list m e)))))
    (map safe (range 0 9))""",
    # In a loop of the catching function, where one fault is raised again and one is raised by a handler.
    """(define (check i) (cond ((= i 3) (error 'three "x")) ((= i 5) (first i)) ((= i 6) (now))
                            (else (* i i))))
    (define (run i kept)
      (if (= i 8) kept
          (let* ((one (+ (check 1) i))
                 (two (try (check i)
                        (catch e (if (= i 5) (try (error e) (catch again (list one again))) (check 2))))))
            (run (+ i 1) (cons (list one two) kept)))))
    (list (run 0 nil) (try (run 3 (check 1)) (catch e e)))""",
    # Tail calls inside `try`, after which no frame of the caller is left.
    """(define (last x) (+ x 1))
    (define (middle x) (if (string? x) (last x) (let ((y (last x))) (last y))))
    (define (outer x) (try (middle x) (catch e (let ((z (last 1))) (list z e)))))
    (list (outer 1) (outer "s") (map outer (list 1 "t")))""",
)

# Primitives as values, inlined into the functions that apply them: where fuel ends, a frame of such a
# function has its argument list.
OPERATIONS = (
    """(define (total f xs) (reduce f 0 (map f xs xs)))
    (define (kind f xs) (try (total f xs) (catch e e)))
    (list (total + (list 1 2 3)) (total - (list 1 2 3)) (reduce max 0 (list 3 4 1)) (kind * (list 1 "x"))
          (kind modulo (list 1 0)))""",
    # Maps and lists with one reference, and with several.
    """(define start (dict ("k" 0)))
    (define (set f map) (let ((made (f map "k" (list 1)))) (list made map)))
    (list (set put start) (reduce cons nil (list 1 2)) (reduce append nil (list (list 1) (list 2))) start)""",
    # In tail position, with one operand and in `try`; too few and too many arguments.
    """(define (up f x) (f x))
    (define (safe f x) (try (list (f x) (up f x)) (catch e (get e "message"))))
    (list (safe upper "a") (safe upper 1) (safe length (list 1)) (safe not null) (safe modulo 3) (safe list 3)
          (map string? (list 1 "a")) (filter number? (list 1 "a" 2.5)) (now))""",
    # Lists of concatenated texts, and comparisons with integers.
    """(define (f i)
      (let ((n (list (string-append "a" i) i))) (case (modulo (first (rest n)) 3) ((0) n) (else i))))
    (define (same x) (list (equal? x 0) (equal? 1 x) (equal? (length (list x)) x)))
    (let ((kept (map f (list 0 1 3 0))))
      (list kept (map same (list 0 1 true false "a" 1.0 null (list 1) (now)))))""",
)


@pytest.mark.parametrize("text", [*TAIL_CALLS, *OPERATIONS, *HANDLERS])
@pytest.mark.parametrize("quantum", [1, 4, 60])
def test_inlined_calls_behave_the_same(text: str, quantum: int) -> None:
    """At any end of fuel a snapshot has the remaining frames with the same slots."""
    assert_flow_tiers_agree(image_of, text, quantum, 0b0110100110)
    if quantum == 1:
        assert_tiers_agree_at_any_tick(image_of(text), [], 400)


FLOATS = (
    "0.5",
    "-0.0",
    "1e308",
    "(- (* 1e308 10) (* 1e308 10))",
    "3",
    "0",
    "(expt 2 70)",
    "(expt 2 1100)",
    "true",
)


@LAWS
@given(
    st.sampled_from(["+", "-", "*", "/", "<", ">=", "="]),
    st.lists(st.sampled_from((*FLOATS, "a", "b", "(* 2.0 a)", "(- b 0.5)")), min_size=2, max_size=3),
    st.sampled_from(FLOATS),
    st.sampled_from(FLOATS),
    QUANTA,
)
def test_floats_behave_the_same(name: str, operands: list[str], a: str, b: str, quantum: int) -> None:
    """Each operation on floats, integers of any size and other types, in a loop where types change."""
    text = f"""(define (f a b) ({name} {" ".join(operands)}))
    (define (g i a b kept)
      (if (= i 4) kept (g (+ i 1) b a (cons (to-string (try (f a b) (catch e (get e "kind")))) kept))))
    (g 0 {a} {b} nil)"""
    assert_flow_tiers_agree(image_of, text, quantum, 0b0110)


def test_a_failing_program_is_shrunk() -> None:
    """Parts that do not contribute to the failure are removed."""
    text = '(define (f n) (list n "a b" (g 1)))\n(let ((x (f 3))) (begin (f x) (g (car nil))))'
    assert shrink(text, lambda less: "(car" in less) == "(car)"
    assert shrink(text, lambda less: '"a b"' in less and "f" in less) == '(f "a b")'
