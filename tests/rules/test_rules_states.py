"""Rules 1 to 4 of `loops.md`: iterations, what a state sees, how a loop ends, convergence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_text
from llc.frontend.loop.fsm_printer import print_fsm

Run = Callable[..., Any]

CHECK_FIX = """
name: lint
initial: check
states:
  check: {action: make check, on_success: done, on_failure: fix}
  fix: {action: make fix, next: %s}
  verify: {action: make verify, on_success: done, on_failure: fix}
  done: {terminal: true}
"""
PING_PONG = """
name: ping-pong
initial: begin
states:
  begin: {action: make ready, next: ping}
  ping: {action: make ping, next: pong}
  pong: {action: make pong, on_success: done, on_failure: ping}
  done: {terminal: true}
"""


# --- 1 Iteration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "path"),
    [("check", "check1 fix1 check2 done2"), ("verify", "check1 fix1 verify1 done1")],
)
def test_rule_01_iteration_ends_when_a_state_is_entered_again(scripted: Run, then: str, path: str) -> None:
    """check → fix → check → done is two iterations, check → fix → verify → done is one."""
    world = "[{state: check, results: [{exit_code: 1}, {exit_code: 0}]}, {kind: shell}]"
    ran = scripted(CHECK_FIX % then, world)
    assert ran.path == path
    assert ran.outcome["iterations"] == int(path[-1])


def test_rule_01_self_loops_and_alternation_count_as_iterations(scripted: Run) -> None:
    """A state that routes to itself starts an iteration each time, and so do two that alternate."""
    retry = "name: r\ninitial: a\nstates:\n  a: {action: x, on_success: z, on_failure: $current}\n"
    ran = scripted(retry + "  z: {terminal: true}\n", "[{state: a, exit_code: 1}]", "--max-iterations", "3")
    assert ran.path == "a1 a2 a3"
    ran = scripted(PING_PONG, "[{exit_code: 1}]", "--max-iterations", "3")
    assert ran.path == "begin1 ping1 pong1 ping2 pong2 ping3 pong3"


def test_rule_01_max_iterations_bounds_every_program_and_is_50(scripted: Run) -> None:
    """Also a loop whose initial state is not entered again, and by default."""
    ran = scripted(PING_PONG, "[{exit_code: 1}]")
    assert ran.ended == ("limit", "max_iterations", "pong")
    assert ran.outcome["iterations"] == ran.path.count("ping") == 50


def test_rule_01_max_iterations_above_the_default(scripted: Run) -> None:
    """A loop with a higher limit may run more iterations than the default."""
    ran = scripted(PING_PONG + "max_iterations: 120", "[{exit_code: 1}]")
    assert ran.outcome["iterations"] == 120


def test_rule_01_timeout_bounds_the_time_inside_an_action(real: Run) -> None:
    """The timeout of the loop ends a longer action and the loop."""
    started_at = time.monotonic()
    ran = real(
        "name: t\ninitial: a\ntimeout: 0.5\n"
        "states:\n  a: {action: sleep 60, on_success: a, on_failure: z, on_error: a}\n  z: {terminal: true}\n"
    )
    assert ran.ended == ("limit", "timeout", "a")
    assert ran.path == "a1"
    assert time.monotonic() - started_at < 30


# --- 2 prev, result, captured -----------------------------------------------------------------


def test_rule_02_prev_is_the_last_action_that_ran_before_this_state(scripted: Run) -> None:
    """States without an action are skipped, and a state's own action is not its `prev`."""
    loop = """
name: p
initial: first
states:
  first: {action: make first, next: decide}
  decide:
    evaluate: {type: output_numeric, source: "${prev.exit_code}", operator: eq, target: 3}
    on_success: last
    on_failure: done
  last:
    action: "echo ${prev.state} ${prev.output}"
    evaluate: {type: output_contains, source: "${prev.state}", pattern: first}
    on_success: done
    on_failure: decide
  done: {action: "echo ${prev.state}", terminal: true}
"""
    ran = scripted(loop, "[{state: first, exit_code: 3, output: one}, {output: other}]")
    assert ran.commands == ["make first", "echo 'first' 'one'", "echo 'last'"]


def test_rule_02_result_stays_readable_in_the_following_states(scripted: Run) -> None:
    """`result` is the latest evaluation, across states without an evaluator."""
    loop = """
name: r
initial: fix
states:
  fix: {action: /ll:fix, on_success: rest, on_failure: fix, on_blocked: fix, on_partial: fix}
  rest: {action: make rest, next: done}
  done: {action: "echo ${result.verdict} ${result.details.reason}", terminal: true}
"""
    world = "[{kind: evaluate, verdict: success, reason: all green}, {kind: agent}, {kind: shell}]"
    assert scripted(loop, world).commands[-1] == "echo 'success' 'all green'"


def test_rule_02_output_loses_its_final_newline_as_in_a_shell(real: Run) -> None:
    """`captured.x` has output, stderr, exit code and duration; only the last newline is removed."""
    ran = real(
        """
name: c
initial: a
states:
  a: {action: "printf 'x\\n\\n'; echo oops >&2; exit 3", capture: a, next: b}
  b:
    action: |
      echo ${captured.a.output}, ${captured.a.stderr}, ${captured.a.exit_code}, ${captured.a.duration_ms}
    next: done
  done: {terminal: true}
"""
    )
    assert ran.commands[1].startswith("echo 'x\n', 'oops', '3', '")
    assert ran.commands[1].split("'")[-2].isdigit()


# --- 3 Terminal states and exit codes ---------------------------------------------------------


