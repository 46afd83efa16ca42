"""The JIT tier differs from the interpreter only in speed."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest
from core_programs import Generator
from flow_runs import machine_of as flow_of
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_type_programs import MixedTypeGenerator
from random_ir_programs import PROGRAMS
from tiers import COUNT, LAWS, assert_tiers_agree, history, outcome_data

from llc.frontend.compile import compile_text
from llc.frontend.lower.program import lower_flow
from llc.ir.nodes import Program
from llc.ir.text import parse_program
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.jit.codegen.python_text import Text
from llc.vm.jit.codegen.translate import MOST_STATES, Translator
from llc.vm.jit.runtime import functions
from llc.vm.jit.runtime.process_state import RUNNING, SHALLOW
from llc.vm.jit.runtime.tier import Direct
from llc.vm.machine.machine import Done, OutOfFuel
from llc.vm.tiered import Machine
from llc.vm.values import bounds
from llc.vm.values.faults import Fault

SEEDS = st.integers(0, 1 << 48)
FLOWS = st.builds(lambda seed: Generator(seed).program(), SEEDS) | st.builds(
    lambda seed: Generator(seed, parallel=6, perform=4).program(), SEEDS
)


def image_of_core(node: Any) -> Image:
    def none(name: str) -> Any:
        raise AssertionError(name)

    return emit(lower_flow(node, "generated", (), none))


@LAWS
@given(PROGRAMS, st.integers(1, 9), st.integers(0, 1 << 24))
def test_programs_of_any_shape_behave_the_same(program: Program, quantum: int, turns: int) -> None:
    """Outcomes, notes, ticks, faults with places and backtraces, and byte for byte the same snapshots."""
    assert_tiers_agree(emit(program), quantum, [1], turns)


@LAWS
@given(FLOWS, st.integers(1, 40), st.integers(0, 1 << 24))
def test_generated_flows_behave_the_same(node: Any, quantum: int, turns: int) -> None:
    """Closures, boxes, `try`, loops, recursion and calls at once."""
    assert_tiers_agree(image_of_core(node), quantum, [], turns)


@LAWS
@given(SEEDS, st.integers(1, 60), st.integers(0, 1 << 24))
def test_values_of_other_kinds_are_alike(seed: int, quantum: int, turns: int) -> None:
    """Versions for integers that meet floats, strings, booleans, huge integers, and faults in them."""
    assert_tiers_agree(flow_of(MixedTypeGenerator(seed).program()).image, quantum, [], turns)


@settings(LAWS, max_examples=COUNT // 3)
@given(FLOWS, st.integers(1, 40), st.integers(0, 1 << 24), st.integers(1, 4))
def test_the_interpreter_continues_where_translation_fails(
    node: Any, quantum: int, turns: int, part: int
) -> None:
    """Whichever functions cannot be had, and wherever in the run that is found."""

    class Refusing(Translator):
        def function(self, index: int) -> Text:
            return super().function(index) if index % 5 < part else self.refused()

        def specialised(self, name: str) -> Text:
            return super().specialised(name) if sum(name.encode()) % 5 < part else self.refused()

        def entry(self, index: int, state: int, given: Any) -> Text:
            return super().entry(index, state, given) if (index + state) % 5 < part else self.refused()

        def refused(self) -> Text:
            return Text("", self.whole(0)[0], ["("])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "Translator", Refusing)
        assert_tiers_agree(image_of_core(node), quantum, [], turns, True)


# --- what generated programs do not reach --------------------------------------------------------


def run(text: str, tier: str) -> tuple[Any, int]:
    machine = Machine(flow_of(text).image, tier=tier)
    return outcome_data(machine.resume()), machine.ticks


@pytest.mark.parametrize(
    "text",
    [
        "(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (count 200000)",
        '(define (count n) (if (= n 0) (error \'deep "down") (+ 1 (count (- n 1))))) (count 50000)',
        "(define (even n) (if (= n 0) true (odd (- n 1)))) (define (odd n) (if (= n 0) false (even (- n 1))))"
        " (even 200001)",
        "(define (f n) (if (= n 0) (car nil) (g (- n 1)))) (define (g n) (f n)) (f 70000)",
        "(loop ((i 0) (s 0)) (if (< i 100000) (recur (+ i 1) (+ s (modulo i 7))) s))",
        "(reduce + 0 (map (lambda (x) (* x x)) (filter even? (range 0 3000))))",
        "(define (f &rest xs) (if (null? xs) 0 (+ 1 (apply f (rest xs))))) (apply f (range 0 300))",
        "(define (f n) (if (= n 0) 0 (+ 1 (apply f (list (- n 1)))))) (f 100000)",
        "(define (f n) (if (= n 0) (car nil) (+ 1 (apply f (list (- n 1))))))"
        " (list (try (f 'a) (catch e 1)) (f 50000))",
        "(define (f n &rest m) (if (= n 0) 0 (+ 1 (apply f (cons (- n 1) m))))) (f 100000 1 2)",
        "(define (f n) (if (= n 0) 0 (+ 1 (first (map f (list (- n 1))))))) (f 20000)",
        "(define (f n) (if (= n 0) 0 (+ 1 (reduce (lambda (a b) (f b)) 0 (list (- n 1)))))) (f 20000)",
        "(define (f n) (if (= n 0) 0 (+ 1 (try (f (- n 1)) (catch e (car nil)))))) (f 50000)",
        "(sort (map (lambda (x) (modulo (* x 7919) 1009)) (range 0 500)))",
        '(define (f x) (try (if (= x 0) (error \'stop "at" x) (f (- x 1))) (catch e (get e "message"))))'
        " (f 500)",
        "(loop ((i 0) (a 1)) (if (< i 40) (recur (+ i 1) (* a 1000000007)) a))",
        "(loop ((i 0) (a 1)) (if (< i 30000) (recur (+ i 1) (* a 1000000007)) a))",
        "(define (f n) (if (< n 2.5) n (+ (f (- n 1)) (f (- n 2))))) (f 15)",
        '(define (f n) (if (< n 2) "x" (string-append (f (- n 1)) (f (- n 2))))) (string-length (f 15))',
        "(define (f n) (f (+ n true))) (f 0)",
        "(map (lambda (n) (case (modulo n 4) ((0) 'a) ((1 2) 'b) (else 'c))) (range 0 200))",
        "(list (lambda () 1))",
        '(define (f x) (list (equal? x "P_eq(") (equal? x "C99999999["))) (f "P_eq(")',
        '(find "a" (list 1 2))',
        '(define (f n) (if (= n 0) "[" (let ((a (f (- n 1)))) (string-append a a))))'
        ' (try (json-parse (f 18)) (catch e (get e "message")))',
    ],
)
def test_long_runs_behave_the_same(text: str) -> None:
    """Depth, tail calls, loops, big numbers, faults far down, what cannot leave."""
    assert run(text, "direct") == run(text, "interpreter")


@pytest.mark.parametrize("depth", [500, 501, 100_000])
def test_what_leaves_is_of_bounded_depth(depth: int) -> None:
    """A result that is deeper is a fault; the details of a fault are left out."""
    text = f"(define d (loop ((i 1) (a nil)) (if (< i {depth}) (recur (+ i 1) (list a)) a)))"
    found = run(f"{text} d", "direct")
    assert found == run(f"{text} d", "interpreter")
    assert ("too-large" in found[0]) == (depth > 500)
    found = run(f'{text} (error "deep" d)', "direct")
    assert found == run(f'{text} (error "deep" d)', "interpreter")
    assert (found[0][-1] == "{}") == (depth >= 500)  # the values stand in a list


def test_a_function_that_calls_itself_begins_without_what_was_caught() -> None:
    """The slot of a handler is null again, as every other."""
    text = """
