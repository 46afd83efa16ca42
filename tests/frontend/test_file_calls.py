"""`call:` of a state: resolution of the function, errors, and the value as a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from linked_programs import World, drive, program_of, shell, write

from llc.frontend.compile import compile_file
from llc.frontend.loop.fsm_printer import print_fsm
from llc.ir.diagnostics import CompileError, Diagnostic
from llc.vm.values.faults import Fault

LIB = """\
(define base 10)
(define (same x) x)
(define (add a &optional (b 1)) (+ a b))
(define (all &rest more) more)
(define (above x) (+ base x))
(define (divide a b) (/ a b))
(define (nap seconds) (sleep seconds) "rested")
(define (careful seconds) (try (nap seconds) (catch e (nap 0.001) "woken")))
(define (from) (get (now-and-env) "HOME"))
(define (now-and-env) (dict (HOME (env "HOME"))))
(define (function) car)
(define counter 0)
(define (count) (set! counter (+ counter 1)) counter)
(define alias add)
(define number 5)
(define-syntax twice (syntax-rules () ((_ x) (list x x))))
(define (doubled x) (twice x))
"""
LOOP = """\
name: l
initial: a
states:
  a:
    CALL
    capture: out
    on_success: yes_
    on_failure: no_
    on_error: err
  yes_: {action: 'printf "%s" "yes ${captured.out.output}"', capture: end, next: done}
  no_: {action: 'printf "%s" "no ${captured.out.output}"', capture: end, next: done}
  err: {action: 'printf "%s" "error ${result.details.message}"', capture: end, next: done}
  done: {terminal: true}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    (tmp_path / ".loops" / "lib.sexp").write_text(LIB)
    return tmp_path


def compiled(project: Path, call: str, loop: str = LOOP) -> Any:
    write(project, l__yaml=loop.replace("CALL", call))
    return program_of(".loops/l.yaml")


def text_of_call(project: Path, call: str) -> str:
    """Text of the call's result, as printed by the next state."""
    world = World()
    outcome = drive(compiled(project, call), world)
    assert not isinstance(outcome, Fault), outcome
    return last_output(world)


def last_output(world: World) -> str:
    """Output of the last action."""
    return str(shell(world.asked[-1][1]["command"])["output"])


def errors(project: Path, call: str, loop: str = LOOP) -> list[Diagnostic]:
    write(project, l__yaml=loop.replace("CALL", call))
    with pytest.raises(CompileError) as caught:
        compile_file(".loops/l.yaml")
    return [finding for finding in caught.value.diagnostics if finding.is_error]


# --- the value as a result --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("call: lib.sexp#same\n    args: [text]", "yes text"),
        ("call: lib.sexp#same\n    args: ['']", "no "),
        ("call: lib.sexp#same\n    args: [0]", "no 0"),
        ("call: lib.sexp#same\n    args: [false]", "no false"),
        ("call: lib.sexp#same\n    args: [null]", "no "),
        ("call: lib.sexp#same\n    args: [[]]", "no []"),
        ("call: lib.sexp#same\n    args: [[1, a]]", 'yes [1, "a"]'),
        ("call: lib.sexp#same\n    args: [{k: [1.5, true]}]", 'yes {"k": [1.5, true]}'),
        ("call: lib.sexp#add\n    args: [1]", "yes 2"),
        ("call: lib.sexp#add\n    args: [1, 5]", "yes 6"),
        ("call: lib.sexp#add\n    args: {b: 4, a: 3}", "yes 7"),
        ("call: lib.sexp#add\n    args: {a: 3}", "yes 4"),
        ("call: lib.sexp#all", "no []"),
        ("call: lib.sexp#all\n    args: [1, 2]", "yes [1, 2]"),
        ("call: lib.sexp#above\n    args: [5]", "yes 15"),
        ("call: lib.sexp#alias\n    args: [5, 2]", "yes 7"),
        ("call: lib.sexp#doubled\n    args: [5]", "yes [5, 5]"),
        ("call: lib.sexp#divide\n    args: [1, 0]", "error 1 divided by zero"),
        ("call: lib.sexp#divide\n    args: ['1', 2]", "error "),
        ("call: lib.sexp#function", "error a function cannot leave the machine"),
        ("call: lib.sexp#count", "yes 1"),
    ],
)
def test_return_value_becomes_the_action_result(project: Path, call: str, expected: str) -> None:
    """The text of the value is the output; a true value is exit code 0, a false one 1; a fault is an
    error.
    """
    assert text_of_call(project, call).startswith(expected)


