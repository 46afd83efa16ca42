"""In-place updates and other optimizations of the JIT tier do not change results."""

from __future__ import annotations

from typing import Any

import pytest
from flow_runs import machine_of
from hypothesis import given
from hypothesis import strategies as st
from tiers import LAWS, assert_tiers_agree, outcome_data

from llc.vm.code.image import Image
from llc.vm.jit.analysis.range_checks import RangeChecks
from llc.vm.jit.analysis.uniqueness import InPlace
from llc.vm.jit.codegen.translate import Translator
from llc.vm.jit.model.function import Function
from llc.vm.jit.runtime.tier import LiveStrand
from llc.vm.tiered import Machine
from llc.vm.values import bounds, maps

# Iterations that may or may not update a list and a map in place: other references may exist or be created.
ROUND = """
(define (mark map by) (put map "mark" by))
(define (twice map by) (let ((marked (mark map by))) (put marked "twice" (list map by))))
(define (go i items map kept)
  (if (= i 9)
      (list {end} map kept)
      (begin {before} (go (+ i 1) {items} {map} {kept}))))
(go 0 {first} (dict ("k" 1)) nil)
"""
FIRST = ("nil", "null", "(list 1 2)", "(cons 1 (cons 2 nil))", "(range 0 20)", '"none"')
BEFORE = (
    "null",
    "(log-message items)",
    "(now)",
    '(set! map (put map "set" i))',
    '(begin (set! map (put map "a" i)) (set! map (put map "b" kept)))',
)
ITEMS = (
    "items",
    "(cons i items)",
    "(cons map items)",
    "(cons items items)",
    "(let ((more (cons i items))) more)",
    "(let ((more (cons i items))) (cons more more))",
    "(if (odd? i) (cons i items) items)",
    "(if (odd? i) (cons i items) nil)",
    "(cons (length items) items)",
    "(reverse items)",
    "(append items (list i))",
    "(cons (/ 6 (- i 7)) items)",
)
MAPS = (
    "map",
    '(put map "k" i)',
    "(put map (to-string i) items)",
    '(put map "all" map)',
    '(put (put map "a" i) "b" (get map "a"))',
    '(let ((more (put map "m" i))) more)',
    '(if (even? i) (put map "e" i) map)',
    '(put map "f" (lambda () map))',
    "(mark map i)",
    "(twice map i)",
    '(put map (if (= i 7) i "n") i)',
)
KEPT = (
    "kept",
    "(cons map kept)",
    "(list map items)",
    '(put map "kept" i)',
    "(mark map kept)",
    "(twice map i)",
    '(let ((old map)) (cons (put old "x" i) (cons old kept)))',
    "(lambda () (cons items map))",
)
ENDS = ("items", "(reverse items)", "(length items)", "null")


def generated(pattern: str) -> st.SearchStrategy[str]:
    """Programs of a pattern, with any of the parts above."""
    return st.builds(
        lambda **parts: pattern.format(**parts),
        first=st.sampled_from(FIRST),
        before=st.sampled_from(BEFORE),
        items=st.sampled_from(ITEMS),
        map=st.sampled_from(MAPS),
        kept=st.sampled_from(KEPT),
        end=st.sampled_from(ENDS),
    )


@LAWS
@given(generated(ROUND), st.integers(1, 12), st.integers(0, 1 << 24))
def test_iterations_behave_the_same(text: str, quantum: int, turns: int) -> None:
    """For any references to the list or the map, any stop, and any tier afterwards."""
    assert_tiers_agree(machine_of(text).image, quantum, [], turns)


# A loop inside the iterations of another one, which starts with a new list.
INNER = """
(define (mark map by) (put map "marked" by))
(define (twice map by) (let ((marked (mark map by))) (put marked "twice" (list map by))))
(define (outer by kept)
  (if (= by 4) kept
      (let ((made (let go ((i 0) (items {first}) (map (dict)) (kept nil))
                    (if (> i (+ by 4)) {end} (go (+ i 1) {items} {map} {kept})))))
        (outer (+ by 1) (cons (list made {before}) kept)))))
(list (try (outer 0 nil) (catch e (list (get e "message") (get e "span")))) (outer 3 nil))
"""


