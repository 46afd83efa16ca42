"""REPL sessions: what successive forms define, change and keep."""

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
    """What the last form of a text gives; the others end well."""
    found = answers(session, text)
    assert all(answer.is_good for answer in found), [answer.error or answer.fault for answer in found]
    return found[-1].value


def fault(session: Session, text: str) -> str:
    """The kind of the fault that a text ends in."""
    last = answers(session, text)[-1]
    assert last.fault is not None
    return last.fault.kind


def refusal(session: Session, text: str) -> str:
    """The first error that a text is refused for."""
    last = answers(session, text)[-1]
    assert last.error is not None
    return next(finding.id for finding in last.error.diagnostics if finding.is_error)


# --- definitions ------------------------------------------------------------------------------


def test_definitions_stay(session: Session) -> None:
    """Functions, variables and macros of one input are there in the next."""
    value(session, "(define (double x) (* 2 x)) (define n 21)")
    value(session, "(define-syntax twice (syntax-rules () ((_ f x) (f (f x)))))")
    assert value(session, "(twice double n)") == "84"


def test_nothing_is_evaluated_again(session: Session) -> None:
    """A counter counts each evaluation once, however many inputs follow."""
    value(session, "(define n 0) (define (next) (set! n (+ n 1)) n)")
    assert [value(session, "(next)") for _ in range(3)] == ["1", "2", "3"]
    assert value(session, "n") == "3"


def test_closures_share_their_variables_across_inputs(session: Session) -> None:
    """Two functions made together see each other's changes, later and from outside."""
    value(session, "(define (make) (define n 0) (list (lambda () (set! n (+ n 1)) n) (lambda () n)))")
    value(session, "(define pair (make))")
    value(session, "((first pair))")
    value(session, "((first pair))")
    assert value(session, "((second pair))") == "2"


def test_a_definition_replaced_is_seen_by_its_users(session: Session) -> None:
    """A function that calls another calls what that is now; so does one that was kept as a value."""
    value(session, "(define (rate) 2) (define (price n) (* n (rate))) (define kept (list price))")
    value(session, "(define (rate) 3)")
    assert value(session, "(price 10)") == "30"
    assert value(session, "((first kept) 10)") == "30"
    found = answers(session, "(define (rate) 4)")[0].input
    assert found is not None
    assert found.replaced == ("rate",)


def test_a_value_may_use_what_it_replaces(session: Session) -> None:
    """The old value is there until the new one is."""
    assert value(session, "(define x 1) (define x (+ x 1)) (define x (* x 10)) x") == "20"


def test_a_library_name_can_be_taken_and_is_told(session: Session) -> None:
    """A definition of `length` hides the library's, from then on."""
    found = answers(session, "(define (length l) 7) (length nil)")
    assert found[0].input is not None
    assert found[0].input.replaced == ("length",)
    assert found[1].value == "7"


def test_functions_may_use_names_defined_later(session: Session) -> None:
    """A warning, then a fault where it is too early, then the function; no warning within one text."""
    found = answers(session, "(define (f x) (g x))")[0].input
    assert found is not None
    assert [finding.id for finding in found.diagnostics] == ["unbound-name"]
    assert fault(session, "(f 1)") == "uninitialised"
    assert value(session, "(define (g x) (+ x 1)) (f 1)") == "2"
    both = answers(
        session, "(define (a n) (if (= n 0) 'a (b (- n 1)))) (define (b n) (if (= n 0) 'b (a (- n 1))))"
    )
    assert [answer.input.diagnostics for answer in both if answer.input] == [(), ()]
    assert value(session, "(a 1001)") == "b"


def test_unbound_names_outside_functions_are_errors(session: Session) -> None:
    """They would be asked for at once; so are names of other languages, wherever they stand."""
    assert refusal(session, "(+ 1 nobody)") == "unbound-name"
    assert refusal(session, "(define (f) (println 1))") == "unbound-name"


def test_calls_are_checked_against_what_is_defined(session: Session) -> None:
    """The arity of a function that was defined earlier is known, unless somebody assigns it."""
    value(session, "(define (two a b) a)")
    assert refusal(session, "(two 1)") == "wrong-arity"
    assert refusal(session, "(lambda () (two 1 2 3))") == "wrong-arity"
    value(session, "(set! two (lambda (a) a))")
    assert value(session, "(two 1)") == "1"