program again entry main
function main()
  state start
    tailcall closure f()(3, null)
function f(n, seen) locals(caught)
  state start on fault -> next(caught)
    seen = list(caught, seen)
    fail "no"
  state next
    branch gt(n, 0) more done
  state more
    tailcall closure f()(sub(n, 1), seen)
  state done
    return seen
"""
    image = emit(parse_program(text, "again.ir"))
    assert history(image, [], None, lambda _: "direct")[0] == ("done", "[None, [None, [None, [None, None]]]]")
    for quantum in (1, 2, 3):
        assert_tiers_agree(image, quantum, [], 0b0110)


@pytest.mark.parametrize("depth", [6, 7, 8, 12, 30])
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("(loop ((i 0)) (if (< i 1) (begin ", " (recur (+ i 1))) i))"),
        ("(try (loop ((i 0)) (if (< i 1) (begin ", " (recur (+ i 1))) i)) (catch e (set! x 1) (f x)))"),
        ("(begin (loop ((i 0)) (if (< i 1) (begin ", " (recur (+ i 1))) i)) (loop 2 (log-message x)))"),
    ],
)
def test_nested_loops_behave_the_same(begin: str, end: str, depth: int) -> None:
    """However deep they are: Python's own bound for nested blocks is not met."""
    text = f"(define (f x) {begin * depth}(/ 1 x){end * depth}) (f 0)"
    assert run(text, "direct") == run(text, "interpreter")


