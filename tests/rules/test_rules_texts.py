"""Rules 5 to 9 of `loops.md`: context, the shell's own `${`, injection, exit codes, YAML."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError, Diagnostic

Run = Callable[..., Any]


def action_loop(action: str, more: str = "") -> str:
    """A loop that captures the content of `note.txt` and then runs one action."""
    text = json.dumps(action)
    return f"""
name: a
initial: look
{more}
states:
  look: {{action: "cat note.txt", capture: note, next: act}}
  act: {{action: {text}, on_success: done, on_failure: done}}
  done: {{terminal: true}}
"""


def findings(text: str) -> list[Diagnostic]:
    try:
        return list(compile_text(text, "loop.yaml").diagnostics)
    except CompileError as error:
        return list(error.diagnostics)


# --- 5 Nested context -------------------------------------------------------------------------


def test_rule_05_context_value_may_contain_variables(scripted: Run) -> None:
    """Variables of any namespace are expanded at each use, depth-first."""
    more = 'context: {a: "1 ${context.b}", b: "2 ${context.c} ${env.HOME}", c: "3"}'
    ran = scripted(action_loop("echo ${context.a}", more), "rules: [{}]\nenv: {HOME: /home/kim}")
    assert ran.commands[-1] == "echo 1 2 3 '/home/kim'"


def test_rule_05_a_cycle_is_an_error() -> None:
    """For any length of the cycle."""
    (finding, *_) = findings(
        action_loop("echo ${context.a}", 'context: {a: "${context.b}", b: "${context.a}"}')
    )
    assert (finding.id, finding.severity) == ("context-cycle", "error")


def test_rule_05_nested_variable_is_an_error() -> None:
    """The help for `${${…}}` has an alternative."""
    (finding,) = findings(action_loop("echo ${${context.a}}", "context: {a: b}"))
    assert finding.id == "nested-variable"
    assert "context" in (finding.help or "")


# --- 6 `${` and the shell ---------------------------------------------------------------------


def test_rule_06_shell_variables_are_passed_through(real: Run, project: Path) -> None:
    """`${NAME}`, `${X:-d}`, `${#x}`, `${a%b}` in an action are shell syntax."""
    (project / "note.txt").write_text("")
    ran = real(action_loop("x=a.txt; echo ${x} ${NONE:-d} ${#x} ${x%.txt} > said"))
    assert ran.code == 0
    assert (project / "said").read_text() == "a.txt d 5 a\n"


def test_rule_06_unknown_namespace_is_an_error_with_a_suggestion() -> None:
    """`${word.path}` has the form of a variable, but `word` is none of the seven namespaces."""
    (finding,) = findings(action_loop("echo ${capture.note.output}"))
    assert finding.id == "unknown-namespace"
    assert "`captured`" in (finding.help or "")


def test_rule_06_two_dollars_are_a_literal(scripted: Run) -> None:
    """`$${` is a literal `${`, also before the name of a namespace."""
    assert scripted(action_loop("echo '$${env.HOME}'"), "[{}]").commands[-1] == "echo '${env.HOME}'"


def test_rule_06_default_replaces_an_undefined_value(scripted: Run) -> None:
    """`${…:default=text}` may be empty; a defined empty value is not replaced."""
    ran = scripted(
        action_loop("echo ${env.A:default=x y} ${env.B:default=} ${env.C:default=x}"),
        "rules: [{}]\nenv: {C: ''}",
    )
    assert ran.commands[-1] == "echo 'x y' '' ''"


def test_rule_06_an_undefined_variable_ends_the_loop_with_its_name(scripted: Run) -> None:
    """Unless there is an error route."""
    loop = action_loop("echo ${env.NONE}")
    ran = scripted(loop, "[{}]")
    assert ran.ended == ("error", "error", "act")
    assert ran.error.startswith("undefined-variable: `${env.NONE}` is not defined")
    ran = scripted(loop.replace("on_failure: done", "on_failure: done, on_error: done"), "[{}]")
    assert ran.ended == ("success", "terminal", "done")
    assert ran.verdicts == ["error"]


def test_rule_06_validator_reports_capture_unset_on_some_path() -> None:
    """The message shows the path."""
    loop = """
name: c
initial: check
states:
  check: {action: x, on_success: tell, on_failure: look}
  look: {action: y, capture: report, next: tell}
  tell: {action: "echo ${captured.report.output}", next: done}
  done: {terminal: true}