@LAWS
@given(
    st.builds(
        lambda **parts: INNER.format(**parts),
        first=st.sampled_from(("nil", "nil", "null", "(list 1 2)")),
        before=st.sampled_from(("(length kept)", "(now)", "null")),
        items=st.sampled_from((*ITEMS, "(cons i items)", "(begin (now) (cons i items))")),
        map=st.sampled_from(MAPS),
        kept=st.sampled_from(("kept", "(cons i kept)", "(cons map kept)", "(cons items kept)")),
        end=st.sampled_from(
            (*ENDS, "(append (reverse items) kept)", "(list (reverse items) (reverse kept))")
        ),
    ),
    st.integers(1, 12),
    st.integers(0, 1 << 24),
)
def test_inner_iterations_behave_the_same(text: str, quantum: int, turns: int) -> None:
    """A list that grows in an inner loop, for any stop and any tier afterwards."""
    assert_tiers_agree(machine_of(text).image, quantum, [], turns)


def test_in_place_lists_of_inner_loops() -> None:
    """A list that the inner loop creates and only extends; no other."""
    text = """(define (go n)
      (let ((made (let next ((i 0) (items {first})) (if (= i n) {end} (next (+ i 1) {items})))))
        (list made made)))
      (go 9)"""
    for first, end, items, count in (
        ("nil", "(reverse items)", "(cons i items)", 1),
        ("nil", "items", "(cons i items)", 0),
        ("(list n)", "(reverse items)", "(cons i items)", 0),
    ):
        image = machine_of(text.format(first=first, end=end, items=items)).image
        translator = Translator(image)
        name = translator.version(function_of(image, "go").index, ("any",))
        assert translator.specialised(name).source.count("MAX_ITEMS") == count


@pytest.mark.parametrize(
    "text",
    [
        "(map (lambda (x) (* x x)) (range 0 9))",
        "(filter odd? (map (lambda (x) (if (= x 5) (now) x)) (range 0 9)))",
        "(map (lambda (x) (/ 1 (- x 5))) (range 0 9))",
        '(try (filter (lambda (x) (< 1 (/ 9 (- 5 x)))) (range 0 9)) (catch e (get e "message")))',
        "(map (lambda (x) (map (lambda (y) (list x y)) (list 1 2))) (list 1 2 3))",
        "(sort (list 3 1 2 9 4) (lambda (a b) (> a b)))",
    ],
)
@pytest.mark.parametrize("quantum", [1, 2, 5, 100])
def test_library_loops_behave_the_same(text: str, quantum: int) -> None:
    """Every state in which they can stop is a state of the machine."""
    assert_tiers_agree(machine_of(text).image, quantum, [], 0b0110100110)


def test_list_length_limit() -> None:
    """The item beyond the limit is detected before it is added, in either tier."""
    text = (
        "(define (go i items) (if (= i {}) (length (reverse items)) (go (+ i 1) (cons i items)))) (go 0 {})"
    )
    bounds.set_bounds(items=50)
    try:
        for count, first, is_done in (
            (50, "nil", True),
            (51, "nil", False),
            (48, "(list 1 2)", True),
            (49, "(list 1 2)", False),
        ):
            image = machine_of(text.format(count, first)).image
            outcomes = [
                outcome_data(Machine(image, tier=tier).resume()) for tier in ("interpreter", "direct")
            ]
            assert outcomes[0] == outcomes[1]
            assert (outcomes[0][0] == "done") == is_done
    finally:
        bounds.set_bounds(items=1 << 23)


LOOP = """
(define (round n items)
  (loop ((i 0) (items {first}) (map (dict ("k" 1))) (kept nil))
    (if (= i n)
        (list {end} map kept)
        (begin {before} (recur (+ i 1) {items} {map} {kept})))))
(define (mark map by) (put map "mark" by))
(define (twice map by) (let ((marked (mark map by))) (put marked "twice" (list map by))))
(list (round 9 nil) (round 0 nil) (map (lambda (n) (round n (list n))) (list 1 2)))
"""
LOOPS = st.builds(
    lambda **parts: LOOP.format(**parts),
    first=st.sampled_from(("nil", "null", "(list 1 2)", "items", "(reverse items)")),
    before=st.sampled_from(BEFORE),
    items=st.sampled_from(ITEMS),
    map=st.sampled_from(MAPS),
    kept=st.sampled_from(KEPT),
    end=st.sampled_from(ENDS),
)