def test_calls_too_deep_are_found_at_the_same_call() -> None:
    """The bound holds exactly, though Python counts nothing."""
    bounds.set_bounds(calls=90_000)
    try:
        text = "(define (f n) (+ 1 (f (+ n 1)))) (f 0)"
        found = run(text, "direct")
        assert found == run(text, "interpreter")
        assert found[0][1] == "too-deep"
    finally:
        bounds.set_bounds(calls=1 << 20)


def test_only_a_loop_of_states_goes_without_what_deep_programs_need() -> None:
    """A flow of one function may still make a long list, among which Python's collector is not to look."""
    loop = "name: x\ninitial: a\nstates:\n  a: {action: 'true', next: b}\n  b: {terminal: true}\n"
    flow = "(loop ((i 0) (l nil)) (if (< i 9) (recur (+ i 1) (cons i l)) l))"
    used = []
    for text, name in ((loop, "x.yaml"), (flow, "x.sexp")):
        image = emit(compile_text(text, name).program)
        used.append((len(image.functions), Direct(Machine(image)).running))
    assert used == [(1, SHALLOW), (1, RUNNING)]


def test_machines_of_several_threads_do_not_bound_one_another() -> None:
    """One that ends while another is deep leaves Python's own bounds to that; the last puts them back."""
    before = sys.getrecursionlimit(), gc.get_threshold()
    found: dict[str, Any] = {}
    begun = threading.Event()

    def work(name: str, text: str) -> None:
        machine = Machine(flow_of(text).image, tier="direct")
        begun.set()
        found[name] = outcome_data(machine.resume())

    short = "(loop ((i 0)) (if (< i 200000) (recur (+ i 1)) i))"
    deep = "(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (loop 20 (count 50000))"
    threads = [threading.Thread(target=work, args=part) for part in (("short", short), ("deep", deep))]
    for thread in threads:
        thread.start()
        begun.wait()
        begun.clear()
    for thread in threads:
        thread.join()
    assert found == {"short": ("done", "200000"), "deep": ("done", "50000")}
    assert (sys.getrecursionlimit(), gc.get_threshold()) == before


def test_portions_of_fuel_do_not_hide_how_deep_calls_are() -> None:
    """A host that gives a little at a time finds the same bound, and dead frames go."""
    bounds.set_bounds(calls=60_000)
    try:
        for text, kind in (
            ("(define (f n) (+ 1 (f (+ n 1)))) (f 0)", "too-deep"),
            (
                "(define (f n) (if (= n 0) (car nil) (g (- n 1)))) (define (g n) (f n)) (f 90000)",
                "empty-list",
            ),
        ):
            machine = Machine(flow_of(text).image, fuel=1_000, tier="direct")
            while isinstance(outcome := machine.resume(), OutOfFuel):
                machine.refuel(1_000)
            assert isinstance(outcome, Fault)
            assert outcome.kind == kind
    finally:
        bounds.set_bounds(calls=1 << 20)


