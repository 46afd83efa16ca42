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
from llc.vm.jit.codegen.translate import MAX_STATES, Translator
from llc.vm.jit.runtime import functions
from llc.vm.jit.runtime.process_state import RUNNING, SHALLOW
from llc.vm.jit.runtime.tier import DirectTier
from llc.vm.machine.machine import Done, OutOfFuel
from llc.vm.tiered import Machine
from llc.vm.values import bounds
from llc.vm.values.faults import Fault

SEEDS = st.integers(0, 1 << 48)
FLOWS = st.builds(lambda seed: Generator(seed).program(), SEEDS) | st.builds(
    lambda seed: Generator(seed, parallel=6, perform=4).program(), SEEDS
)


def image_of_core(node: Any) -> Image:
    def no_library(name: str) -> Any:
        raise AssertionError(name)

    return emit(lower_flow(node, "generated", (), no_library))


@LAWS
@given(PROGRAMS, st.integers(1, 9), st.integers(0, 1 << 24))
def test_programs_of_any_shape_behave_the_same(program: Program, quantum: int, turns: int) -> None:
    """Outcomes, notes, ticks, faults with spans and backtraces, and identical snapshots."""
    assert_tiers_agree(emit(program), quantum, [1], turns)


@LAWS
@given(FLOWS, st.integers(1, 40), st.integers(0, 1 << 24))
def test_generated_flows_behave_the_same(node: Any, quantum: int, turns: int) -> None:
    """Closures, boxes, `try`, loops, recursion and concurrent calls."""
    assert_tiers_agree(image_of_core(node), quantum, [], turns)


@LAWS
@given(SEEDS, st.integers(1, 60), st.integers(0, 1 << 24))
def test_mixed_types_behave_the_same(seed: int, quantum: int, turns: int) -> None:
    """Integer versions of functions get floats, strings, booleans, huge integers, and fault."""
    assert_tiers_agree(flow_of(MixedTypeGenerator(seed).program()).image, quantum, [], turns)


@settings(LAWS, max_examples=COUNT // 3)
@given(FLOWS, st.integers(1, 40), st.integers(0, 1 << 24), st.integers(1, 4))
def test_the_interpreter_continues_where_translation_fails(
    node: Any, quantum: int, turns: int, part: int
) -> None:
    """For any subset of untranslatable functions, detected at any point of the run."""

    class FailingTranslator(Translator):
        def generic(self, index: int) -> Text:
            return super().generic(index) if index % 5 < part else self.refused()

        def specialised(self, name: str) -> Text:
            return super().specialised(name) if sum(name.encode()) % 5 < part else self.refused()

        def entry(self, index: int, state: int, arguments: Any) -> Text:
            return super().entry(index, state, arguments) if (index + state) % 5 < part else self.refused()

        def refused(self) -> Text:
            return Text("", self.plain(0)[0], ["("])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "Translator", FailingTranslator)
        assert_tiers_agree(image_of_core(node), quantum, [], turns, True)


# --- cases that generated programs do not reach --------------------------------------------------


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
    """Depth, tail calls, loops, big numbers, faults in deep frames, values too large for the host."""
    assert run(text, "direct") == run(text, "interpreter")


@pytest.mark.parametrize("depth", [500, 501, 100_000])
def test_depth_of_results_is_limited(depth: int) -> None:
    """A deeper result is a fault; deeper details of a fault are omitted."""
    text = f"(define d (loop ((i 1) (a nil)) (if (< i {depth}) (recur (+ i 1) (list a)) a)))"
    outcome = run(f"{text} d", "direct")
    assert outcome == run(f"{text} d", "interpreter")
    assert ("too-large" in outcome[0]) == (depth > 500)
    outcome = run(f'{text} (error "deep" d)', "direct")
    assert outcome == run(f'{text} (error "deep" d)', "interpreter")
    assert (outcome[0][-1] == "{}") == (depth >= 500)  # the values are inside a list