@LAWS
@given(LOOPS, st.integers(1, 12), st.integers(0, 1 << 24))
def test_loops_behave_the_same(text: str, quantum: int, turns: int) -> None:
    """Loop forms instead of recursive functions."""
    assert_tiers_agree(machine_of(text).image, quantum, [], turns)


# A map that is built in batches of iterations, by functions that are inlined.
BUILD = """
(define kept nil)
(define (mark map by) (put map (string-append "m" (modulo by 5)) by))
(define (build items start) (reduce (lambda (map i) {change}) start items))
(define made (dict))
(list (try (build (range 0 60) made) (catch e (get e "message")))
      (build (list 1 2) (dict ("k" 1)))
      made kept)
"""


@pytest.mark.parametrize(
    "change",
    [
        "(put map (to-string i) i)",
        "(mark map i)",
        "(mark (mark map i) (+ i 1))",
        '(put map "old" (list map i))',
        '(if (= 0 (modulo i 7)) map (put (mark map i) "old" (if (= i 20) map i)))',
        "(begin (if (= i 30) (set! kept map) null) (mark map i))",
        '(let ((other (mark map i))) (put map "other" (if (odd? i) other i)))',
        '(put map "k" (/ 1 (- 40 i)))',
        "(if (= i 50) (dict (map map)) (mark map i))",
    ],
)
@pytest.mark.parametrize("quantum", [1, 7, 1000])
def test_maps_built_in_batches_behave_the_same(change: str, quantum: int) -> None:
    """Also if earlier versions of the map are referenced, read, or left by a fault."""
    assert_tiers_agree(machine_of(BUILD.format(change=change)).image, quantum, [], 0b0110100110)


def test_a_map_built_in_batches_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction whose function puts into its first argument changes one map."""
    copies = 0

    def count_copies(entries: Any) -> Any:
        nonlocal copies
        copies += 1
        return begin(entries)

    begin = maps.begin
    monkeypatch.setattr(maps, "begin", count_copies)
    for text in (
        "(reduce (lambda (made i) (put made (to-string i) i)) (dict) (range 0 3000))",
        "(reduce (lambda (made i) (update made (to-string i) (lambda (n) i))) (dict) (range 0 3000))",
    ):
        copies = 0
        monkeypatch.setattr(maps.MapVersion, "__init__", lambda *args: pytest.fail("a version"))
        machine = Machine(machine_of(f"(length (keys {text}))").image, tier="direct")
        assert outcome_data(machine.resume())[0] == "done"
        assert copies < 10


# Functions that reach each other and themselves by tail calls, with and without captures.
TURNS = """
(define (mark map by) (put map "mark" by))
(define (twice map by) (let ((marked (mark map by))) (put marked "twice" (list map by))))
(define (go i items map kept)
  (let next ((left (list i (+ i 1))) (items items) (map map) (kept kept) (by i))
    (cond ((> i 6) (list {end} map kept by))
          ((null? left) (come (+ i 1) {items} {map} {kept}))
          ((= i 3) (begin {before} (next (rest left) {items} map kept (+ i by))))
          (else (begin {before} (next (rest left) items {map} {kept} by))))))
(define (come i items map kept)
  (let ((stay (lambda (items) (go i items map {kept}))))
    (cond ((odd? i) (go i {items} map kept))
          ((= i 2) (stay {items}))
          ((= i 4) (come (+ i 1) items {map} (get map "k")))
          (else (let ((i (+ i 1))) (go i items {map} kept))))))