def test_a_program_changes_its_tier_when_it_has_run_for_a_while() -> None:
    """From the ticks on that `auto` says, and not before."""
    machine = Machine(flow_of("(loop ((i 0)) (if (< i 9000) (recur (+ i 1)) i))").image, fuel=300)
    assert isinstance(machine.resume(), OutOfFuel)
    assert machine.tier == "interpreter"
    machine.refuel(None)
    assert outcome_data(machine.resume()) == ("done", "9000")
    assert machine.tier == "direct"


def test_machines_share_what_was_translated() -> None:
    """A second machine of an image changes over at once, and finds its functions made."""
    image = flow_of("(define (f n) (if (< n 2) n (+ (f (- n 1)) (f (- n 2))))) (f 14)").image
    first = Machine(image, fuel=100)
    first.resume()
    assert first.tier == "interpreter"
    assert outcome_data(Machine(image).resume()) == ("done", "377")
    assert image.loaded is not None
    (translator,) = image.loaded.translators.values()
    made = len(translator.made)
    second = Machine(image, fuel=100)
    second.resume()
    assert second.tier == "direct"
    second.refuel(None)
    assert outcome_data(second.resume()) == ("done", "377")
    third = Machine(image, fuel=100)
    third.resume()
    third.refuel(None)
    more = len(translator.made)
    assert outcome_data(third.resume()) == ("done", "377")
    assert len(translator.made) == more >= made


def test_a_return_that_uses_the_last_tick_stops_the_machine() -> None:
    """The interpreter does not continue a loop of calls whose jump back has used the last tick."""
    text = """program again entry main
function main() locals(z)
  state start
    call closure f()() -> z then start
function f() locals(b)
  state start
    b = box(0)
    return b
"""
    image = emit(parse_program(text, "again.ir"))
    interpreted = history(image, [], 1, lambda _: "interpreter")
    for tier in ("direct", "auto", "auto"):  # a machine with a shared translation warms up early
        assert history(image, [], 1, lambda _, tier=tier: tier) == interpreted


def test_a_machine_too_large_to_translate_stays_as_it_is() -> None:
    """It runs in the interpreter, and says so."""
    states = "\n".join(f"state s{n}\n goto s{n + 1}" for n in range(MOST_STATES + 1))
    text = f"program p entry main\nfunction main()\n{states}\nstate s{MOST_STATES + 1}\n return 1\n"
    machine = Machine(emit(parse_program(text, "p.ir")), tier="direct")
    assert outcome_data(machine.resume()) == ("done", "1")
    assert machine.tier == "interpreter"


DEEP = """
program deep entry main
function main() locals(a, b)
  state start
    call closure down()("a", 3) -> a then again
  state again
    parallel closure late() over list("b", "c") -> b then end
  state end
    return list(a, b)
function down(x, n) locals(y)
  state start
    branch gt(n, 0) more done
  state more
    call closure down()(x, sub(n, 1)) -> y then up
  state up
    call closure nested()(y) -> y then end
  state end
    return y
  state done
    return x
function late(x) locals(y)
  state start
    perform shell map("command", x) -> y then end
  state end
    tailcall closure nested()(x)
function nested(x)
  state start
    return %s
"""


@pytest.mark.parametrize("depth", [20, 200, 5_000])
def test_what_python_refuses_runs_in_the_interpreter(depth: int) -> None:
    """It has bounds for how deep parentheses may be; a run that meets them goes on and says so."""
    image = emit(parse_program(DEEP % f"{'upper(' * depth}x{')' * depth}", "deep.ir"))
    for quantum in (1, 3, 100):
        assert_tiers_agree(image, quantum, [], 0b011010, True)
    machine = Machine(image, tier="direct")
    machine.resume()
    assert (machine.tier, machine.obstacle is None) == (
        ("direct", True) if depth < 100 else ("interpreter", False)
    )
    assert machine.obstacle is None or machine.obstacle.startswith("`nested`: ")


def test_results_are_found_of_functions_that_call_each_other_in_many_ways() -> None:
    """In a time that does not grow with the ways."""
    text = (
        "(define (f n a b) (if (<= n 0) 18446744073709551615 (loop ((i 0) (s a))"
        " (if (< i n) (recur (+ i 1) (f (- n 3) (f (- n 2) i s) (and 6 i))) s))))"
        " (list (map (lambda (x) (f 3 x 0)) (list 2 1 2)) (f 2 5 9))"
    )
    assert run(text, "direct") == run(text, "interpreter")