def test_calls_share_no_state(project: Path) -> None:
    """Values that a file defines besides functions are evaluated again for each call."""
    loop = LOOP.replace("on_success: yes_", "on_success: b").replace(
        "  done:", "  b: {call: lib.sexp#count, capture: out, on_success: yes_, on_failure: no_}\n  done:"
    )
    world = World()
    drive(compiled(project, "call: lib.sexp#count", loop), world)
    assert last_output(world) == "yes 1"


def test_unrouted_fault_ends_the_loop(project: Path) -> None:
    """The fault keeps the kind, message and position of the function."""
    loop = LOOP.replace("    on_error: err\n", "")
    fault = drive(compiled(project, "call: lib.sexp#divide\n    args: [1, 0]", loop), World())
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.message) == ("division-by-zero", "1 divided by zero")


def test_evaluators_read_the_output_of_a_call(project: Path) -> None:
    loop = LOOP.replace(
        "    capture: out\n",
        "    capture: out\n    evaluate: {type: output_numeric, operator: gt, target: 100}\n",
    )
    world = World()
    drive(compiled(project, "call: lib.sexp#above\n    args: [5]", loop), world)
    assert last_output(world) == "no 15"


def test_prev_refers_to_the_call(project: Path) -> None:
    """`${prev.output}`, `.exit_code` and `.state` describe the call."""
    loop = LOOP.replace("yes ${captured.out.output}", "${prev.output} ${prev.exit_code} ${prev.state}")
    world = World()
    drive(compiled(project, "call: lib.sexp#same\n    args: [x]", loop), world)
    assert last_output(world) == "x 0 a"


# --- arguments --------------------------------------------------------------------------------


def test_arguments_are_passed_unchanged(project: Path) -> None:
    """No argument is quoted for a shell, however it is nested."""
    write(
        project,
        l__yaml="name: l\ninitial: first\ncontext: {n: 5, l: [1, 2]}\nstates:\n"
        '  first: {action: "printf \\"it\'s  \\\\$x\\"", capture: c, next: a}\n'
        "  a:\n    call: lib.sexp#all\n"
        "    args: ['${context.n}', '${context.l}', 'n${context.n}', '${captured.c.exit_code}',\n"
        "           {k: ['${captured.c.output}', 7]}, '$${y}', '<${captured.c.output}>']\n"
        "    capture: got\n    next: end\n"
        "  end: {terminal: true}\n",
        f__sexp='(json-parse (get-field (run-loop "l") "captured.got"))',
    )
    assert drive(program_of("f.sexp"), World()) == [
        5,
        [1, 2],
        "n5",
        0,
        {"k": ["it's  $x", 7]},
        "${y}",
        "<it's  $x>",
    ]


def test_undefined_argument_is_an_error_of_the_state(project: Path) -> None:
    """The error occurs before the call and takes the error route of the state."""
    loop = LOOP.replace("states:\n", "states:\n  z: {action: 'true', capture: none, next: a}\n")
    assert drive(
        compiled(project, "call: lib.sexp#same\n    args: ['${captured.none.output}']", loop), World()
    )


# --- errors -----------------------------------------------------------------------------------