(define tried (try (go 0 {first} (dict ("k" 1)) nil) (catch e (list (get e "message") (get e "span")))))
(list tried (go 5 nil (dict) 0))
"""


@LAWS
@given(generated(TURNS), st.integers(1, 12), st.integers(0, 1 << 24))
def test_mutual_tail_calls_behave_the_same(text: str, quantum: int, turns: int) -> None:
    """At any stop each function has its own frame, and no frame remains."""
    assert_tiers_agree(machine_of(text).image, quantum, [], turns)


def test_mutual_tail_calls_leave_no_frames() -> None:
    """They are one loop in Python."""
    text = """
    (define (ping n sum) (if (= n 0) (error "done" sum) (pong (- n 1) (+ sum 1))))
    (define (pong n sum) (if (= n 0) sum (let again ((m 2)) (if (= m 0) (ping (- n 1) sum) (again (- m 1))))))
    (ping 9000 0)
    """
    image = machine_of(text).image
    machine = Machine(image, tier="direct", fuel=4_000)
    machine.resume()
    live = machine.strand.live
    assert isinstance(live, LiveStrand)
    frame, count = live.greenlet.gr_frame, 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    assert count < 20
    assert len(machine.frames()) == 1
    machine.refuel(None)
    assert outcome_data(machine.resume()) == outcome_data(Machine(image, tier="interpreter").resume())


BOXED = """
(define counts (dict ("1" 1)))
(define kept nil)
(define (note! word i) {set})
(define (go i)
  (if (< i 8)
      (begin {before} (note! (to-string (modulo i 3)) i) {after} (go (+ i 1)))
      (list counts kept)))
(try (go 0) (catch fault (list counts kept (get fault "message"))))
"""
SETS = (
    "(set! counts (put counts word (+ 1 (get counts word 0))))",
    "(begin (set! counts (put counts word i)) null)",
    "(set! counts (put counts word counts))",
    "(set! counts (put counts (if (= i 5) i word) kept))",
    "(set! counts (put counts word (/ 1 (- 6 i))))",
    "(let ((old counts)) (set! counts (put counts word i)) (set! kept (cons old kept)))",
    "(set! kept (cons (begin (set! counts (put counts word i)) counts) kept))",
    '(set! counts (put (put counts "a" i) word (get counts "a")))',
    "(set! counts (put counts word (lambda () counts)))",
)
OTHERS = ("null", "(set! kept (cons counts kept))", "(now)", "(log-message counts)", "(set! kept counts)")
BOXES = st.builds(
    lambda **parts: BOXED.format(**parts),
    set=st.sampled_from(SETS),
    before=st.sampled_from(OTHERS),
    after=st.sampled_from(OTHERS),
)


@LAWS
@given(BOXES, st.integers(1, 12), st.integers(0, 1 << 24))
def test_maps_in_boxes_behave_the_same(text: str, quantum: int, turns: int) -> None:
    """A global variable that is assigned repeatedly."""
    assert_tiers_agree(machine_of(text).image, quantum, [], turns)


SUM = """
(define (sum i total items end)
  (if {test} (sum {next} {sum} {items} end) total))