@pytest.mark.parametrize("value", ["2", "2.0", "true", '"2"', "18446744073709551616", "(list 2)", "nil"])
def test_what_comes_into_a_version_for_integers_is_looked_at(value: str) -> None:
    """A result or an argument of another kind takes the ways of its kind, faults with place and backtrace."""
    for text in (
        f"(define (f n) (if (< n 2) n (if (> n 99) n (+ (f (- n 1)) (f (- n 2)))))) (list (f 9) (f {value}))",
        f"(define (f n x) (if (< n 1) x (+ 1 (f (- n 1) x)))) (list (f 9 1) (f 9 {value}))",
        f"(define (f n x) (if (< n 1) {value} (f (- n 1) (+ x 1)))) (+ 1 (f 9 1))",
        f"(loop ((i 0) (x 0)) (if (< i 9) (recur (+ i 1) (if (= i 5) {value} (+ x 1))) x))",
        f"(define (g x) (* x x)) (map g (list 1 2 {value} 4))",
        f"(let* ((n 0) (up (lambda () (set! n (if (= n 3) {value} (+ n 1))) n))) (up) (up) (up) (up) (up))",
    ):
        assert run(text, "direct") == run(text, "interpreter"), text


@pytest.mark.parametrize("operation", ["+", "-", "*", "<", "<=", "=", ">", ">=", "max", "equal?"])
def test_floats_are_what_they_are_in_the_interpreter(operation: str) -> None:
    """Zeros with a sign, what is no number and what no float can hold among them."""
    numbers = ["-0.0", "0.0", "1.5", "1e308", "(- (* 1e308 10) (* 1e308 10))", "3", "0", f"{10**400}", "true"]
    calls = [f"({operation} {pair})" for pair in ("x y", "y x", "x 0.0", "-0.0 x", "x 2")]
    text = "".join(f"(define (f{index} x y) {call})" for index, call in enumerate(calls))
    tried = [
        f'(try (f{index} {one} {other}) (catch e (get e "message")))'
        for index in range(len(calls))
        for one in numbers
        for other in numbers[::2]
    ]
    text += f"(list {' '.join(tried)})"
    assert run(text, "direct") == run(text, "interpreter")


def test_a_jump_to_a_loop_of_another_text_has_its_tick() -> None:
    """A handler leads to the loop too, so that a text that begins within it holds its head after all."""
    text = """
    (list (try (first nil) (catch e 2))
      (loop ((a 0)) (if (< a 3) (recur (+ a (length (map (lambda (x) x) (list 1))))) (recur 0))))
    """
    for quantum in (1, 2, 3, 5):
        assert_tiers_agree(flow_of(text).image, quantum, [], 0b0110)


@pytest.mark.parametrize("items", ["null", "true"])
def test_what_is_known_to_be_no_list_has_no_items(items: str) -> None:
    """The text does not ask for one: Python would warn of it, on the error stream of whoever runs this."""
    assert_tiers_agree(flow_of(f"(define (f i) (+ 1 (nth i {items}))) (f 1)").image, 3, [], 0b10)


def test_a_function_reads_like_one() -> None:
    """Loops are loops, and the integer case is written without questions."""
    text = "(define (sum n) (loop ((i 0) (s 0)) (if (< i n) (recur (+ i 1) (+ s i)) s))) (sum 9)"
    image = flow_of(text).image
    index = next(index for index, code in enumerate(image.functions) if code.name == "sum")
    lines = [line.strip() for line in Translator(image).function(index).source.splitlines()]
    assert "for _ in chain(ONE, tick):" in lines
    assert "if (s1 < s0):" in lines