MISTAKES = [
    ("call: lib.sexp", "bad-call", "lib.sexp", "flows.sexp#summarise"),
    ("call: 'lib.sexp#'", "bad-call", "'lib.sexp#'", None),
    ("call: lib.py#same", "bad-call", "lib.py#same", "`.sexp`"),
    ("call: lub.sexp#same", "unknown-file", "lub.sexp#same", "did you mean `lib.sexp`?"),
    ("call: lib.sexp#sane", "unknown-function", "lib.sexp#sane", "did you mean `same`?"),
    ("call: lib.sexp#twice", "unknown-function", "lib.sexp#twice", None),
    ("call: lib.sexp#number", "not-a-function", "lib.sexp#number", None),
    ("call: lib.sexp#same", "wrong-arity", "lib.sexp#same", "its parameters are (x)"),
    ("call: lib.sexp#add\n    args: [1, 2, 3]", "wrong-arity", "[1, 2, 3]", "its parameters are (a b)"),
    ("call: lib.sexp#add\n    args: {a: 1, c: 2}", "unknown-parameter", "c", "its parameters are: `a`, `b`"),
    ("call: lib.sexp#add\n    args: {b: 2}", "missing-argument", "{b: 2}", None),
    ("call: lib.sexp#divide\n    args: {b: 2}", "missing-argument", "{b: 2}", None),
    ("call: lib.sexp#same\n    args: x", "wrong-type", "x", "write `[x]`"),
    ("call: lib.sexp#same\n    args: ['${captured.nothing.output}']", "unset-capture",
     "${captured.nothing.output}", None),
    ("call: lib.sexp#same\n    args: {x: [['${contxt.z}']]}", "unknown-namespace", "${contxt.z}", "context"),
    ("call: lib.sexp#same\n    args: [1]\n    action: ls", "action-and-call", "call", "two states"),
    ("call: [1]", "wrong-type", "[1]", None),
]  # fmt: skip


@pytest.mark.parametrize(("call", "id", "place", "help"), MISTAKES, ids=[call for call, *_ in MISTAKES])
def test_wrong_call_is_reported_at_its_position(
    project: Path, call: str, id: str, place: str, help: str | None
) -> None:
    """The diagnostic is given at compile time, with a caret and a suggestion."""
    diagnostics = errors(project, call)
    assert [finding.id for finding in diagnostics] == [id], diagnostics
    span = diagnostics[0].span
    assert span is not None
    line = (project / ".loops" / "l.yaml").read_text().splitlines()[span.line - 1]
    assert line[span.column - 1 : span.end_column - 1] == place
    assert help is None or help in (diagnostics[0].help or "")


@pytest.mark.parametrize(
    ("key", "why"),
    [("on_unknown: fail", "the state has no action"), ("action_type: shell", "the state has no action")],
)
def test_action_key_in_call_state_is_unused(project: Path, key: str, why: str) -> None:
    """The key causes the usual warning."""
    write(project, l__yaml=LOOP.replace("CALL", f"call: lib.sexp#all\n    {key}"))
    (diagnostic,) = compile_file(".loops/l.yaml").diagnostics
    assert diagnostic.id == "unused-key"
    assert why in diagnostic.message


def test_arguments_without_a_call_are_unused(project: Path) -> None:
    """The key causes the usual warning."""
    write(project, l__yaml=LOOP.replace("CALL", "action: 'true'\n    args: [1]"))
    (diagnostic,) = compile_file(".loops/l.yaml").diagnostics
    assert (diagnostic.id, diagnostic.message) == (
        "unused-key",
        "`args` has no effect: the state has no call",
    )


@pytest.mark.parametrize(
    ("text", "id", "place"),
    [
        ('(define (f) 1)\n(log-message "hi")', "not-a-definition", (2, 1)),
        ('(import "more.sexp")\n(define (f) 1)', "not-a-definition", (1, 1)),
        ("(define (f) (g))", "unbound-name", (1, 14)),
        ("(define (f) 1", "unclosed-form", (1, 1)),
        ("(define (f) (car 1 2))", "wrong-arity", (1, 13)),
    ],
)
def test_error_in_called_file_is_reported_there(
    project: Path, text: str, id: str, place: tuple[int, int]
) -> None:
    """A called file may contain only definitions, and all of it is checked."""
    (project / ".loops" / "own.sexp").write_text(text)
    (project / ".loops" / "more.sexp").write_text("(+ 1 2)")
    (diagnostic,) = errors(project, "call: own.sexp#f")
    assert diagnostic.id == id
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == place


def test_loop_and_flow_errors_are_reported_together(project: Path) -> None:
    """A wrong target in the loop and a wrong call in the file are reported in one run."""
    (project / ".loops" / "own.sexp").write_text("(define (f) (car 1 2))")
    diagnostics = errors(project, "call: own.sexp#f", LOOP.replace("on_error: err", "on_error: er"))
    assert sorted(finding.id for finding in diagnostics) == ["unknown-state", "wrong-arity"]


