"""`iterative-loop` and `director-evaluator-loop`: order, decisions, limits and notes."""

from __future__ import annotations

from typing import Any

import pytest
from flow_runs import machine_of, value_of
from flow_texts import findings, run, value_text

from llc.vm.machine.machine import Done, Fault, OutOfFuel
from llc.vm.tiered import Machine

CLAUSES = {
    "max-iterations": "3",
    "initial-input": '"start"',
    "test-command": '"make test"',
    "executor": "(lambda (input n) (list 'did input n))",
    "validator": "(lambda (command n) (list command n))",
    "controller": "(lambda (result validation input n) (list 'continue n))",
}
DIRECTED = {
    "max-iterations": "3",
    "initial-director-input": '"start"',
    "director": "(lambda (input n) (list 'plan input n))",
    "executor": "(lambda (plan n) (list 'did plan n))",
    "evaluator": "(lambda (result plan n) (list 'saw n))",
    "controller": "(lambda (feedback plan result n) (list 'continue n))",
}


def loop(**changes: str | None) -> str:
    return _form("iterative-loop", CLAUSES, changes)


def director_loop(**changes: str | None) -> str:
    return _form("director-evaluator-loop", DIRECTED, changes)


def _form(name: str, clauses: dict[str, str], changes: dict[str, str | None]) -> str:
    given = clauses | {key.replace("_", "-"): value for key, value in changes.items()}
    lines = [f"  ({key} {value})" for key, value in given.items() if value is not None]
    return f"({name}\n" + "\n".join(lines) + ")"


def test_arguments_of_phases() -> None:
    """Executor, validator and controller get the arguments of the seed; iterations start at 1."""
    text = loop(
        controller="(lambda (result validation input n) "
        "(if (= n 2) (list 'stop (list result validation input n)) (list 'continue \"next\")))"
    )
    assert value_text(text) == '((did "next" 2) ("make test" 2) "next" 2)'


def test_arguments_of_director_loop_phases() -> None:
    """Plan, result and feedback reach the phases in the order of the seed."""
    text = director_loop(
        controller="(lambda (feedback plan result n) "
        "(if (= n 2) (list 'stop (list feedback plan result n)) (list 'continue \"next\")))"
    )
    plan = '(plan "next" 2)'
    assert value_text(text) == f"((saw 2) {plan} (did {plan} 2) 2)"


@pytest.mark.parametrize("form", [loop, director_loop])
def test_max_iterations_returns_the_last_result(form: Any) -> None:
    """The value is the last result of the executor."""
    text = form(executor="(lambda (given n) (* n 10))")
    assert value_text(text) == "30"


@pytest.mark.parametrize("form", [loop, director_loop])
def test_no_iterations_give_nil(form: Any) -> None:
    """With max-iterations 0 no phase runs and the value is nil."""
    assert value_text(form(max_iterations="0")) == "()"


@pytest.mark.parametrize("form", [loop, director_loop])
def test_clauses_have_any_order(form: Any) -> None:
    """Value and evaluation order do not depend on the order of the clauses."""
    lines = form().split("\n")
    backwards = "\n".join([lines[0], *reversed(lines[1:-1]), lines[-1]])
    assert value_text(backwards) == value_text(form())


def test_clauses_are_evaluated_once_in_fixed_order() -> None:
    """Maximum, input, command, then the functions, in any order of the clauses."""
    text = f"""(define log nil)
(define (note name value) (set! log (cons name log)) value)
{
        loop(
            controller="(begin (note 'c 0) (lambda (r v i n) (list 'continue i)))",
            max_iterations="(note 'm 2)",
            initial_input="(note 'i 1)",
            test_command='(note (quote t) "x")',
            executor="(begin (note 'e 0) (lambda (i n) n))",
            validator="(begin (note 'v 0) (lambda (t n) n))",
        )
    }
(reverse log)"""
    assert value_text(text) == "(m i t e v c)"


BAD_DECISIONS = {
    "(list \"stop\" 1)": '("stop" 1)',
    "(list 'halt 1)": "(halt 1)",
    "(list 'stop)": "(stop)",
    "(list 'stop 1 2)": "(stop 1 2)",
    "'stop": "stop",
    "null": "null",
    "(dict (stop 1))": "stop",
}  # fmt: skip


