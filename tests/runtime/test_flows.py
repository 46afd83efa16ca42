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


def json_object(completed: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    value = json.loads(completed.stdout)
    assert isinstance(value, dict)
    return value


def test_run_expression(llc: Llc) -> None:
    """The JSON object has the value; without `--json` it is printed."""
    assert json_object(llc("run", "-e", "(+ 1 2)", "--json"))["value"] == 3
    assert llc("run", "--expression=(list 1 2)").stdout == "[\n  1,\n  2\n]\n"


def test_huge_and_infinite_numbers_in_json(llc: Llc) -> None:
    """Integers keep all digits, also in JSON; infinite numbers are strings in JSON."""
    done = llc(
        "run", "-e", "(begin (log-message (expt 10 5000)) (list (expt 10 30000) (* 1e308 10)))", "--json"
    )
    outcome = json.loads(done.stdout, parse_int=len, parse_constant=lambda name: pytest.fail(name))
    assert outcome["value"] == [30001, "Infinity"], done.stderr


def test_json_output_of_a_run_has_no_infinite_number(llc: Llc, project_dir: Path) -> None:
    """The journal keeps them as numbers; logs, trace and reports have strictly valid JSON."""
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


def test_flow_is_found_by_name(llc: Llc) -> None:
    """`.loops/<name>.sexp` is the flow `<name>`; its messages are shown, its value comes last."""
    done = llc("run", "countdown", "--arg", "start=2")
    assert (done.returncode, done.stdout) == (0, 'at 2\nat 1\n"landed"\n'), done.stderr


def test_unchanged_flow_runs_from_the_cache(llc: Llc) -> None:
    """Other arguments give another program."""
    for start, message in (("1", "at 1\n"), ("1", "at 1\n"), ("0", "")):
        assert llc("run", "countdown", "--arg", f"start={start}").stdout == message + '"landed"\n'


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("a b", "a b"), ("[1, [2]]", [1, [2]]), ('"3"', "3"), ("true", True), ("", "")],
)
def test_argument_is_json_or_text(llc: Llc, text: str, value: Any) -> None:
    """`--arg name=value` binds a variable of the flow."""
    assert json_object(llc("run", "-e", "(list x)", "--arg", f"x={text}", "--json"))["value"] == [value]


def test_unused_argument_is_a_warning(llc: Llc) -> None:
    """The warning does not prevent the run."""
    done = llc("run", "countdown", "--arg", "start=0", "--arg", "strat=1")
    assert (done.returncode, done.stdout) == (0, '"landed"\n')
    assert "warning[unused-argument]: the flow does not read the argument `strat`" in done.stderr


def test_compile_error_is_shown_with_its_position(llc: Llc) -> None:
    """Nothing runs; the exit code is that of an invalid loop."""
    done = llc("run", "-e", "(+ 1 nonsense)")
    assert done.returncode == 2
    assert "<expression>:1:6" in done.stderr
    assert "^^^^^^^^" in done.stderr


def test_fault_is_shown_with_a_backtrace(llc: Llc, tmp_path: Path) -> None:
    """The position, the message and a backtrace with the names of the source."""
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


def test_exit_sets_the_exit_code(llc: Llc) -> None:
    """`exit` ends the run, even inside `try`."""
    done = llc("run", "-e", '(begin (try (exit 7) (catch e 1)) (log-message "not reached"))', "--json")
    assert (done.returncode, json_object(done)["terminated_by"]) == (7, "exit")
    assert llc("run", "-e", "(exit)").returncode == 0


def test_integral_float_is_an_exit_code(llc: Llc) -> None:
    """Integral floats are accepted as counts and indices too."""
    assert [llc("run", "-e", f"(exit {code})").returncode for code in ("0.0", "3.0")] == [0, 3]


def test_reached_limit_of_a_loop_form_is_reported(llc: Llc, project_dir: Path) -> None:
    """The result, `history` and `status` state it; the flow has a value and succeeds."""
    (project_dir / ".loops" / "tries.sexp").write_text("""(iterative-loop
      (max-iterations limit) (initial-input 1) (test-command "true")
      (executor (lambda (input n) n)) (validator (lambda (command n) null))
      (controller (lambda (result seen input n) (list (if (= n 2) 'stop 'continue) result))))""")
    outcome = json_object(llc("run", "tries", "--arg", "limit=1", "--json"))
    assert (outcome["status"], outcome["terminated_by"], outcome["value"]) == ("success", "max_iterations", 1)
    assert "success (max_iterations)" in llc("history", "tries").stdout
    assert "max_iterations" in llc("status", outcome["run"]).stdout
    assert "is identical" in llc("replay", outcome["run"]).stdout
    assert json_object(llc("run", "tries", "--arg", "limit=3", "--json"))["terminated_by"] == "return"


def test_history_distinguishes_inner_and_outer_loop_forms(llc: Llc, project_dir: Path) -> None:
    """Each phase of a loop inside another loop, also in a function that a YAML loop calls."""
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
    for loop, outer_counts in (
        ("outer", {"executor": 2, "validator": 2, "controller": 2}),
        ("calls", {"a": 1, "done": 1}),
    ):
        assert llc("run", loop).returncode == 0
        states = json_object(llc("history", loop, "--json"))["states"]
        entered = {name: state["entered"] for name, state in states.items()}
        rounds = 4 if loop == "outer" else 2
        inner_counts = {f"fix/{phase}": rounds for phase in ("executor", "validator", "controller")}
        assert entered == {**outer_counts, **inner_counts}


