"""REPL sessions: definitions, changes and persistence over successive inputs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Exited, Interrupt
from llc.runtime.terminal.session import SWEEP_AT, Answer, Session


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


def answers(session: Session, text: str) -> list[Answer]:
    interrupt = Interrupt()
    try:
        return list(session.run(session.source(text), interrupt))
    finally:
        interrupt.close()


def value(session: Session, text: str) -> str | None:
    """The value of the last form of a text; the others must succeed."""
    results = answers(session, text)
    assert all(answer.is_good for answer in results), [answer.error or answer.fault for answer in results]
    return results[-1].value


def fault(session: Session, text: str) -> str:
    """The kind of the fault that ends a text."""
    last = answers(session, text)[-1]
    assert last.fault is not None
    return last.fault.kind


def first_error(session: Session, text: str) -> str:
    """The id of the first compile error of a text."""
    last = answers(session, text)[-1]
    assert last.error is not None
    return next(finding.id for finding in last.error.diagnostics if finding.is_error)


# --- definitions ------------------------------------------------------------------------------


def test_definitions_persist(session: Session) -> None:
    """Functions, variables and macros of an input are defined in the next."""
    value(session, "(define (double x) (* 2 x)) (define n 21)")
    value(session, "(define-syntax twice (syntax-rules () ((_ f x) (f (f x)))))")
    assert value(session, "(twice double n)") == "84"


def test_earlier_inputs_are_not_evaluated_again(session: Session) -> None:
    """A counter counts each evaluation once."""
    value(session, "(define n 0) (define (next) (set! n (+ n 1)) n)")
    assert [value(session, "(next)") for _ in range(3)] == ["1", "2", "3"]
    assert value(session, "n") == "3"


def test_closures_share_their_variables_across_inputs(session: Session) -> None:
    """Two closures of one scope see each other's assignments, also in later inputs."""
    value(session, "(define (make) (define n 0) (list (lambda () (set! n (+ n 1)) n) (lambda () n)))")
    value(session, "(define pair (make))")
    value(session, "((first pair))")
    value(session, "((first pair))")
    assert value(session, "((second pair))") == "2"


def test_a_replaced_definition_is_used_by_its_callers(session: Session) -> None:
    """Callers, also those that are stored as values, call the new definition."""
    value(session, "(define (rate) 2) (define (price n) (* n (rate))) (define stored (list price))")
    value(session, "(define (rate) 3)")
    assert value(session, "(price 10)") == "30"
    assert value(session, "((first stored) 10)") == "30"
    definition = answers(session, "(define (rate) 4)")[0].input
    assert definition is not None
    assert definition.replaced == ("rate",)


def test_a_new_value_may_use_the_old_value(session: Session) -> None:
    assert value(session, "(define x 1) (define x (+ x 1)) (define x (* x 10)) x") == "20"


def test_a_library_function_can_be_replaced_with_a_notice(session: Session) -> None:
    """A definition of `length` hides that of the library."""
    results = answers(session, "(define (length l) 7) (length nil)")
    assert results[0].input is not None
    assert results[0].input.replaced == ("length",)
    assert results[1].value == "7"


def test_functions_may_use_names_defined_later(session: Session) -> None:
    """A warning, a fault if called too early, then the function; names of the same text cause no warning."""
    definition = answers(session, "(define (f x) (g x))")[0].input
    assert definition is not None
    assert [finding.id for finding in definition.diagnostics] == ["unbound-name"]
    assert fault(session, "(f 1)") == "uninitialised"
    assert value(session, "(define (g x) (+ x 1)) (f 1)") == "2"
    both = answers(
        session, "(define (a n) (if (= n 0) 'a (b (- n 1)))) (define (b n) (if (= n 0) 'b (a (- n 1))))"
    )
    assert [answer.input.diagnostics for answer in both if answer.input] == [(), ()]
    assert value(session, "(a 1001)") == "b"


def test_unbound_names_outside_functions_are_errors(session: Session) -> None:
    """So are names of other languages, also inside functions."""
    assert first_error(session, "(+ 1 nobody)") == "unbound-name"
    assert first_error(session, "(define (f) (println 1))") == "unbound-name"


def test_calls_are_checked_against_earlier_definitions(session: Session) -> None:
    """The arity of an earlier function is known, unless its name is assigned."""
    value(session, "(define (two a b) a)")
    assert first_error(session, "(two 1)") == "wrong-arity"
    assert first_error(session, "(lambda () (two 1 2 3))") == "wrong-arity"
    value(session, "(set! two (lambda (a) a))")
    assert value(session, "(two 1)") == "1"