def test_handler_slot_is_null_after_a_self_call() -> None:
    """As every other slot."""
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
    """Also beyond Python's limit for nested blocks."""
    text = f"(define (f x) {begin * depth}(/ 1 x){end * depth}) (f 0)"
    assert run(text, "direct") == run(text, "interpreter")


def test_call_depth_limit_is_exact() -> None:
    """Although translated code does not count its Python frames."""
    bounds.set_bounds(calls=90_000)
    try:
        text = "(define (f n) (+ 1 (f (+ n 1)))) (f 0)"
        outcome = run(text, "direct")
        assert outcome == run(text, "interpreter")
        assert outcome[0][1] == "too-deep"
    finally:
        bounds.set_bounds(calls=1 << 20)


def test_only_state_loops_run_without_the_setup_for_deep_programs() -> None:
    """A flow of one function may build a long list, which the garbage collector should not traverse."""
    loop = "name: x\ninitial: a\nstates:\n  a: {action: 'true', next: b}\n  b: {terminal: true}\n"
    flow = "(loop ((i 0) (l nil)) (if (< i 9) (recur (+ i 1) (cons i l)) l))"
    used = []
    for text, name in ((loop, "x.yaml"), (flow, "x.sexp")):
        image = emit(compile_text(text, name).program)
        used.append((len(image.functions), DirectTier(Machine(image)).running))
    assert used == [(1, SHALLOW), (1, RUNNING)]


def test_threads_share_python_limits() -> None:
    """A machine that ends keeps Python's raised limits for the others; the last one restores them."""
    before = sys.getrecursionlimit(), gc.get_threshold()
    outcomes: dict[str, Any] = {}
    begun = threading.Event()

    def work(name: str, text: str) -> None:
        machine = Machine(flow_of(text).image, tier="direct")
        begun.set()
        outcomes[name] = outcome_data(machine.resume())

    short = "(loop ((i 0)) (if (< i 200000) (recur (+ i 1)) i))"
    deep = "(define (count n) (if (= n 0) 0 (+ 1 (count (- n 1))))) (loop 20 (count 50000))"
    threads = [threading.Thread(target=work, args=part) for part in (("short", short), ("deep", deep))]
    for thread in threads:
        thread.start()
        begun.wait()
        begun.clear()
    for thread in threads:
        thread.join()
    assert outcomes == {"short": ("done", "200000"), "deep": ("done", "50000")}
    assert (sys.getrecursionlimit(), gc.get_threshold()) == before


def test_call_depth_is_counted_across_refuels() -> None:
    """With little fuel at a time the limit is the same, and dead frames are released."""
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


def test_tier_changes_after_warm_up() -> None:
    """At exactly the ticks of `auto`."""
    machine = Machine(flow_of("(loop ((i 0)) (if (< i 9000) (recur (+ i 1)) i))").image, fuel=300)
    assert isinstance(machine.resume(), OutOfFuel)
    assert machine.tier == "interpreter"
    machine.refuel(None)
    assert outcome_data(machine.resume()) == ("done", "9000")
    assert machine.tier == "direct"


def test_machines_share_translations() -> None:
    """A second machine of an image changes its tier at once and reuses the functions."""
    image = flow_of("(define (f n) (if (< n 2) n (+ (f (- n 1)) (f (- n 2))))) (f 14)").image
    first = Machine(image, fuel=100)
    first.resume()
    assert first.tier == "interpreter"
    assert outcome_data(Machine(image).resume()) == ("done", "377")
    assert image.loaded is not None
    (translator,) = image.loaded.translators.values()
    count = len(translator.compiled)
    second = Machine(image, fuel=100)
    second.resume()
    assert second.tier == "direct"
    second.refuel(None)
    assert outcome_data(second.resume()) == ("done", "377")
    third = Machine(image, fuel=100)
    third.resume()
    third.refuel(None)
    later_count = len(translator.compiled)
    assert outcome_data(third.resume()) == ("done", "377")
    assert len(translator.compiled) == later_count >= count


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