@pytest.mark.parametrize("form", [loop, director_loop])
@pytest.mark.parametrize(("decision", "shown"), BAD_DECISIONS.items())
def test_invalid_decision_is_a_fault(form: Any, decision: str, shown: str) -> None:
    """The message contains value, phase and iteration."""
    text = form(controller=f"(lambda (a b c n) (if (= n 2) {decision} (list 'continue 1)))")
    outcome, _ = run(text)
    assert isinstance(outcome, Fault)
    assert outcome.kind == "bad-decision"
    assert outcome.message.startswith("in the controller, iteration 2: ")
    assert shown in outcome.message


def test_huge_decision_is_truncated_in_the_message() -> None:
    outcome, _ = run(loop(controller="(lambda (r v i n) (range 100000))"))
    assert isinstance(outcome, Fault)
    assert len(outcome.message) < 1000


@pytest.mark.parametrize("phase", ["executor", "validator", "controller"])
def test_fault_in_a_phase_names_phase_and_iteration(phase: str) -> None:
    """Kind and span are those of the original fault."""
    takes = "(r v i n)" if phase == "controller" else "(a n)"
    outcome, _ = run(loop(**{phase: f'(lambda {takes} (error \'broken "no good"))'}))
    assert isinstance(outcome, Fault)
    assert outcome.kind == "broken"
    assert outcome.message == f"in the {phase}, iteration 1: no good"
    assert outcome.span is not None
    assert outcome.span[1] == 2 + list(CLAUSES).index(phase)


WRONG_CLAUSES = {
    "max_iterations": ("(- 1)", "bad-count", "not -1"),
    "test_command": ("(car '(5))", "type-error", "not 5"),
    "executor": ("(car '(5))", "not-a-function", "executor"),
}


@pytest.mark.parametrize(("clause", "expected"), WRONG_CLAUSES.items())
def test_clause_of_wrong_type_is_a_fault_before_any_phase(
    clause: str, expected: tuple[str, str, str]
) -> None:
    """Values are checked when the loop starts."""
    value, kind, part = expected
    outcome, notes = run(loop(**{clause: value}))
    assert isinstance(outcome, Fault)
    assert outcome.kind == kind
    assert part in outcome.message
    assert notes == []


def test_loop_config_is_visible_in_called_functions() -> None:
    """`*loop-config*` is dynamic: functions see it while the loop runs, and null outside."""
    text = f"""(define (maximum) (get-field *loop-config* "max-iterations"))
(define before *loop-config*)
(define inside {
        director_loop(
            initial_director_input='"x"',
            executor='(lambda (plan n) (list (maximum) (get *loop-config* "initial-director-input")))',
        )
    })
(list before inside *loop-config*)"""
    assert value_text(text) == '(null (3 "x") null)'


def test_inner_loop_restores_the_outer_configuration() -> None:
    """Also if the inner loop fails."""
    inner = director_loop(max_iterations="1", executor='(lambda (p n) (error "inner"))')
    text = director_loop(
        max_iterations="2",
        executor=f'(lambda (p n) (begin (try {inner} (catch e 0)) (get *loop-config* "max-iterations")))',
    )
    assert value_text(text) == "2"


def test_notes_of_a_loop() -> None:
    """Notes contain the loop, each phase with its iteration, each verdict, and the outcome."""
    _, notes = run(loop(controller="(lambda (r v i n) (if (= n 2) (list 'stop 1) (list 'continue i)))"))
    told = [
        (kind, fields.get("state") or fields.get("verdict"), fields.get("iteration"))
        for kind, fields in notes
    ]
    phases = ["executor", "validator", "controller"]
    assert told == [
        ("loop_start", None, None),
        *(("state_enter", phase, 1) for phase in phases),
        ("evaluate", "controller", None),
        ("route", "continue", None),
        *(("state_enter", phase, 2) for phase in phases),
        ("evaluate", "controller", None),
        ("loop_complete", None, None),
    ]
    assert notes[-1][1] == {
        "final_state": "controller", "iterations": 2, "status": "success", "terminated_by": "stop",
    }  # fmt: skip