@pytest.mark.parametrize(
    "text",
    [
        "(reduce + 0 (map (lambda (x) (* x x)) (filter (lambda (x) (= (modulo x 3) 0)) (range 0 12))))",
        "(define (count n) (let* ((i 0) (up (lambda () (set! i (+ i n)) i)))"
        " (let go ((k 1)) (if (< k 9) (begin (up) (go (+ k 1))) (up))))) (list (count 1) (count 2.5))",
        '(map (lambda (x) (+ x 1)) (list 1 2 "three" 4))',
        '(map (lambda (xs) (try (map (lambda (x) (+ x 1)) xs) (catch e (get e "kind"))))'
        ' (list (list 1 2) (list 1 "a")))',
        "(let go ((k 0) (xs (range 0 9))) (if (< k 12) (begin (abs (nth k xs)) (go (+ k 1) xs)) k))",
    ],
)
def test_loops_that_use_two_ticks_stop_at_each(text: str) -> None:
    """Fuel ends between the two, or a fault comes there: what there is to see is the same."""
    image = flow_of(text).image
    for quantum in (*range(1, 14), 20, 37):
        assert_tiers_agree(image, quantum, [], 0b0110_1001_0110)


LOOP = """
name: counting
initial: count
max_iterations: 40
states:
  count: {action: "echo ${captured.sum.output:default=0}", capture: sum, on_success: count, on_failure: done}
  done: {terminal: true}
"""


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
def test_what_a_loop_captured_is_seen_when_it_has_ended(tier: str) -> None:
    """The frame of a loop's run stays, with what nothing in the program reads any more."""
    machine = Machine(emit(compile_text(LOOP, "counting.yaml").program), tier=tier)
    outcome = machine.resume()
    for number in range(1, 200):
        if isinstance(outcome, Done):
            break
        result = {"output": str(number), "stderr": "", "exit_code": int(number == 20), "duration_ms": 1}
        outcome = machine.resume(result)
    assert isinstance(outcome, Done)
    [frame] = machine.frames()
    assert (frame.state, frame.slots["captured.sum"]["output"]) == ("done", "20")


# Operands of each kind that a primitive written as an expression tells apart, and those next to its bounds.
OPERANDS = (
    *("null", "true", "0", "1", "-1", "2", "7", "1.0", "18446744073709551616", "(- 0.0 0)"),
    *('""', '"ab"', '"b"', "'a", "(dict)", '(dict ("ab" 1))', "car"),
    *("nil", "(list 1)", "(list 1 2)", "(list 1 2 3)", "(range 0 7)", "(range 0 8)", "(range 0 9)"),
    *("(cons 1 nil)", "(cons 1 (cons 2 nil))", "(cons 1 (list 2 3))"),
)
OF_ONE = "first rest second third length list to-string string-length number? empty? string-append min"
OF_TWO = "nth equal? string=? string<? min max list has-key? substring string-append get"


@pytest.mark.parametrize("name", OF_ONE.split())
def test_primitives_of_any_operand_are_alike(name: str) -> None:
    """Values and faults, where an expression stands for a primitive and where it does not."""
    tries = "\n".join(f'(try (f {one}) (catch e (get e "message")))' for one in OPERANDS)
    flow = f"(define (f x) (let ((y ({name} x))) (list y (list 1 2))))\n(list {tries})"
    assert run(flow, "direct") == run(flow, "interpreter")


@pytest.mark.parametrize("name", OF_TWO.split())
def test_primitives_of_any_two_operands_are_alike(name: str) -> None:
    tries = "\n".join(
        f'(map (lambda (y) (try (f {one} y) (catch e (get e "message")))) all)' for one in OPERANDS
    )
    flow = f"(define all (list {' '.join(OPERANDS)}))\n(define (f x y) ({name} x y))\n(list {tries})"
    assert run(flow, "direct") == run(flow, "interpreter")


@pytest.mark.parametrize("name", ["+", "-", "*", "<", "=", ">=", "max", "min"])
def test_operations_of_three_numbers_are_alike(name: str) -> None:
    """Each operand may be what is no integer."""
    numbers = ("1", "2", "2.0", "true", "18446744073709551616")
    tries = "\n".join(
        f'(map (lambda (z) (map (lambda (y) (try (f {one} y z) (catch e (get e "message")))) all)) all)'
        for one in numbers
    )
    flow = f"(define all (list {' '.join(numbers)}))\n(define (f x y z) ({name} x y z))\n(list {tries})"
    assert run(flow, "direct") == run(flow, "interpreter")