def test_too_large_program_is_interpreted() -> None:
    """The machine reports the reason."""
    states = "\n".join(f"state s{n}\n goto s{n + 1}" for n in range(MAX_STATES + 1))
    text = f"program p entry main\nfunction main()\n{states}\nstate s{MAX_STATES + 1}\n return 1\n"
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
def test_code_that_python_rejects_is_interpreted(depth: int) -> None:
    """Python limits nested parentheses; a run beyond the limit continues in the interpreter with a reason."""
    image = emit(parse_program(DEEP % f"{'upper(' * depth}x{')' * depth}", "deep.ir"))
    for quantum in (1, 3, 100):
        assert_tiers_agree(image, quantum, [], 0b011010, True)
    machine = Machine(image, tier="direct")
    machine.resume()
    assert (machine.tier, machine.obstacle is None) == (
        ("direct", True) if depth < 100 else ("interpreter", False)
    )
    assert machine.obstacle is None or machine.obstacle.startswith("`nested`: ")


def test_result_types_of_many_mutual_calls() -> None:
    """The time of the analysis does not depend on the number of call paths."""
    text = (
        "(define (f n a b) (if (<= n 0) 18446744073709551615 (loop ((i 0) (s a))"
        " (if (< i n) (recur (+ i 1) (f (- n 3) (f (- n 2) i s) (and 6 i))) s))))"
        " (list (map (lambda (x) (f 3 x 0)) (list 2 1 2)) (f 2 5 9))"
    )
    assert run(text, "direct") == run(text, "interpreter")


@pytest.mark.parametrize("value", ["2", "2.0", "true", '"2"', "18446744073709551616", "(list 2)", "nil"])
def test_integer_versions_check_their_inputs(value: str) -> None:
    """A result or an argument of another type takes the general path; faults have span and backtrace."""
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
def test_float_operations_agree_with_the_interpreter(operation: str) -> None:
    """Including signed zeros, NaN and integers beyond floats."""
    numbers = ["-0.0", "0.0", "1.5", "1e308", "(- (* 1e308 10) (* 1e308 10))", "3", "0", f"{10**400}", "true"]
    calls = [f"({operation} {pair})" for pair in ("x y", "y x", "x 0.0", "-0.0 x", "x 2")]
    text = "".join(f"(define (f{index} x y) {call})" for index, call in enumerate(calls))
    tried = [
        f'(try (f{index} {first} {second}) (catch e (get e "message")))'
        for index in range(len(calls))
        for first in numbers
        for second in numbers[::2]
    ]
    text += f"(list {' '.join(tried)})"
    assert run(text, "direct") == run(text, "interpreter")


def test_jump_into_a_loop_costs_its_tick() -> None:
    """A handler also leads to the loop, so the code that starts inside it contains the loop head."""
    text = """
    (list (try (first nil) (catch e 2))
      (loop ((a 0)) (if (< a 3) (recur (+ a (length (map (lambda (x) x) (list 1))))) (recur 0))))
    """
    for quantum in (1, 2, 3, 5):
        assert_tiers_agree(flow_of(text).image, quantum, [], 0b0110)


@pytest.mark.parametrize("items", ["null", "true"])
def test_known_non_list_is_not_indexed(items: str) -> None:
    """Python would print a warning about the generated code."""
    assert_tiers_agree(flow_of(f"(define (f i) (+ 1 (nth i {items}))) (f 1)").image, 3, [], 0b10)


def test_generated_code_is_readable() -> None:
    """Loops are Python loops, and the integer case has no checks."""
    text = "(define (sum n) (loop ((i 0) (s 0)) (if (< i n) (recur (+ i 1) (+ s i)) s))) (sum 9)"
    image = flow_of(text).image
    index = next(index for index, code in enumerate(image.functions) if code.name == "sum")
    lines = [line.strip() for line in Translator(image).generic(index).source.splitlines()]
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
    """Fuel that ends or a fault between the two ticks is observed alike."""
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
def test_captures_are_visible_after_a_loop(tier: str) -> None:
    """The frame keeps its slots, although nothing in the program reads them."""
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