def test_rule_03_a_terminal_runs_its_action_and_the_loop_ends(real: Run, project: Path) -> None:
    """The terminal state decides the status, whatever the result of its action."""
    ran = real("name: t\ninitial: z\nstates:\n  z: {action: 'touch here; exit 9', terminal: true}\n")
    assert (project / "here").exists()
    assert ran.ended == ("success", "terminal", "z")
    assert ran.code == 0


ENDS = """
name: e
initial: a
%s
states:
  a: {action: '%s', on_success: z, on_failure: a}
  z: {terminal: true%s}
"""


@pytest.mark.parametrize(
    ("loop", "code", "status"),
    [
        pytest.param(ENDS % ("", "true", ""), 0, "success", id="success"),
        pytest.param(ENDS % ("", "true", ", status: failure"), 1, "failure", id="failure terminal"),
        pytest.param(ENDS % ("", "exit 7", ""), 1, "error", id="error"),
        pytest.param("name: e", 2, "error", id="invalid loop"),
        pytest.param(ENDS % ("max_iterations: 2", "false", ""), 3, "limit", id="max_iterations"),
        pytest.param(ENDS % ("timeout: 0.3", "sleep 9", ""), 3, "limit", id="timeout"),
    ],
)
def test_rule_03_exit_code_of_an_outcome(real: Run, loop: str, code: int, status: str) -> None:
    """0 success, 1 a failure terminal or an error, 2 an invalid loop, 3 a limit."""
    ran = real(loop)
    assert (ran.code, ran.outcome["status"]) == (code, status)


def test_rule_03_a_budget_ends_with_3(scripted: Run) -> None:
    """A budget is a limit."""
    loop = "name: b\ninitial: a\nbudget: {usd: 1}\nstates:\n  a: {action: /x, next: a}\n"
    ran = scripted(loop, "[{usage: {usd: 0.6}}]")
    assert (ran.code, ran.ended) == (3, ("limit", "budget", "a"))


@pytest.mark.parametrize("words", [(), ("--max-iterations", "none"), ("--no-such-flag",), ("no-such-loop",)])
def test_rule_03_bad_usage_ends_with_2(llc: Run, words: tuple[str, ...]) -> None:
    """A missing argument, an invalid number, an unknown option, an unknown loop."""
    assert llc("run", *words).returncode == 2


def test_rule_03_an_interrupted_run_ends_with_130(project: Path) -> None:
    """Ctrl-C ends the action, and the run can be resumed."""
    (project / "loop.yaml").write_text(
        "name: i\ninitial: a\n"
        "states:\n  a: {action: 'touch begun; sleep 60', next: z}\n  z: {terminal: true}\n"
    )
    command = [sys.executable, "-m", "llc", "run", "loop.yaml", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (project / "begun").exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert '"status": "interrupted"' in stdout
    assert "llc resume" in stderr


# --- 4 Convergence ----------------------------------------------------------------------------

MEASURE = """
name: m
initial: measure
states:
  measure:
    action: make count
    evaluate: {type: convergence, target: 0%s}
    route: {target: done, progress: fix, stall: stuck}
  fix: {action: make fix, next: measure}
  stuck: {terminal: true, status: failure}
  done: {terminal: true}
"""


def measured(values: str) -> str:
    return f"[{{state: measure, results: [{values}]}}, {{state: fix, output: '1000'}}]"


def test_rule_04_state_compares_with_its_last_measurement(scripted: Run) -> None:
    """The first measurement is progress; the output of other actions does not count."""
    ran = scripted(MEASURE % "", measured("{output: 9}, {output: 4}, {output: 0}"))
    assert ran.verdicts == ["progress", "progress", "target"]
    assert [details["previous"] for details in ran.event_fields("evaluate", "details")] == [None, 9, 4]


def test_rule_04_a_first_measurement_at_the_target_is_target(scripted: Run) -> None:
    """Although there is no earlier measurement."""
    assert scripted(MEASURE % "", measured("{output: 0}")).verdicts == ["target"]


def test_rule_04_a_metric_that_does_not_move_stalls(scripted: Run) -> None:
    """The seed's template would read the output of the other action."""
    ran = scripted(MEASURE % ', previous: "${prev.output}"', measured("{output: 9}, {output: 9}"))
    assert ran.verdicts == ["progress", "progress"]  # 9 is less than the 1000 printed by `fix`
    ran = scripted(MEASURE % "", measured("{output: 9}, {output: 9}"))
    assert ran.verdicts == ["progress", "stall"]


@pytest.mark.parametrize(
    ("output", "reason"), [("''", "undefined or empty"), ("no number", "is not a number")]
)
def test_rule_04_invalid_previous_falls_back_and_is_reported(scripted: Run, output: str, reason: str) -> None:
    """The event details report an explicit `previous` that is undefined or not a number."""
    world = f"[{{state: measure, results: [{{output: 9}}, {{output: 9}}]}}, {{state: fix, output: {output}}}]"
    ran = scripted(MEASURE % ', previous: "${prev.output}"', world)
    assert ran.verdicts == ["progress", "stall"]
    first, second = ran.event_fields("evaluate", "details")
    assert "undefined" in first["previous_ignored"]
    assert reason in second["previous_ignored"]
    assert second["previous"] == 9


def test_rule_04_emit_fsm_still_shows_the_seeds_form() -> None:
    """`--emit fsm` prints `previous: "${prev.output}"` for the paradigm."""
    loop = "paradigm: convergence\nname: c\ncheck: make count\ntoward: 0\nusing: make fix\n"
    assert 'previous: "${prev.output}"' in print_fsm(compile_text(loop).loop)
