"""Flows on the command line: run, compile, validate, list and resume, as for loops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keepers import kill_with_keeper

import llc as package
from llc.ir.diagnostics import CompileError
from llc.ir.text import parse_program
from llc.runtime.effects.scripted_world import ScriptedWorld

Llc = Callable[..., subprocess.CompletedProcess[str]]

COUNT = """; Counts down.
(define (count n)
  (if (= n 0)
      "landed"
      (begin (log-message "at" n) (count (- n 1)))))
(count start)
"""
WORLD = "clock: 2030-01-01T00:00:00Z\nenv: {NAME: Ada}\nrules: []\n"


@pytest.fixture
def llc(llc: Llc, project_dir: Path) -> Llc:
    """Run llc in a project with a flow."""
    (project_dir / ".loops" / "countdown.sexp").write_text(COUNT)
    (project_dir / "world.yaml").write_text(WORLD)
    return llc


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_an_expression_is_run(llc: Llc) -> None:
    """Its value is in the JSON object, and printed where no JSON was asked for."""
    assert answer(llc("run", "-e", "(+ 1 2)", "--json"))["value"] == 3
    assert llc("run", "--expression=(list 1 2)").stdout == "[\n  1,\n  2\n]\n"


def test_numbers_that_json_does_not_have(llc: Llc) -> None:
    """An integer has all its digits, outside too; what is not finite is a string in JSON."""
    done = llc(
        "run", "-e", "(begin (log-message (expt 10 5000)) (list (expt 10 30000) (* 1e308 10)))", "--json"
    )
    found = json.loads(done.stdout, parse_int=len, parse_constant=lambda name: pytest.fail(name))
    assert found["value"] == [30001, "Infinity"], done.stderr


def test_what_shows_a_run_as_json_has_no_infinite_number(llc: Llc, project_dir: Path) -> None:
    """The journal keeps them as numbers; logs, trace and reports hold JSON that every reader takes."""
    (project_dir / "big.sexp").write_text(
        "(define r (* 1e308 10))\n(log-message r)\n(list r (- r) (- r r))\n"
    )
    assert llc("run", "big.sexp").returncode == 0
    shown = (
        llc("logs", "big", "--json").stdout.splitlines() + llc("trace", "big", "--json").stdout.splitlines()
    )
    for form in ("json", "perfetto"):
        assert llc("report", "big", "--format", form, "-o", f"{form}.json").returncode == 0
        shown.append((project_dir / f"{form}.json").read_text())
    assert llc("report", "big", "-o", "big.html").returncode == 0
    pieces = re.findall(
        '<script type="application/json"[^>]*>(.*?)</script>', (project_dir / "big.html").read_text(), re.S
    )
    assert pieces
    values = [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in [*shown, *pieces]]
    assert '["Infinity", "-Infinity", "NaN"]' in json.dumps(values)


def test_a_flow_is_found_by_its_name(llc: Llc) -> None:
    """`.loops/<name>.sexp` is the flow `<name>`; what it says is shown, its value is last."""
    done = llc("run", "countdown", "--arg", "start=2")
    assert (done.returncode, done.stdout) == (0, 'at 2\nat 1\n"landed"\n'), done.stderr


def test_an_unchanged_flow_runs_from_the_cache(llc: Llc) -> None:
    """With other arguments it is another program."""
    for start, said in (("1", "at 1\n"), ("1", "at 1\n"), ("0", "")):
        assert llc("run", "countdown", "--arg", f"start={start}").stdout == said + '"landed"\n'


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("a b", "a b"), ("[1, [2]]", [1, [2]]), ('"3"', "3"), ("true", True), ("", "")],
)
def test_an_argument_is_json_or_text(llc: Llc, text: str, value: Any) -> None:
    """`--arg name=value` binds a variable of the flow."""
    assert answer(llc("run", "-e", "(list x)", "--arg", f"x={text}", "--json"))["value"] == [value]


def test_an_argument_that_nothing_reads_is_told(llc: Llc) -> None:
    """A warning: the flow runs."""
    done = llc("run", "countdown", "--arg", "start=0", "--arg", "strat=1")
    assert (done.returncode, done.stdout) == (0, '"landed"\n')
    assert "warning[unused-argument]: the flow does not read the argument `strat`" in done.stderr


def test_a_mistake_is_shown_at_its_place(llc: Llc) -> None:
    """Nothing is run; the exit code is that of an invalid loop."""
    done = llc("run", "-e", "(+ 1 nonsense)")
    assert done.returncode == 2
    assert "<expression>:1:6" in done.stderr
    assert "^^^^^^^^" in done.stderr


def test_a_fault_is_shown_with_the_functions_it_went_through(llc: Llc, tmp_path: Path) -> None:
    """The place, the message and a backtrace in the names of the source."""
    (tmp_path / "bad.sexp").write_text(
        '(define (inner x) (+ x 1))\n(define (outer x)\n  (* 2 (inner x)))\n(+ 1 (outer "a"))\n'
    )
    done = llc("run", "bad.sexp")
    assert done.returncode == 1
    assert "bad.sexp:1:19" in done.stderr
    trace = [line.strip() for line in done.stderr.splitlines() if line.startswith("  in ")]
    assert trace == [
        "in `program`, state `outer-4` (bad.sexp:4:6)",
        "in `outer`, state `inner-3` (bad.sexp:3:8)",
        "in `inner`, state `start` (bad.sexp:1:19)",
    ]


def test_a_run_ends_with_the_code_a_flow_says(llc: Llc) -> None:
    """`exit` ends it, whatever would have followed or caught."""
    done = llc("run", "-e", '(begin (try (exit 7) (catch e 1)) (log-message "not reached"))', "--json")
    assert (done.returncode, answer(done)["terminated_by"]) == (7, "exit")
    assert llc("run", "-e", "(exit)").returncode == 0


def test_a_whole_float_is_an_exit_code(llc: Llc) -> None:
    """As it is a count, and an index."""
    assert [llc("run", "-e", f"(exit {code})").returncode for code in ("0.0", "3.0")] == [0, 3]


def test_a_loop_form_that_runs_out_is_reported(llc: Llc, project_dir: Path) -> None:
    """The result, `history` and `status` say so; the flow has its value and succeeds."""
    (project_dir / ".loops" / "tries.sexp").write_text("""(iterative-loop
      (max-iterations limit) (initial-input 1) (test-command "true")
      (executor (lambda (input n) n)) (validator (lambda (command n) null))
      (controller (lambda (result seen input n) (list (if (= n 2) 'stop 'continue) result))))""")
    found = answer(llc("run", "tries", "--arg", "limit=1", "--json"))
    assert (found["status"], found["terminated_by"], found["value"]) == ("success", "max_iterations", 1)
    assert "success (max_iterations)" in llc("history", "tries").stdout
    assert "max_iterations" in llc("status", found["run"]).stdout
    assert "is identical" in llc("replay", found["run"]).stdout
    assert answer(llc("run", "tries", "--arg", "limit=3", "--json"))["terminated_by"] == "return"


def test_history_distinguishes_inner_and_outer_loop_forms(llc: Llc, project_dir: Path) -> None:
    """Each phase of a loop that runs within another, also in a function that a YAML loop calls."""
    inner = """(iterative-loop (max-iterations 2) (initial-input 1) (test-command "true")
      (executor (lambda (input n) n)) (validator (lambda (command n) null))
      (controller (lambda (result seen input n) (list (if (= n 2) 'stop 'continue) result))))"""
    (project_dir / ".loops" / "fix.sexp").write_text(f"(define (fix) {inner})")
    flow = inner.replace("(executor (lambda (input n) n))", "(executor (lambda (input n) (fix)))")
    (project_dir / ".loops" / "outer.sexp").write_text(f'(import "fix.sexp") {flow}')
    (project_dir / ".loops" / "calls.yaml").write_text(
        "name: calls\ninitial: a\nstates:\n"
        "  a: {call: 'fix.sexp#fix', on_success: done, on_failure: done}\n  done: {terminal: true}\n"
    )
    for loop, around in (
        ("outer", {"executor": 2, "validator": 2, "controller": 2}),
        ("calls", {"a": 1, "done": 1}),
    ):
        assert llc("run", loop).returncode == 0
        states = answer(llc("history", loop, "--json"))["states"]
        entered = {name: state["entered"] for name, state in states.items()}
        rounds = 4 if loop == "outer" else 2
        within = {f"fix/{phase}": rounds for phase in ("executor", "validator", "controller")}
        assert entered == {**around, **within}


def test_a_scripted_world_answers_a_flow(llc: Llc) -> None:
    """Its clock and its environment, and no others."""
    text = '(begin (sleep 60) (list (now) (env "NAME") (env "PATH" "none")))'
    done = llc("run", "-e", text, "--script", "world.yaml", "--json")
    assert answer(done)["value"] == ["2030-01-01T00:01:00.000Z", "Ada", "none"]


def test_the_state_file_says_where_a_flow_is(llc: Llc, tmp_path: Path) -> None:
    """The innermost function and its state; a variable called `result` is no loop's result."""
    (tmp_path / "stuck.sexp").write_text(
        "(define (rest-a-bit result)\n  (set! result 1)\n  (sleep 60)\n"
        "  (lambda () (set! result 2)))\n(rest-a-bit 0)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "stuck.sexp", "-q"], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    found: list[Path] = []
    while not found:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        found = list((tmp_path / ".loops" / ".running").glob("*/*.state.json"))
    state = json.loads(found[0].read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert (state["current_state"], state["last_result"]) == ("rest-a-bit/sleep-3", None)


def test_a_flow_that_was_killed_goes_on(llc: Llc, tmp_path: Path) -> None:
    """What was logged and read before is not done again; the rest is."""
    (tmp_path / "slow.sexp").write_text(
        '(define begun (now))\n(log-message "begun")\n(sleep 0.5)\n(list begun (now))\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "slow.sexp", "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    running = tmp_path / ".loops" / ".running"
    deadline = time.monotonic() + 60
    while not any('"sleep"' in path.read_text() for path in running.glob("*/*.events.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kill_with_keeper(process)
    process.wait()
    (events,) = running.glob("*/*.events.jsonl")
    before = events.read_text()
    done = llc("resume", "slow", "--json")
    assert done.returncode == 0, done.stderr
    begun, ended = answer(done)["value"]
    assert begun in before
    assert ended > begun
    (events,) = (tmp_path / ".loops" / ".history").glob("*/*.events.jsonl")
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert kinds.count("log") == 1
    assert "run_resume" in kinds


def test_each_form_of_a_flow_is_printed(llc: Llc) -> None:
    """The expanded text, the IR (which parses) and the bytecode; there is no FSM."""
    words = ("compile", "countdown", "--arg", "start=1")
    assert "(count" in llc(*words, "--emit", "expanded").stdout
    text = llc(*words, "--emit", "ir").stdout
    assert parse_program(text, "<text>").meta.kind == "flow"
    assert "TAILCALL" in llc(*words, "--emit", "bytecode").stdout
    done = llc(*words, "--emit", "fsm")
    assert (done.returncode, "--emit expanded shows it" in done.stderr) == (2, True)


def test_a_compiled_flow_runs(llc: Llc) -> None:
    """An image of a flow is verified and run as one of a loop."""
    assert llc("compile", "countdown", "--arg", "start=1", "-o", "x.llb").returncode == 0
    assert llc("run", "x.llb", "-q", "--json").stdout.count('"landed"') == 1


def test_flows_are_listed_and_validated(llc: Llc, tmp_path: Path) -> None:
    """A flow with a mistake is shown as invalid, and why."""
    (tmp_path / ".loops" / "broken.sexp").write_text("(if 1 2)")
    (tmp_path / ".loops" / "fine.sexp").write_text("(+ 1 2)")
    rows = {row["name"]: row for row in json.loads(llc("list", "--json").stdout)}
    assert rows["fine"]["valid"] is True
    assert (rows["broken"]["paradigm"], rows["broken"]["valid"]) == ("flow", False)
    assert llc("validate", "fine").returncode == 0
    assert llc("validate", "countdown", "--arg", "start=1").returncode == 0
    done = llc("validate", ".loops/broken.sexp")
    assert done.returncode == 2
    assert ".loops/broken.sexp:1:1" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["countdown", "-e", "1"],
        ["countdown", "--arg", "start"],
        ["countdown", "--arg", "start=1", "--max-iterations", "3"],
        ["countdown", "--context", "start=1"],
    ],
)
def test_what_a_flow_does_not_take_is_refused(llc: Llc, words: list[str]) -> None:
    """With one message, and nothing is run."""
    done = llc("run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[")
    assert not os.path.exists(os.path.join(".loops", ".history"))


def test_a_flow_is_run_from_python(llc: Llc) -> None:
    """By name, with arguments as Python values; or compiled, for a machine in one's own hands."""
    outcome = package.run("countdown", arguments={"start": 0})
    assert (outcome.status, outcome.value) == ("success", "landed")
    image = package.compile("(* x 2)", "x.sexp", arguments={"x": 21})
    stop = package.Machine(image).resume()
    assert isinstance(stop, package.Done)
    assert stop.value == 42


def test_an_expression_is_evaluated_from_python() -> None:
    """With bindings and in a given world; nothing is written."""
    assert package.evaluate("(list (+ 1 x) xs)", {"x": 2, "xs": [1, {"a": None}]}) == [3, [1, {"a": None}]]
    world = ScriptedWorld([], env={"NAME": "Ada"})
    text = '(begin (log-message "x") (sleep 90) (list (now) (env "NAME")))'
    assert package.evaluate(text, world=world) == ["2024-01-15T10:31:30.000Z", "Ada"]


def test_a_scripted_world_may_be_a_file(tmp_path: Path) -> None:
    """As `script` of `run`: a path, as text or not."""
    path = tmp_path / "world.yaml"
    path.write_text("- {kind: ask, answer: b}\n")
    for world in (path, str(path)):
        assert package.evaluate('(ask "which?")', world=world) == "b"
    with pytest.raises(CompileError, match="no file"):
        package.evaluate("1", world=tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bindings": {1: 2}}, "the name of a variable is a string, not 1"),
        ({"bindings": {"x": {1, 2}}}, "the value of the variable `x` is not plain data"),
        ({"bindings": [("x", 1)]}, "a map from names to values, not list"),
        ({"world": 5}, "performs effects, or is the file of a scripted world; int is neither"),
    ],
)
def test_arguments_that_are_none_are_refused(given: dict[str, Any], says: str) -> None:
    """Before anything is evaluated, in the caller's words."""
    with pytest.raises(TypeError, match=says):
        package.evaluate("(+ 1 1)", **given)


def test_what_goes_wrong_in_an_evaluation_is_raised() -> None:
    """A mistake, a fault, ticks that are used up."""
    with pytest.raises(package.CompileError, match="unbound"):
        package.evaluate("(+ 1 nonsense)")
    with pytest.raises(package.FlowError, match="division-by-zero") as caught:
        package.evaluate("(/ 1 x)", {"x": 0})
    assert caught.value.fault.span is not None
    with pytest.raises(package.FlowError, match="out-of-fuel"):
        package.evaluate("(loop () (recur))", fuel=1000)