# Operands of each type that an inlined primitive distinguishes, and those next to its limits.
OPERANDS = (
    *("null", "true", "0", "1", "-1", "2", "7", "1.0", "18446744073709551616", "(- 0.0 0)"),
    *('""', '"ab"', '"b"', "'a", "(dict)", '(dict ("ab" 1))', "car"),
    *("nil", "(list 1)", "(list 1 2)", "(list 1 2 3)", "(range 0 7)", "(range 0 8)", "(range 0 9)"),
    *("(cons 1 nil)", "(cons 1 (cons 2 nil))", "(cons 1 (list 2 3))"),
)
OF_ONE = "first rest second third length list to-string string-length number? empty? string-append min"
OF_TWO = "nth equal? string=? string<? min max list has-key? substring string-append get"


@pytest.mark.parametrize("name", OF_ONE.split())
def test_unary_primitives_behave_the_same(name: str) -> None:
    """Values and faults, inlined or not."""
    tries = "\n".join(f'(try (f {one}) (catch e (get e "message")))' for one in OPERANDS)
    flow = f"(define (f x) (let ((y ({name} x))) (list y (list 1 2))))\n(list {tries})"
    assert run(flow, "direct") == run(flow, "interpreter")


@pytest.mark.parametrize("name", OF_TWO.split())
def test_binary_primitives_behave_the_same(name: str) -> None:
    tries = "\n".join(
        f'(map (lambda (y) (try (f {one} y) (catch e (get e "message")))) all)' for one in OPERANDS
    )
    flow = f"(define all (list {' '.join(OPERANDS)}))\n(define (f x y) ({name} x y))\n(list {tries})"
    assert run(flow, "direct") == run(flow, "interpreter")


@pytest.mark.parametrize("name", ["+", "-", "*", "<", "=", ">=", "max", "min"])
def test_ternary_operations_behave_the_same(name: str) -> None:
    """Each operand may be a non-integer."""
    numbers = ("1", "2", "2.0", "true", "18446744073709551616")
    tries = "\n".join(
        f'(map (lambda (z) (map (lambda (y) (try (f {one} y z) (catch e (get e "message")))) all)) all)'
        for one in numbers
    )
    flow = f"(define all (list {' '.join(numbers)}))\n(define (f x y z) ({name} x y z))\n(list {tries})"
    assert run(flow, "direct") == run(flow, "interpreter")


def test_constant_list_is_created_each_time() -> None:
    """Python would create it once; snapshots distinguish the same list from an equal one."""
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


def test_apply_behaves_the_same() -> None:
    """Functions of each kind with lists of each length and form: values, faults with spans, and each tick."""
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
def test_apply_accepts_any_number_of_arguments(function: str) -> None:
    """Nothing is translated again for each length."""
    text = f"""
    (define (each f i sum) (if (= i 40) sum (each f (+ i 1) (cons (apply f i (range 0 (* 5 i))) sum))))
    (let ((n 7)) (each {function} 0 nil))
    """
    assert run(text, "direct") == run(text, "interpreter")
    machine = Machine(flow_of(text).image, tier="direct")
    machine.resume()
    assert isinstance(machine.direct, DirectTier)
    assert len([name for name in machine.direct.names if name.startswith("A") and "_" in name]) < 5


def test_calls_with_and_without_applied_arguments() -> None:
    """A call with two arguments and a call with two and a list use the same cached call."""
    for function in ("(a b)", "(a &rest b)", "(a b &rest c)"):
        text = f"""
        (define (go f l) (list (f 1 2) (try (apply f 1 2 l) (catch e (get e "message")))))
        (define all (list (lambda {function} (list a b))))
        (map (lambda (f) (list (go f nil) (go f (list 3)))) all)
        """
        assert run(text, "direct") == run(text, "interpreter")


def test_long_iterations_are_translated_sooner() -> None:
    """Besides ticks, the interpreter counts the work since the last effect."""
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