# --- timeouts ---------------------------------------------------------------------------------


def late(project: Path, call: str, more: str = "", **changes: str) -> tuple[Any, World]:
    loop = LOOP + more
    for old, new in changes.items():
        loop = loop.replace(old, new)
    world = World()
    return drive(compiled(project, call, loop), world), world


@pytest.mark.parametrize("function", ["nap", "careful"])
def test_state_timeout_ends_the_call(project: Path, function: str) -> None:
    """No effect of the function outlives the timeout, and the function cannot catch it."""
    outcome, world = late(project, f"call: lib.sexp#{function}\n    args: [30]\n    timeout: 2")
    assert outcome["final_state"] == "done"
    assert last_output(world) == "error timed out after 2 s"
    assert world.now < 2100


@pytest.mark.parametrize("function", ["nap", "careful"])
def test_loop_timeout_ends_the_loop_during_a_call(project: Path, function: str) -> None:
    outcome, world = late(project, f"call: lib.sexp#{function}\n    args: [30]", "timeout: 2\n")
    assert (outcome["status"], outcome["terminated_by"]) == ("limit", "timeout")
    assert world.now < 2100


def test_timeout_that_is_not_reached_has_no_effect(project: Path) -> None:
    outcome, world = late(project, "call: lib.sexp#nap\n    args: [1]\n    timeout: 2", "timeout: 5\n")
    assert outcome["final_state"] == "done"
    assert last_output(world) == "yes rested"


NESTED = """\
(define (for-ever) (while true (try (run-loop "own") (catch e 1))))
(define (untimed) (while true (try (run-loop "free") (catch e 1))))
(define (in-strands) (while true (try (parallel-map (lambda (x) (sleep x)) '(1 2)) (catch e 1))))
(define (by-value) (while true (try (map (lambda (x) (apply sleep (list x))) '(1 2)) (catch e 1))))
"""
INNER = """\
name: NAME
initial: a
states:
  a: {call: lib.sexp#nap, args: [0.4], timeout: 7, on_error: a, next: b}
  b: {action: 'true', on_error: a, next: c}
  c: {terminal: true}
"""


@pytest.mark.parametrize("function", ["for-ever", "untimed", "by-value", "in-strands"])
def test_timeout_applies_to_nested_loops_and_functions(project: Path, function: str) -> None:
    """Nested loops with or without timeouts and an enclosing `try` do not evade it."""
    (project / ".loops" / "nest.sexp").write_text(NESTED)
    write(
        project,
        own__yaml=INNER.replace("NAME", "own") + "timeout: 1\n",
        free__yaml=INNER.replace("NAME", "free"),
    )
    outcome, world = late(project, f"call: nest.sexp#{function}", "timeout: 3\n")
    assert (outcome["status"], outcome["terminated_by"]) == ("limit", "timeout")
    assert world.now < 3100


def test_budget_forbids_calls_that_consume_it(project: Path) -> None:
    """The consumption of a called function cannot be counted, so such a call is an error."""
    write(
        project,
        ask__yaml="name: ask\ninitial: a\nstates:\n  a: {action: /x, next: b}\n  b: {terminal: true}\n",
    )
    (project / ".loops" / "spend.sexp").write_text(
        '(define (ask) (helper))\n(define (helper) (run-loop "ask"))\n(define (free) 1)'
    )
    (diagnostic,) = errors(project, "call: spend.sexp#ask", LOOP + "budget: {usd: 1}\n")
    assert diagnostic.id == "unbounded-budget"
    assert "`agent`" in diagnostic.message
    assert diagnostic.span is not None
    assert diagnostic.span.line == 5
    assert compiled(project, "call: spend.sexp#free", LOOP + "budget: {usd: 1}\n")


# --- forms ------------------------------------------------------------------------------------


def test_printed_call_reads_back(project: Path) -> None:
    """`--emit fsm` prints a loop that reads back equal."""
    write(
        project,
        l__yaml=LOOP.replace("CALL", "call: lib.sexp#add\n    args: {a: 1, b: '${context.n:default=2}'}"),
    )
    loop = compile_file(".loops/l.yaml").loop
    assert loop is not None
    write(project, again__yaml=print_fsm(loop))
    assert compile_file(".loops/again.yaml").loop == loop