def test_notes_name_nested_loops() -> None:
    """The name is that of the function, else of the form, numbered; the outermost loop has none, also after a
    fault.
    """
    text = f"""
    (define (fix)
      (begin {loop(max_iterations="1")} {director_loop(max_iterations="1")}))
    (define (fails) {loop(executor="(lambda (input n) (error 'broken))")})
    {
        loop(
            max_iterations="1",
            executor="(lambda (input n) (fix) (try (fails) (catch e 1)))",
            validator=f"(lambda (command n) {loop(max_iterations='1')})",
        )
    }
    (fix)
    """
    _, notes = run(text)
    begun = [fields["loop"] for kind, fields in notes if kind == "loop_start"]
    assert begun == ["iterative-loop", "fix", "fix-2", "fails", "iterative-loop-2", "fix", "fix-2"]
    entered = [(fields.get("loop"), fields["state"]) for kind, fields in notes if kind == "state_enter"]
    phases, directing = (
        ["executor", "validator", "controller"],
        ["director", "executor", "evaluator", "controller"],
    )
    assert entered == [
        (None, "executor"),
        *(("fix", phase) for phase in phases),
        *(("fix-2", phase) for phase in directing),
        ("fails", "executor"),
        (None, "validator"),
        *(("iterative-loop-2", phase) for phase in phases),
        (None, "controller"),
        *((None, phase) for phase in phases),
        *((None, phase) for phase in directing),
    ]
    ended = [(fields.get("loop"), fields["status"]) for kind, fields in notes if kind == "loop_complete"]
    assert ended == [
        ("fix", "limit"), ("fix-2", "limit"), ("iterative-loop-2", "limit"), (None, "limit"),
        (None, "limit"), (None, "limit"),
    ]  # fmt: skip
    moves = [fields.get("loop") for kind, fields in notes if kind in ("evaluate", "route")]
    assert moves == ["fix"] * 2 + ["fix-2"] * 2 + ["iterative-loop-2"] * 2 + [None] * 6


def test_phase_is_any_function_expression() -> None:
    text = "(define (work input n) (* n 2)) (define judge list)" + loop(
        executor="work", validator="(if true judge work)"
    )
    assert value_text(text) == "6"


def test_loop_forms_are_hygienic() -> None:
    """Shadowed library names and variables named like clauses change nothing."""
    text = f"(let ((first 1) (put 2) (executor 3) (iteration 4) (string-append 5)) {loop(executor='(lambda (i n) (+ first put executor iteration string-append))')})"  # noqa: E501
    assert value_text(text) == "15"


FINDINGS = {
    loop(executor=None): ["missing-clause"],
    loop(executor=None, validator=None): ["missing-clause"],
    loop(exector="1"): ["unknown-clause"],
    loop() [:-1] + " (executor 1))": ["repeated-clause"],
    loop(executor="1 2"): ["bad-clause"],
    loop()[:-1] + " 5)": ["bad-clause"],
    loop(executor="(lambda (x) x)"): ["wrong-arity"],
    loop(controller="list") : [],
    loop(controller="car"): ["wrong-arity"],
    "(define (judge a b c) a)" + loop(controller="judge"): ["wrong-arity"],
    loop(executor='"work"'): ["not-a-function"],
    loop(max_iterations="-1"): ["bad-count"],
    loop(max_iterations="2.5"): ["bad-count"],
    loop(test_command="5"): ["bad-clause"],
    loop(executor="(lambda (i n) (if i n))"): ["missing-else"],
    director_loop(evaluator=None): ["missing-clause"],
    director_loop(initial_input="1"): ["unknown-clause"],
    director_loop(evaluator="(lambda (a b) a)"): ["wrong-arity"],
    "(set! *loop-config* 1)": ["cannot-set"],
}  # fmt: skip


@pytest.mark.parametrize(("text", "ids"), FINDINGS.items())
def test_wrong_loop_is_a_compile_error(text: str, ids: list[str]) -> None:
    """Missing, unknown and repeated clauses; functions of the wrong arity; invalid constants."""
    assert [item.id for item in findings(text)] == ids


def test_unknown_clause_has_a_fix() -> None:
    """The help shows the syntax of every clause and suggests the nearest name."""
    [finding] = findings(loop(exector="1"))
    assert finding.help is not None
    assert finding.help.startswith("did you mean `executor`?")
    for name in CLAUSES:
        assert f"({name} " in finding.help


def test_clauses_of_a_wrong_loop_are_checked() -> None:
    """A missing clause hides no error inside the others."""
    diagnostics = findings(loop(validator=None, executor="(lambda (i n) (if nobody i))"))
    assert sorted(item.id for item in diagnostics) == ["missing-clause", "missing-else", "unbound-name"]


def test_missing_clauses_are_one_error() -> None:
    """The error is at the loop form."""
    [finding] = findings("(iterative-loop (max-iterations 1))")
    assert finding.message.count("`") == 2 * 6
    assert isinstance(run("1")[0], Done)