"""
    (finding,) = findings(loop)
    assert (finding.id, finding.severity) == ("maybe-unset", "warning")
    assert "check → tell" in (finding.help or "")


# --- 7 Injection ------------------------------------------------------------------------------

HOSTILE = 'it\'s "a" $(touch pwned) `touch pwned` ; touch pwned & | > < \\ $HOME ${x} * ~ # \nEND\n-n !!'
SHOW = shlex.join([sys.executable, "-c", "import json, sys; json.dump(sys.argv[1:], open('argv', 'w'))"])
READ = shlex.join(
    [sys.executable, "-c", "import json, sys; json.dump([sys.stdin.read()], open('argv', 'w'))"]
)


@pytest.mark.parametrize(
    ("action", "reached"),
    [
        (f"{SHOW} ${{captured.note.output}}", "{}"),
        (f"{SHOW} a${{captured.note.output}}b", "a{}b"),
        (f"{SHOW} 'a ${{captured.note.output}} b'", "a {} b"),
        (f'{SHOW} "a ${{captured.note.output}} b"', "a {} b"),
        (f'{SHOW} "$(printf %sx ${{captured.note.output}})"', "{}x"),
        (f"{READ} <<EOF\na ${{captured.note.output}} b\nEOF", "a {} b\n"),
    ],
    ids=["bare word", "part of a word", "inside '…'", 'inside "…"', "inside $(…)", "here-document"],
)
def test_rule_07_value_is_data_at_any_position(real: Run, project: Path, action: str, reached: str) -> None:
    """It reaches the program byte for byte and is not executed."""
    (project / "note.txt").write_text(HOSTILE)
    ran = real(action_loop(action))
    assert ran.code == 0, ran.stderr
    assert json.loads((project / "argv").read_text()) == [reached.replace("{}", HOSTILE)]
    assert not (project / "pwned").exists()


def test_rule_07_result_and_env_are_data(scripted: Run) -> None:
    """So are captures and `prev`; `context` and `loop` are the author's own text."""
    loop = """
name: d
initial: a
context: {args: "-x; $y"}
states:
  a: {action: /ll:a, on_success: b, on_failure: b, on_blocked: b, on_partial: b}
  b: {action: "go ${result.details.reason} ${prev.output} ${env.E} ${context.args} ${loop.name}", next: z}
  z: {terminal: true}
"""
    world = """
rules: [{kind: evaluate, verdict: success, reason: "$(r)"}, {kind: agent, output: "$(p)"}, {kind: shell}]
env: {E: "$(e)"}
"""
    assert scripted(loop, world).commands[-1] == "go '$(r)' '$(p)' '$(e)' -x; $y d"


@pytest.mark.parametrize(
    "action",
    [
        "cat <<-'END'\n${captured.note.output}\nEND",
        "echo `ls ${captured.note.output}`",
        "echo ${X:-${captured.note.output}}",
    ],
)
def test_rule_07_unquotable_position_is_an_error(action: str) -> None:
    """The help shows an alternative."""
    (finding,) = findings(action_loop(action))
    assert (finding.id, finding.severity) == ("unquotable-variable", "error")
    assert finding.help


def test_rule_07_raw_value_is_not_quoted_and_is_reported(
    scripted: Run, llc: Callable[..., Any], project: Path
) -> None:
    """The validator reports each use."""
    loop = action_loop("ls ${raw:captured.note.output}")
    assert scripted(loop, "[{output: '-l *.py'}]").commands[-1] == "ls -l *.py"
    (project / "raw.yaml").write_text(loop)
    validated = llc("validate", "raw.yaml")
    assert validated.returncode == 0
    assert "warning[raw-variable]" in validated.stderr


# --- 8 Exit codes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("exit 0", "success"),
        ("exit 1", "failure"),
        ("exit 2", "error"),
        ("exit 200", "error"),
        ("no-such-command-here", "error"),
        ("kill -9 $$", "error"),
    ],
)
def test_rule_08_exit_codes_are_verdicts(real: Run, command: str, verdict: str) -> None:
    """0 is success, 1 failure, everything else an error."""
    states = f"a: {{action: '{command}', on_success: z, on_failure: z, on_error: z}}"
    ran = real(f"name: e\ninitial: a\nstates:\n  {states}\n  z: {{terminal: true}}\n")
    assert ran.verdicts == [verdict]