def test_effects_of_a_function_belong_to_the_calling_state(project: Path) -> None:
    """The calling state is the current state while they are performed."""
    world = World(lambda effect: {"values": {"HOME": "/home/ann"}} if effect.kind == "env" else None)
    outcome = drive(compiled(project, "call: lib.sexp#from"), world)
    assert not isinstance(outcome, Fault)
    assert [kind for kind, _ in world.asked] == ["clock", "env", "clock", "shell"]


PARADIGMS = {
    "goal": "paradigm: goal\nname: l\ngoal: x\ntools:\n  - {call: lib.sexp#add, args: [1]}\n"
    "  - {call: lib.sexp#same, args: [2]}\n",
    "convergence": "paradigm: convergence\nname: l\ncheck: {call: lib.sexp#same, args: [0]}\ntoward: 0\n"
    "using: {call: lib.sexp#same, args: [2]}\n",
    "invariants": "paradigm: invariants\nname: l\nconstraints:\n  - name: c\n"
    "    check: {call: lib.sexp#add, args: {a: 2}}\n    fix: {call: lib.sexp#same, args: [2]}\n",
    "imperative": "paradigm: imperative\nname: l\nsteps:\n  - {call: lib.sexp#all}\n"
    "until:\n  check: {call: lib.sexp#same, args: [yes]}\n",
}


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_call_replaces_an_action_of_a_paradigm(project: Path, paradigm: str) -> None:
    """It becomes the call of a state; an error in it is reported at its position."""
    write(project, l__yaml=PARADIGMS[paradigm])
    outcome = drive(program_of(".loops/l.yaml"), World())
    assert outcome["status"] == "success"
    loop = compile_file(".loops/l.yaml").loop
    assert loop is not None
    assert any(state.call for state in loop.states.values())
    write(project, l__yaml=PARADIGMS[paradigm].replace("#same", "#sane"))
    with pytest.raises(CompileError) as caught:
        compile_file(".loops/l.yaml")
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.id == "unknown-function"
    assert diagnostic.span is not None
    assert (
        "lib.sexp#sane"
        in PARADIGMS[paradigm].replace("#same", "#sane").splitlines()[diagnostic.span.line - 1]
    )


def test_misspelt_key_of_paradigm_call_is_one_error(project: Path) -> None:
    write(project, l__yaml=PARADIGMS["imperative"].replace("args:", "arg:"))
    with pytest.raises(CompileError) as caught:
        compile_file(".loops/l.yaml")
    assert [finding.id for finding in caught.value.diagnostics] == ["unknown-key"]


def test_captured_value_is_passed_to_another_call(project: Path) -> None:
    """`${captured.x.value}` is the value itself; its fields can be selected."""
    write(
        project,
        l__yaml="name: l\ninitial: a\nstates:\n"
        "  a: {call: lib.sexp#same, args: [{n: 3, l: [1, 2]}], capture: x, next: b}\n"
        "  b: {call: lib.sexp#all, args: ['${captured.x.value.n}', '${prev.value.l}'], capture: y, next: c}\n"
        "  c: {action: 'echo ${captured.x.value}', capture: z, next: d}\n  d: {terminal: true}\n",
        f__sexp='(get (run-loop "l") "captured")',
    )
    assert drive(program_of("f.sexp"), World()) == {
        "x": '{"n": 3, "l": [1, 2]}',
        "y": "[3, [1, 2]]",
        "z": '{"n": 3, "l": [1, 2]}',
    }


@pytest.mark.parametrize("variable", ["${captured.x.value}", "${prev.value}"])
def test_value_of_an_action_is_an_error(project: Path, variable: str) -> None:
    """`.value` is an error if no possible source of the variable is a call."""
    write(
        project,
        l__yaml="name: l\ninitial: a\nstates:\n  a: {action: ls, capture: x, next: b}\n"
        f"  b: {{action: 'echo {variable}', next: c}}\n  c: {{terminal: true}}\n",
    )
    with pytest.raises(CompileError, match="exists only after a call"):
        compile_file(".loops/l.yaml")