def test_fault_message_lists_each_nested_loop_once() -> None:
    """A recursive loop is listed once; another iteration or phase is listed too."""
    text = """
    (define (deep n)
      (iterative-loop
        (max-iterations 2) (initial-input n) (test-command "true")
        (executor (lambda (input i) (if (= n 0) (error 'broken "no good") (deep (- n 1)))))
        (validator (lambda (command i) null))
        (controller (lambda (result checked input i) (list 'stop result)))))
    (define (outer)
      (iterative-loop
        (max-iterations 3) (initial-input 1) (test-command "true")
        (executor (lambda (input i) (if (= i 2) (deep 5) i)))
        (validator (lambda (command i) null))
        (controller (lambda (result checked input i) (list 'continue input)))))
    (try (outer) (catch e (get e "message")))
    """
    assert value_of(text) == "in the executor, iteration 2: in the executor, iteration 1: no good"


INNER = """
(define (inner x) (+ x (error 'broken "no good")))
(define (work n) (* 2 (inner n)))
"""
# Callers of `work` that catch its fault and raise it again, by the name of the case.
RERAISED = {
    "phase": loop(executor="(lambda (input n) (+ 1 (work n)))"),
    "director": director_loop(evaluator="(lambda (result plan n) (+ 1 (work n)))"),
    "last-phase": loop(controller="(lambda (result validation input n) (list 'stop (work n)))"),
    "finally": "(try (+ 1 (work 1)) (finally (list 1)))",
    "catch": "(try (+ 1 (work 1)) (catch f (error f)))",
    "changed": '(try (+ 1 (work 1)) (catch f (error (put f "message" "worse"))))',
    "twice": "(try (try (+ 1 (work 1)) (catch f (error f))) (catch g (error g)))",
    "nested": loop(executor="(lambda (input n) (+ 1 (try (work n) (finally nil))))"),
}


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
@pytest.mark.parametrize("form", RERAISED)
def test_reraised_fault_keeps_its_frames(form: str, tier: str) -> None:
    """The backtrace is that of code outside a loop, plus the frame of the phase."""
    text = INNER + f"(define (go) (list {RERAISED[form]}))\n(list (go))"
    machine = Machine(machine_of(text).image, tier=tier)
    outcome: Any = None
    while not machine.ended:
        outcome = (
            machine.resume() if outcome is None or isinstance(outcome, OutOfFuel) else machine.resume({})
        )
    assert isinstance(outcome, Fault)
    functions = [function.partition("/")[0] for function, _, _ in outcome.backtrace]
    assert functions[0] == "program"
    assert functions[-2:] == ["work", "inner"]
    assert set(functions) == {"program", "go", "work", "inner"}
    assert outcome.backtrace[-1][2] == outcome.span
    if "loop" in RERAISED[form]:
        assert ", iteration 1: " in outcome.message


def test_handled_fault_does_not_affect_later_faults() -> None:
    """A fault raised by the program or elsewhere has its own frames."""
    caught = "(try (work 1) (catch f f))"
    text = (
        INNER
        + f"(define (other f) (error f))\n(define (go) (let ((f {caught})) (list (other f))))\n(list (go))"
    )
    outcome = machine_of(text).resume()
    assert isinstance(outcome, Fault)
    assert [function for function, _, _ in outcome.backtrace] == ["program", "go", "other"]
    made = '(error (dict ("kind" "broken") ("message" "made") ("span" "a.sexp:1:1")))'
    outcome = machine_of(f"(define (go) (try {made} (catch f (error f))))\n(list (go))").resume()
    assert isinstance(outcome, Fault)
    assert [function for function, _, _ in outcome.backtrace] == ["program", "go"]


@pytest.mark.parametrize("controller", ['(lambda (r v input n) (list "stop" r))', "decide"])
def test_string_decision_is_reported_at_the_controller(controller: str) -> None:
    """The warning contains the fix and marks the function of the clause, wherever the list was made."""
    text = '(define (decide r v input n) (list "stop" r))\n' + loop(controller=controller) + "\n(list decide)"
    outcome = machine_of(text).resume()
    while isinstance(outcome, OutOfFuel):
        outcome = machine_of(text).resume()
    assert isinstance(outcome, Fault)
    assert outcome.kind == "bad-decision"
    assert outcome.message.endswith("; write a symbol instead of the string: (list 'stop …)")
    assert outcome.span is not None
    line = text.splitlines()[outcome.span[1] - 1]
    assert line[outcome.span[2] - 1 :].startswith(controller)