def test_a_refused_form_changes_nothing(session: Session) -> None:
    """Neither the names it would have defined nor those it would have replaced."""
    value(session, "(define (f) 1)")
    assert refusal(session, "(begin (define (f) 2) (define (g) 3) (if 1))") != ""
    assert value(session, "(f)") == "1"
    assert refusal(session, "(g)") == "unbound-name"


def test_a_fault_keeps_what_was_done_before(session: Session) -> None:
    """Forms before it count, those after it are not evaluated, its own name is not defined."""
    assert fault(session, "(define a 1) (define b (/ a 0)) (define a 2)") == "division-by-zero"
    assert value(session, "a") == "1"
    assert refusal(session, "b") == "unbound-name"
    value(session, "(define b 5)")
    assert value(session, "b") == "5"


def test_a_definition_that_fails_keeps_the_old_value(session: Session) -> None:
    """What was there is there still."""
    value(session, "(define a 1)")
    assert fault(session, "(define a (/ 1 0))") == "division-by-zero"
    assert value(session, "a") == "1"


def test_the_last_value_is_it(session: Session) -> None:
    """`it` is the value of the last expression; definitions and faults leave it."""
    assert value(session, "(* 6 7)") == "42"
    value(session, "(define x 1)")
    fault(session, "(/ 1 0)")
    assert value(session, "(+ it x)") == "43"
    assert value(session, "(list it (lambda () it))") == "(43 #<function lambda-1>)"


def test_bind_defines_at_the_top(session: Session) -> None:
    """As in a file: it gives its value, and inside another form it defines too."""
    assert value(session, "(bind x 5)") == "5"
    assert value(session, "(if (> x 1) (bind y 6) nil)") == "6"
    assert value(session, "(bind x (+ x y)) x") == "11"


def test_macros_keep_to_what_they_meant(session: Session) -> None:
    """A macro's own variables are not those of its user, in whatever input he uses it."""
    value(
        session,
        "(define t 10) (define-syntax swap (syntax-rules () ((_ a b) (let ((t a)) (set! a b) (set! b t)))))",
    )
    assert value(session, "(define u 20) (swap t u) (list t u)") == "(20 10)"
    value(session, "(define (plus a b) (+ a b)) (define-syntax add (syntax-rules () ((_ a b) (plus a b))))")
    assert value(session, "(let ((plus -)) (add 5 3))") == "8"
    value(session, "(define (plus a b) (* a b))")
    assert value(session, "(add 5 3)") == "15"