def test_a_form_with_a_compile_error_changes_nothing(session: Session) -> None:
    """It neither defines nor replaces a name."""
    value(session, "(define (f) 1)")
    assert first_error(session, "(begin (define (f) 2) (define (g) 3) (if 1))") != ""
    assert value(session, "(f)") == "1"
    assert first_error(session, "(g)") == "unbound-name"


def test_forms_before_a_fault_take_effect(session: Session) -> None:
    """Later forms are not evaluated, and the name of the failed definition is not defined."""
    assert fault(session, "(define a 1) (define b (/ a 0)) (define a 2)") == "division-by-zero"
    assert value(session, "a") == "1"
    assert first_error(session, "b") == "unbound-name"
    value(session, "(define b 5)")
    assert value(session, "b") == "5"


def test_a_definition_that_fails_keeps_the_old_value(session: Session) -> None:
    value(session, "(define a 1)")
    assert fault(session, "(define a (/ 1 0))") == "division-by-zero"
    assert value(session, "a") == "1"


def test_the_last_value_is_it(session: Session) -> None:
    """`it` is the value of the last expression; definitions and faults do not change it."""
    assert value(session, "(* 6 7)") == "42"
    value(session, "(define x 1)")
    fault(session, "(/ 1 0)")
    assert value(session, "(+ it x)") == "43"
    assert value(session, "(list it (lambda () it))") == "(43 #<function lambda-1>)"


def test_bind_defines_a_top_level_name(session: Session) -> None:
    """As in a file: its value is that of the name, and nested uses define too."""
    assert value(session, "(bind x 5)") == "5"
    assert value(session, "(if (> x 1) (bind y 6) nil)") == "6"
    assert value(session, "(bind x (+ x y)) x") == "11"


def test_macros_are_hygienic_across_inputs(session: Session) -> None:
    """Variables of a macro differ from those at the place of use, in every input."""
    value(
        session,
        "(define t 10) (define-syntax swap (syntax-rules () ((_ a b) (let ((t a)) (set! a b) (set! b t)))))",
    )
    assert value(session, "(define u 20) (swap t u) (list t u)") == "(20 10)"
    value(session, "(define (plus a b) (+ a b)) (define-syntax add (syntax-rules () ((_ a b) (plus a b))))")
    assert value(session, "(let ((plus -)) (add 5 3))") == "8"
    value(session, "(define (plus a b) (* a b))")
    assert value(session, "(add 5 3)") == "15"