(try (sum {first} 0 {list} {end}) (catch fault (get fault "message")))
"""
SUMS = st.builds(
    lambda **parts: SUM.format(**parts),
    test=st.sampled_from(["(< i end)", "(< i end)", "(<= i end)", "(if (>= i end) false true)"]),
    next=st.sampled_from(["(+ i 1)", "(+ 2 i)", "(- (* i 2) -1)", "(if (= i 2) -1 (+ i 1))"]),
    sum=st.sampled_from(
        ["(+ total (nth i items))", "(+ (nth items i) total)", "(+ total (nth (- i 1) items))"]
    ),
    items=st.sampled_from(["items", "items", "items", "(if (= i 1) (rest items) items)"]),
    first=st.sampled_from(["0", "1", "-1"]),
    list=st.sampled_from(["(list 1 2 3)", "(range 0 4)", "(cons 1 (cons 2 (cons 3 nil)))"]),
    end=st.sampled_from(["5", "3", "4", "3.0"]),
)


@LAWS
@given(SUMS, st.integers(1, 9), st.integers(0, 1 << 24))
def test_indexed_items_are_the_same(text: str, quantum: int, turns: int) -> None:
    """Inside the list and beyond both ends."""
    assert_tiers_agree(machine_of(text).image, quantum, [], turns)


def test_range_check_is_removed() -> None:
    """If the loop compares the index with the length of the same list and nothing changes in between."""
    for test, items, count in (
        ("(< i end)", "items", 1),
        ("(<= i end)", "items", 0),
        ("(< i end)", "(rest items)", 0),
    ):
        text = SUM.format(
            test=test,
            items=items,
            next="(+ i 1)",
            sum="(+ total (nth i items))",
            first=0,
            list="(range 0 5)",
            end=5,
        )
        assert len(RangeChecks(function_of(machine_of(text).image, "sum")).below) == count


def function_of(image: Image, name: str) -> Function:
    return Function(image, next(index for index, code in enumerate(image.functions) if code.name == name))


@pytest.mark.parametrize(
    "text",
    [
        # The updated map is a copy that was never stored; the original is unchanged.
        '(define m (dict)) (list (put (loop ((a m)) a) "k" 1) (reduce list (list 1 2 3)))',
        '(define m (dict)) (let ((a m)) (list (put (loop ((b a)) b) "k" 1) (now) a))',
        # The copy is a pending operand, or the value that is added, or a function refers to it.
        '(define (f m) (let ((a m)) (put (loop () a) "k" (put a "z" 1)))) (f (put (dict) "z" 2))',
        '(define (f m) (let ((a m)) (put a "k" (loop () a)))) (f (put (dict) "z" 2))',
        '(define (f m) (let ((a m)) (list (loop () a) (put a "k" 1)))) (f (put (dict) "z" 2))',
        '(define (f m) (get (put m "k" (let ((a m)) (lambda () a))) "k")) ((f (put (dict) "z" 2)))',
        # A loop that is entered before its list is created, with another value in the slot.
        "(define (f c) (loop ((i 0) (r (loop ((k 0) (a nil)) (if (< k 2) (recur (+ k 1) (cons 0 a)) first))))"
        " (recur (+ i 1) (sort c)))) (f nil)",
    ],
)
def test_slots_are_unchanged_at_any_stop(text: str) -> None:
    for quantum in range(1, 12):
        assert_tiers_agree(machine_of(text).image, quantum, [], 0b0110100110)


def test_in_place_lists_and_maps() -> None:
    """A list that only grows and a map that is not read again; no other."""
    text = "(define (go i items map) (if (= i 9) {} (go (+ i 1) (cons i items) {}))) (go 0 nil (dict))"
    for end, put, growing, count in (
        ("(reverse items)", '(put map "a" i)', {1}, 1),
        ("(length items)", '(put map "a" map)', set(), 0),
        ("items", '(put map "a" i)', set(), 1),
        ("(reverse items)", '(put map "a" items)', set(), 1),
    ):
        analysis = InPlace(function_of(machine_of(text.format(end, put)).image, "go"))
        assert (analysis.growing, len(analysis.maps)) == (growing, count)


def test_in_place_lists_of_loops() -> None:
    """The list that a loop of the function itself extends, created inside or before the loop."""
    text = "(define (go n) (loop ((i 0) (items {first})) (if (= i n) {end} (recur (+ i 1) {items})))) (go 9)"
    for first, end, items, count in (
        ("nil", "(reverse items)", "(cons i items)", 1),
        ("nil", "items", "(cons i items)", 0),
        ("nil", "(reverse items)", "(cons items items)", 0),
        ("(list n)", "(reverse items)", "(cons i items)", 0),
    ):
        image = machine_of(text.format(first=first, end=end, items=items)).image
        assert len(InPlace(function_of(image, "go")).loop_lists) == count


def test_unique_map_is_not_copied() -> None:
    """Adding many entries takes no time; copies would take minutes."""
    text = """
(define (go i map)
  (if (= i 100000) (length (keys map)) (go (+ i 1) (put map (to-string i) i))))
(go 0 (dict))
"""
    assert outcome_data(Machine(machine_of(text).image, tier="direct").resume()) == ("done", "100000")


def test_a_map_in_a_box_is_not_copied() -> None:
    """Nor if the variable is global."""
    text = """
(define map (dict))
(define (note! key) (set! map (put map key 1)))
(define (go i) (if (= i 100000) (length (keys map)) (begin (note! (to-string i)) (go (+ i 1)))))
(go 0)
"""
    assert outcome_data(Machine(machine_of(text).image, tier="direct").resume()) == ("done", "100000")