JUDGED = """
name: j
initial: a
states:
  a: {action: make, evaluate: {%s}, on_success: z, on_failure: z, on_error: z}
  z: {terminal: true}
"""


@pytest.mark.parametrize(("code", "verdict"), [(0, "success"), (1, "failure"), (5, "failure"), (3, "error")])
def test_rule_08_evaluator_may_set_the_codes(scripted: Run, code: int, verdict: str) -> None:
    """`evaluate: {type: exit_code, success: [0], failure: [1, 5]}`."""
    ran = scripted(JUDGED % "type: exit_code, success: [0], failure: [1, 5]", f"[{{exit_code: {code}}}]")
    assert ran.verdicts == [verdict]


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        ("exit_code: 127", "error"),
        ("exit_code: 126", "error"),
        ("signal: SIGSEGV", "error"),
        ("timed_out: action", "error"),
        ("exit_code: 3", "failure"),
        ("exit_code: 3, output: all ok", "success"),
    ],
)
@pytest.mark.parametrize(
    "kind", ["output_contains, pattern: ok", "output_contains, pattern: 'a.* o', match: regex"]
)
def test_rule_08_a_crash_is_never_pattern_not_found(
    scripted: Run, kind: str, result: str, verdict: str
) -> None:
    """126, 127 and signals are errors; for other codes the pattern decides."""
    assert scripted(JUDGED % f"type: {kind}", f"[{{{result}}}]").verdicts == [verdict]


def test_rule_08_ignore_exit(scripted: Run) -> None:
    """`ignore_exit: true` evaluates the output after a crash, too."""
    ran = scripted(
        JUDGED % "type: output_contains, pattern: ok, ignore_exit: true", "[{exit_code: 127, output: ok}]"
    )
    assert ran.verdicts == ["success"]


# --- 9 YAML -----------------------------------------------------------------------------------


def test_rule_09_yes_no_on_and_off_are_strings(scripted: Run) -> None:
    """The booleans of YAML 1.2 are `true` and `false`."""
    ran = scripted(
        "name: off\ninitial: on\n"
        "states:\n  on: {action: yes, on_yes: no, on_no: no}\n  no: {terminal: true}\n",
        "[{}]",
    )
    assert ran.commands == ["yes"]
    assert ran.path == "on1 no1"


WRONG = """
name: wrong
initial: check
max_iteration: 3
states:
  check: {action: make, on_success: dnoe, on_failure: fix}
  fix: {action: make fix, timeout: soon, next: round}
  round: {action: make, on_success: round}
  round2: {action: make}
  lost: {action: make, next: fix}
  fix: {terminal: true}
  done: {terminal: true}
"""


def test_rule_09_all_errors_are_reported_together(llc: Callable[..., Any], project: Path) -> None:
    """Unknown and duplicate keys, wrong types, unknown targets, states without exit, unrouted verdicts, with
    positions.
    """
    (project / "wrong.yaml").write_text(WRONG)
    validated = llc("validate", "wrong.yaml")
    assert validated.returncode == 2
    stderr = validated.stderr
    for id, line, at in (
        ("unknown-key", 4, "max_iteration"),
        ("unknown-state", 6, "dnoe"),
        ("wrong-type", 7, "soon"),
        ("unrouted-verdict", 8, "make"),
        ("no-way-out", 9, "round2"),
        ("duplicate-key", 11, "fix"),
    ):
        column = WRONG.split("\n")[line - 1].index(at) + 1
        assert f"[{id}]" in stderr
        assert f"wrong.yaml:{line}:{column}\n" in stderr, (id, stderr)
    assert "did you mean `max_iterations`?" in stderr
    assert "did you mean `done`?" in stderr
    assert " ^^^^ jumps here\n" in stderr


def test_rule_09_unreachable_states_and_endless_cycles_are_warnings() -> None:
    """The loop can run."""
    loop = """
name: w
initial: a
states:
  a: {action: x, next: b}
  b: {action: x, next: a}
  c: {action: x, next: d}
  d: {terminal: true}
"""
    actual = {(finding.id, finding.severity) for finding in findings(loop)}
    assert actual == {("never-ends", "warning"), ("unreachable-state", "warning")}