def test_imports_persist(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of an imported file are defined in later inputs; its forms run once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib.sexp").write_text("(define n 0) (define (next) (set! n (+ n 1)) n) (next)")
    value(session, '(import "lib.sexp")')
    assert value(session, "(next)") == "2"
    assert value(session, '(import "lib.sexp") (next)') == "3"


def test_a_loop_form_sets_loop_config(session: Session) -> None:
    """Functions defined before the director's loop see `*loop-config*`."""
    value(session, "(define (most) (get-field *loop-config* 'max-iterations))")
    loop = """(director-evaluator-loop (max-iterations 4) (initial-director-input 0)
      (director (lambda (input n) n)) (executor (lambda (plan n) (most)))
      (evaluator (lambda (result plan n) result))
      (controller (lambda (feedback plan result n) (list 'stop result))))"""
    assert value(session, loop) == "4"
    assert value(session, "*loop-config*") == "null"


# --- evaluation -------------------------------------------------------------------------------


def test_effects_are_performed_once(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value(session, '(system:execute_shell_command (command "echo ran >> log"))')
    value(session, "1")
    assert (tmp_path / "log").read_text() == "ran\n"


def test_exit_raises_exited(session: Session) -> None:
    """The owner of the session handles `Exited`."""
    with pytest.raises(Exited) as exited:
        answers(session, "(exit 3)")
    assert exited.value.code == 3


def test_an_endless_program_is_interrupted(session: Session) -> None:
    """The session keeps its definitions."""
    value(session, "(define n 0) (define (spin) (set! n 1) (spin))")
    interrupt = Interrupt()
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt.set())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        results = list(session.run(session.source("(spin)"), interrupt))
    finally:
        signal.signal(signal.SIGALRM, before)
        interrupt.close()
    assert results[-1].is_interrupted
    assert value(session, "n") == "1"


class _InterruptingWorld(World):
    """A world that sets the interrupt during every effect."""

    def perform(self, effect: object, context: Context) -> dict[str, object]:
        context.interrupt.set()
        return super().perform(effect, context)  # type: ignore[arg-type]


def test_an_effect_is_interrupted() -> None:
    """The interrupted form ends; the next form runs."""
    session = Session(_InterruptingWorld())
    assert answers(session, "(define x 1) (sleep 60)")[-1].is_interrupted
    assert value(session, "x") == "1"
    session.close()


def test_fuel_bounds_each_form() -> None:
    """Running out of fuel is a fault with a span."""
    session = Session(fuel=10_000)
    value(session, "(define (spin) (spin))")
    assert fault(session, "(spin)") == "out-of-fuel"
    assert session.fault is not None
    assert session.fault.span is not None
    assert value(session, "(+ 1 1)") == "2"
    session.close()


def test_unreachable_functions_of_a_session_are_removed(session: Session) -> None:
    """Reachable closures continue to work after thousands of inputs."""
    value(
        session,
        "(define (make n) (lambda (x) (map (lambda (y) (+ n y)) (list x)))) (define closure (make 5))",
    )
    value(session, "(define held (list (dict (f closure)) (cons closure nil)))")
    for number in range(3 * SWEEP_AT):
        value(session, f"(define (f x) (+ x {number}))")
    assert session._linker.count < SWEEP_AT + 20
    assert len(session._linker.image.sources) < SWEEP_AT + 20
    assert value(session, "(list (closure 1) ((get (first held) 'f) 2) ((first (second held)) 3) (f 0))") == (
        f"((6) (7) (8) {3 * SWEEP_AT - 1})"
    )


# --- inspection -------------------------------------------------------------------------------


def test_ir_and_bytecode_are_shown(session: Session) -> None:
    """Of a name, a form or the last input; with nested functions, without those of the library."""
    value(session, "(define (f l) (map (lambda (x) (* x 2)) l))")
    text = session.ir("f")
    assert text.startswith("function f(l)")
    assert "function f/lambda-1(x)" in text
    assert "map/next" not in text
    assert "function map(" in session.ir("map")
    assert "function input-" in session.ir("(f '(1))")
    value(session, "(f '(1))")
    assert "tailcall" in session.ir() or "call" in session.ir()
    assert "CLOSURE" in session.bytecode("f")


def test_inspection_defines_nothing(session: Session) -> None:
    """`:ir` and `:expand` compile a definition without evaluating it."""
    value(session, "(define (f) 1)")
    session.ir("(define (f) 2)")
    session.expanded(session.source("(define (g) 2)"))
    assert value(session, "(f)") == "1"
    assert first_error(session, "(g)") == "unbound-name"
    value(session, "(define (f) (map abs '(-3)))")
    assert value(session, "(f)") == "(3)"


def test_reset_removes_all_definitions(session: Session) -> None:
    """And the last value."""
    value(session, "(define x 1) (define-syntax m (syntax-rules () ((_) 1))) 5")
    session.reset()
    assert first_error(session, "x") == "unbound-name"
    assert value(session, "it") == "null"
    assert list(session.variables()) == []


def test_a_syntax_error_rejects_the_complete_input(session: Session) -> None:
    assert first_error(session, "(define x 1) (+ 1") == "unclosed-form"
    assert first_error(session, "x") == "unbound-name"


def test_tasks_persist_and_can_be_replaced(session: Session) -> None:
    """Calls are checked against the current definition."""
    value(session, '(defatom greet (params name) (instructions "Hi {{name}}"))')
    assert first_error(session, "(lambda () (greet (nme 1)))") == "unknown-parameter"
    definition = answers(session, '(defatom greet (params who) (instructions "Ho {{who}}"))')[0].input
    assert definition is not None
    assert definition.replaced == ("greet",)
    value(session, '(define (later) (greet (who "x")))')
    assert dict(session.variables())["greet"].startswith("task (greet")


def test_tools_and_loops_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session can call built-in tools and the project's loops, as a flow can."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "touch.yaml").write_text(
        "name: touch\ninitial: a\nstates:\n  a: {action: echo x >> log, next: b}\n  b: {terminal: true}\n"
    )
    session = Session()
    value(session, '(define (go) (get (run-loop "touch") "status"))')
    assert value(session, "(list (go) (go))") == '("success" "success")'
    assert value(session, '(system:list_directory (directory_path "."))') is not None
    assert (tmp_path / "log").read_text() == "x\nx\n"
    session.close()