def test_imports_stay(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of an imported file are there in later inputs, its forms run once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib.sexp").write_text("(define n 0) (define (next) (set! n (+ n 1)) n) (next)")
    value(session, '(import "lib.sexp")')
    assert value(session, "(next)") == "2"
    assert value(session, '(import "lib.sexp") (next)') == "3"


def test_loop_forms_and_their_config(session: Session) -> None:
    """The director's loop sets `*loop-config*` for functions that were defined before."""
    value(session, "(define (most) (get-field *loop-config* 'max-iterations))")
    loop = """(director-evaluator-loop (max-iterations 4) (initial-director-input 0)
      (director (lambda (input n) n)) (executor (lambda (plan n) (most)))
      (evaluator (lambda (result plan n) result))
      (controller (lambda (feedback plan result n) (list 'stop result))))"""
    assert value(session, loop) == "4"
    assert value(session, "*loop-config*") == "null"


# --- running ----------------------------------------------------------------------------------


def test_effects_happen(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of the shell runs, once."""
    monkeypatch.chdir(tmp_path)
    value(session, '(system:execute_shell_command (command "echo ran >> log"))')
    value(session, "1")
    assert (tmp_path / "log").read_text() == "ran\n"


def test_exit_leaves(session: Session) -> None:
    """`exit` is for whoever holds the session."""
    with pytest.raises(Exited) as exited:
        answers(session, "(exit 3)")
    assert exited.value.code == 3


def test_an_endless_program_is_interrupted(session: Session) -> None:
    """The session goes on with what it had."""
    value(session, "(define n 0) (define (spin) (set! n 1) (spin))")
    interrupt = Interrupt()
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt.set())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        found = list(session.run(session.source("(spin)"), interrupt))
    finally:
        signal.signal(signal.SIGALRM, before)
        interrupt.close()
    assert found[-1].is_interrupted
    assert value(session, "n") == "1"


class _Impatient(World):
    """A world in which somebody presses Ctrl-C during every effect."""

    def perform(self, effect: object, context: Context) -> dict[str, object]:
        context.interrupt.set()
        return super().perform(effect, context)  # type: ignore[arg-type]


def test_an_effect_is_interrupted() -> None:
    """The wait ends, the form is given up, the next one runs."""
    session = Session(_Impatient())
    assert answers(session, "(define x 1) (sleep 60)")[-1].is_interrupted
    assert value(session, "x") == "1"
    session.close()


def test_fuel_bounds_each_form() -> None:
    """Out of fuel is a fault with its place."""
    session = Session(fuel=10_000)
    value(session, "(define (spin) (spin))")
    assert fault(session, "(spin)") == "out-of-fuel"
    assert session.fault is not None
    assert session.fault.span is not None
    assert value(session, "(+ 1 1)") == "2"
    session.close()


def test_a_long_session_forgets_what_nobody_can_call(session: Session) -> None:
    """Thousands of inputs leave few functions; closures that are kept go on working."""
    value(
        session, "(define (make n) (lambda (x) (map (lambda (y) (+ n y)) (list x)))) (define kept (make 5))"
    )
    value(session, "(define held (list (dict (f kept)) (cons kept nil)))")
    for number in range(3 * SWEEP_AT):
        value(session, f"(define (f x) (+ x {number}))")
    assert session._linker.count < SWEEP_AT + 20
    assert len(session._linker.image.sources) < SWEEP_AT + 20
    assert value(session, "(list (kept 1) ((get (first held) 'f) 2) ((first (second held)) 3) (f 0))") == (
        f"((6) (7) (8) {3 * SWEEP_AT - 1})"
    )


# --- looking ----------------------------------------------------------------------------------


def test_ir_and_bytecode_are_those_that_run(session: Session) -> None:
    """Of a name, of a form, of what came last; functions inside are shown, the library's are not."""
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


def test_looking_changes_nothing(session: Session) -> None:
    """`:ir` and `:expand` compile a definition without making it, and what comes next has its own names."""
    value(session, "(define (f) 1)")
    session.ir("(define (f) 2)")
    session.expanded(session.source("(define (g) 2)"))
    assert value(session, "(f)") == "1"
    assert refusal(session, "(g)") == "unbound-name"
    value(session, "(define (f) (map abs '(-3)))")
    assert value(session, "(f)") == "(3)"


def test_reset_forgets(session: Session) -> None:
    """Definitions, macros and the last value are gone."""
    value(session, "(define x 1) (define-syntax m (syntax-rules () ((_) 1))) 5")
    session.reset()
    assert refusal(session, "x") == "unbound-name"
    assert value(session, "it") == "null"
    assert list(session.variables()) == []


def test_errors_of_the_reader_refuse_the_whole_input(session: Session) -> None:
    """Nothing of a text that cannot be read is evaluated."""
    assert refusal(session, "(define x 1) (+ 1") == "unclosed-form"
    assert refusal(session, "x") == "unbound-name"


def test_tasks_stay_and_are_replaced(session: Session) -> None:
    """A task that was defined can be called later, as it is now; its calls are checked."""
    value(session, '(defatom greet (params name) (instructions "Hi {{name}}"))')
    assert refusal(session, "(lambda () (greet (nme 1)))") == "unknown-parameter"
    found = answers(session, '(defatom greet (params who) (instructions "Ho {{who}}"))')[0].input
    assert found is not None
    assert found.replaced == ("greet",)
    value(session, '(define (later) (greet (who "x")))')
    assert dict(session.variables())["greet"].startswith("task (greet")


def test_tools_and_loops_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a flow in a file can call, a session can: built-in tools, and the project's loops."""
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