def test_scripted_world_of_a_flow(llc: Llc) -> None:
    """The flow gets the clock and the environment of the script only."""
    text = '(begin (sleep 60) (list (now) (env "NAME") (env "PATH" "none")))'
    done = llc("run", "-e", text, "--script", "world.yaml", "--json")
    assert json_object(done)["value"] == ["2030-01-01T00:01:00.000Z", "Ada", "none"]


def test_state_file_has_the_position_of_a_flow(llc: Llc, tmp_path: Path) -> None:
    """The innermost function and its state; a variable called `result` is not the result of a loop."""
    (tmp_path / "stuck.sexp").write_text(
        "(define (pause result)\n  (set! result 1)\n  (sleep 60)\n  (lambda () (set! result 2)))\n(pause 0)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "stuck.sexp", "-q"], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    state_files: list[Path] = []
    while not state_files:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        state_files = list((tmp_path / ".loops" / ".running").glob("*/*.state.json"))
    state = json.loads(state_files[0].read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert (state["current_state"], state["last_result"]) == ("pause/sleep-3", None)


def test_killed_flow_resumes(llc: Llc, tmp_path: Path) -> None:
    """Messages and the clock are not repeated; the remaining effects are performed."""
    (tmp_path / "slow.sexp").write_text(
        '(define started (now))\n(log-message "started")\n(sleep 0.5)\n(list started (now))\n'
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
    started, finished = json_object(done)["value"]
    assert started in before
    assert finished > started
    (events,) = (tmp_path / ".loops" / ".history").glob("*/*.events.jsonl")
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert kinds.count("log") == 1
    assert "run_resume" in kinds


def test_emit_selects_the_form_of_a_flow(llc: Llc) -> None:
    """The expanded text, the IR (which parses) and the bytecode; a flow has no FSM."""
    words = ("compile", "countdown", "--arg", "start=1")
    assert "(count" in llc(*words, "--emit", "expanded").stdout
    text = llc(*words, "--emit", "ir").stdout
    assert parse_program(text, "<text>").meta.kind == "flow"
    assert "TAILCALL" in llc(*words, "--emit", "bytecode").stdout
    done = llc(*words, "--emit", "fsm")
    assert (done.returncode, "--emit expanded shows it" in done.stderr) == (2, True)


def test_compiled_flow_runs(llc: Llc) -> None:
    """The image of a flow is verified and run like that of a loop."""
    assert llc("compile", "countdown", "--arg", "start=1", "-o", "x.llb").returncode == 0
    assert llc("run", "x.llb", "-q", "--json").stdout.count('"landed"') == 1


def test_flows_are_listed_and_validated(llc: Llc, tmp_path: Path) -> None:
    """An invalid flow is shown with the reason."""
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
def test_invalid_options_of_a_flow_are_refused(llc: Llc, words: list[str]) -> None:
    """The error is one message, and nothing runs."""
    done = llc("run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[")
    assert not os.path.exists(os.path.join(".loops", ".history"))


def test_flow_runs_from_python(llc: Llc) -> None:
    """By name, with Python values as arguments; or compiled, for a machine of the caller."""
    outcome = package.run("countdown", arguments={"start": 0})
    assert (outcome.status, outcome.value) == ("success", "landed")
    image = package.compile("(* x 2)", "x.sexp", arguments={"x": 21})
    stop = package.Machine(image).resume()
    assert isinstance(stop, package.Done)
    assert stop.value == 42


def test_expression_is_evaluated_from_python() -> None:
    """With bindings and a scripted world; nothing is written."""
    assert package.evaluate("(list (+ 1 x) xs)", {"x": 2, "xs": [1, {"a": None}]}) == [3, [1, {"a": None}]]
    world = ScriptedWorld([], env={"NAME": "Ada"})
    text = '(begin (log-message "x") (sleep 90) (list (now) (env "NAME")))'
    assert package.evaluate(text, world=world) == ["2024-01-15T10:31:30.000Z", "Ada"]


def test_scripted_world_can_be_a_file(tmp_path: Path) -> None:
    """As a `Path` and as a string, like `script` of `run`."""
    path = tmp_path / "world.yaml"
    path.write_text("- {kind: ask, answer: b}\n")
    for world in (path, str(path)):
        assert package.evaluate('(ask "which?")', world=world) == "b"
    with pytest.raises(CompileError, match="no file"):
        package.evaluate("1", world=tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bindings": {1: 2}}, "the name of a variable is a string, not 1"),
        ({"bindings": {"x": {1, 2}}}, "the value of the variable `x` is not plain data"),
        ({"bindings": [("x", 1)]}, "a map from names to values, not list"),
        ({"world": 5}, "performs effects, or is the file of a scripted world; int is neither"),
    ],
)
def test_invalid_arguments_of_evaluate_are_refused(arguments: dict[str, Any], message: str) -> None:
    """The error is raised before the evaluation and names the argument."""
    with pytest.raises(TypeError, match=message):
        package.evaluate("(+ 1 1)", **arguments)


def test_evaluate_raises_errors() -> None:
    """A compile error, a fault, and fuel that is used up."""
    with pytest.raises(package.CompileError, match="unbound"):
        package.evaluate("(+ 1 nonsense)")
    with pytest.raises(package.FlowError, match="division-by-zero") as caught:
        package.evaluate("(/ 1 x)", {"x": 0})
    assert caught.value.fault.span is not None
    with pytest.raises(package.FlowError, match="out-of-fuel"):
        package.evaluate("(loop () (recur))", fuel=1000)