def test_a_list_of_constants_is_made_each_time() -> None:
    """Python would make it once; what holds the same list and what holds an equal one differ in snapshots."""
    assert_tiers_agree(
        flow_of("(define (f n) (list 1 (list 2 (+ 1 2))))\n(list (f 1) (f 2) (now))").image, 3, [], 0b10
    )


APPLIED = (
    "+",
    "-",
    "max",
    "list",
    "cons",
    "car",
    "none",
    "pair",
    "any",
    "more",
    "(lambda (a b) (+ a b n))",
    "7",
)
LISTS = ("nil", "null", "(list 1)", "(list n 2)", "(cons 1 (cons n nil))", "(range 0 9)", "(list 1.5 2)", "9")
APPLYING = """
(define (none) 0)
(define (pair a b) (list b a))
(define (any &rest all) all)
(define (more a &rest all) (list all a))
(define (last-thing f l) (apply f l))
(define (over f l n) (list (apply f l) n (last-thing f l)))
(define (each f n) (list {tries}))
(list {calls})
"""


def test_functions_applied_to_lists_run_alike() -> None:
    """Of each kind to lists of each length and form: values, faults with their places, and each tick."""
    fault = '(catch e (list (get e "message") (get e "span")))'
    tries = " ".join(f"(try (over f {one} n) {fault}) (try (apply f n {one}) {fault})" for one in LISTS)
    calls = " ".join(f"(let ((n 3)) (each {one} n))" for one in APPLIED)
    text = APPLYING.format(tries=tries, calls=calls)
    assert run(text, "direct") == run(text, "interpreter")
    for one in ("+", "more", "(lambda (a b) (+ a b n))", "7"):
        calls = f"(let ((n 3)) (list (each {one} n) (each {one} n)))"
        assert_tiers_agree(flow_of(APPLYING.format(tries=tries, calls=calls)).image, 7, [], 0b0110)


@pytest.mark.parametrize(
    "function", ["+", "max", "list", "(lambda (a &rest b) (list a b n))", "string-append"]
)
def test_a_list_of_arguments_may_be_of_any_length(function: str) -> None:
    """Nothing is made anew for each length."""
    text = f"""
    (define (each f i sum) (if (= i 40) sum (each f (+ i 1) (cons (apply f i (range 0 (* 5 i))) sum))))
    (let ((n 7)) (each {function} 0 nil))
    """
    assert run(text, "direct") == run(text, "interpreter")
    machine = Machine(flow_of(text).image, tier="direct")
    machine.resume()
    assert isinstance(machine.direct, Direct)
    assert len([name for name in machine.direct.names if name.startswith("A") and "_" in name]) < 5


def test_arguments_filled_in_count_after_calls_without() -> None:
    """What calls a function with two arguments is found again by a call with two and a list."""
    for function in ("(a b)", "(a &rest b)", "(a b &rest c)"):
        text = f"""
        (define (go f l) (list (f 1 2) (try (apply f 1 2 l) (catch e (get e "message")))))
        (define all (list (lambda {function} (list a b))))
        (map (lambda (f) (list (go f nil) (go f (list 3)))) all)
        """
        assert run(text, "direct") == run(text, "interpreter")


def test_a_program_of_long_rounds_is_translated_sooner() -> None:
    """What counts besides ticks is how much there was to interpret since the last effect, not before."""
    work = " ".join(f"(+ x {number})" for number in range(300))
    machine = flow_of(f"(define (go x) (if (= x 100) x (go (+ 1 x (* 0 (max {work})))))) (go 0)")
    assert isinstance(machine.resume(), Done)
    assert machine.tier == "direct"
    assert machine.ticks < 200
    machine = flow_of(
        f"(define (go x) (if (= x 100) x (begin (now) (go (+ 1 x (* 0 (max {work}))))))) (go 0)"
    )
    outcome = machine.resume()
    while not isinstance(outcome, Done):
        outcome = machine.resume({"output": "1"})
    assert machine.tier == "interpreter"
