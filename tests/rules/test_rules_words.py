"""Rules 15 to 20 of `loops.md`: keywords, names, models, dynamic targets, `on_error`, output of compile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_text
from llc.frontend.loop.fsm_printer import print_fsm
from llc.ir.compile_options import DEFAULT_LLM_MODEL
from llc.ir.text import parse_program
from llc.vm.code.image import Image

Run = Callable[..., Any]


# --- 15 Words ---------------------------------------------------------------------------------

LATER_SPELLING = """
name: later
initial: ask
states:
  ask: {action: make ask, on_yes: judge, on_no: no}
  judge: {action: /ll:judge, on_success: yes, on_failure: no, on_blocked: wait, on_partial: judge}
  wait: {action: make wait, next: yes}
  yes: {terminal: true}
  no: {terminal: true, status: failure}
"""


def test_rule_15_on_yes_and_on_no_are_on_success_and_on_failure(scripted: Run) -> None:
    """The spelling of later files."""
    assert scripted(LATER_SPELLING, "[{exit_code: 1}]").path == "ask1 no1"
    plain = LATER_SPELLING.replace("on_yes", "on_success").replace("on_no", "on_failure")
    assert compile_text(plain).program.functions == compile_text(LATER_SPELLING).program.functions


def test_rule_15_on_verdict_is_shorthand_for_a_route(scripted: Run) -> None:
    """`on_blocked` routes the verdict `blocked`."""
    ran = scripted(
        LATER_SPELLING, "[{kind: evaluate, results: [{verdict: partial}, {verdict: blocked}]}, {}]"
    )
    assert ran.path == "ask1 judge1 judge2 wait2 yes2"


def test_rule_15_max_steps_bounds_the_states_entered(scripted: Run) -> None:
    """Terminal states count: three steps are not enough for four states."""
    ran = scripted("max_steps: 3" + LATER_SPELLING, "[{kind: evaluate, verdict: blocked}, {}]")
    assert ran.ended == ("limit", "max_steps", "wait")
    assert (ran.code, ran.outcome["steps"]) == (3, 3)


# --- 16 Names ---------------------------------------------------------------------------------


def test_rule_16_unnamed_goal_is_named_after_its_text() -> None:
    """The name is `goal-<slug of the goal>`."""
    goal = "paradigm: goal\ngoal: No type errors in src/\ntools: [mypy]\n"
    assert compile_text(goal).loop.name == "goal-no-type-errors-in-src"
    assert compile_text(goal + "name: mine\n").loop.name == "mine"


@pytest.mark.parametrize(
    ("tools", "states"),
    [
        ("[a]", "evaluate: a, fix: a"),
        ("[a, b]", "evaluate: a, fix: b"),
        ("[a, b, c]", "evaluate: a, fix: b, fix_2: c"),
    ],
)
def test_rule_16_the_first_tool_checks_and_the_others_fix(tools: str, states: str) -> None:
    """A single tool checks and fixes; further tools run in order."""
    loop = compile_text(f"paradigm: goal\ngoal: x\ntools: {tools}\n").loop
    assert ", ".join(f"{s.name}: {s.action}" for s in loop.states.values() if s.action) == states


def test_rule_16_states_of_invariants_are_named_after_constraints() -> None:
    """`check_<name>` and `fix_<name>`, as in the seed's compiler."""
    loop = compile_text(
        "paradigm: invariants\nname: i\nconstraints: [{name: types-valid, check: mypy, fix: make fix}]\n"
    ).loop
    assert list(loop.states) == ["check_types-valid", "fix_types-valid", "all_valid"]


# --- 17 Model names ---------------------------------------------------------------------------

ASKS = "name: m\ninitial: a\n%sstates:\n  a: {action: /ll:a, route: {_: z}}\n  z: {terminal: true}\n"
NAMED = "llm: {model: from-loop}\n"
DEFAULT = 'llm: {model: "${DEFAULT_LLM_MODEL}"}\n'


@pytest.mark.parametrize(
    ("llm", "words", "env", "model"),
    [
        ("", (), None, DEFAULT_LLM_MODEL),
        (DEFAULT, (), None, DEFAULT_LLM_MODEL),
        ("", (), "from-env", "from-env"),
        (DEFAULT, (), "from-env", "from-env"),
        (NAMED, (), "from-env", "from-loop"),
        (NAMED, ("--llm-model", "from-flag"), "from-env", "from-flag"),
    ],
)
def test_rule_17_precedence_of_model_settings(
    scripted: Run,
    monkeypatch: pytest.MonkeyPatch,
    llm: str,
    words: tuple[str, ...],
    env: str | None,
    model: str,
) -> None:
    """Option, loop, environment, built-in default; `${DEFAULT_LLM_MODEL}` is the built-in default."""
    if env is not None:
        monkeypatch.setenv("LLC_LLM_MODEL", env)
    ran = scripted(ASKS % llm, "[{kind: evaluate, verdict: success}, {}]", *words)
    assert [args["model"] for args in ran.event_fields("effect_start", "args")] == [model]


def test_rule_17_the_default_is_shown(llc: Callable[..., Any]) -> None:
    """By `llc --version --verbose`."""
    assert DEFAULT_LLM_MODEL in llc("--version", "--verbose").stdout


# --- 18 Dynamic targets -----------------------------------------------------------------------

PLANNED = """
name: planned
initial: plan
states:
  plan: {action: make plan, capture: plan, route: {success: "${captured.plan.output}", failure: done}}
  test: {action: make test, next: "${prev.output}"}
  lint: {action: make lint, next: done}
  done: {terminal: true}
"""


def test_rule_18_target_may_be_computed(scripted: Run) -> None:
    """It is looked up among the states at run time."""
    world = '[{state: plan, results: [{output: "test\\n"}, {output: lint}]}, {state: test}, {state: lint}]'
    loop = PLANNED.replace('next: "${prev.output}"', "next: plan")
    assert scripted(loop, world).path == "plan1 test1 plan2 lint2 done2"
    # In a route `prev` is the same as in the state's action: the action before this state.
    world = "[{state: plan, output: test}, {state: test, output: lint}, {state: lint}]"
    assert scripted(PLANNED, world).path == "plan1 test1 test2 lint2 done2"


def test_rule_18_an_unknown_name_is_an_error_that_lists_the_states(scripted: Run) -> None:
    """It ends the loop; the message names the source of the target."""
    ran = scripted(PLANNED, "[{output: deploy}]")
    assert ran.ended == ("error", "error", "plan")
    assert ran.error == (
        "unknown-state: state `plan`: no state named `deploy`; the states are: plan, test, lint, done"
    )


def test_rule_18_computed_target_may_reach_every_state() -> None:
    """No state is reported as unreachable."""
    assert compile_text(PLANNED).diagnostics == ()


# --- 19 Loop-level on_error -------------------------------------------------------------------

ALERTS = """
name: alerts
initial: check
on_error: alert
states:
  check: {action: make check, on_success: deploy, on_failure: done}
  deploy: {action: make deploy, on_success: done, on_failure: done, on_error: rollback}
  rollback: {action: "make rollback ${env.VERSION}", next: done}
  alert: {action: "alert ${result.details.message:default=}", on_success: done, on_failure: done}
  done: {terminal: true}
"""


@pytest.mark.parametrize(
    ("world", "path"),
    [
        ("[{state: check, exit_code: 2}, {}]", "check1 alert1 done1"),
        ("rules: [{state: deploy, exit_code: 2}, {}]\nenv: {VERSION: 1}", "check1 deploy1 rollback1 done1"),
        ("[{state: deploy, exit_code: 2}, {}]", "check1 deploy1 rollback1 alert1 done1"),
    ],
    ids=["no route of its own", "its own route first", "a fault in the state that takes them"],
)
def test_rule_19_on_error_of_the_loop_takes_errors_that_no_state_routes(
    scripted: Run, world: str, path: str
) -> None:
    """A state's own `on_error` or `_error` takes precedence."""
    assert scripted(ALERTS, world).path == path


def test_rule_19_errors_of_the_error_state_end_the_loop(scripted: Run) -> None:
    """A failed alert is not sent repeatedly."""
    ran = scripted(ALERTS, "[{exit_code: 2}]")
    assert ran.path == "check1 alert1"
    assert ran.ended == ("error", "error", "alert")


# --- 20 Output of compile ---------------------------------------------------------------------

CONVERGENCE = "paradigm: convergence\nname: fewer\ncheck: make count\ntoward: 0\nusing: make fix\n"


@pytest.fixture
def convergence(project: Path) -> str:
    (project / ".loops").mkdir()
    (project / ".loops" / "convergence.yaml").write_text(CONVERGENCE)
    return "convergence"


def test_rule_20_file_extension_selects_the_format(
    llc: Callable[..., Any], project: Path, convergence: str
) -> None:
    """`.fsm.yaml` the FSM, `.llb` an image, `.ir` the IR text."""
    compiled = compile_text(CONVERGENCE, ".loops/convergence.yaml")
    for output in (".loops/convergence.fsm.yaml", "x.llb", "x.ir"):
        assert llc("compile", convergence, "-o", output).returncode == 0
    assert (project / ".loops" / "convergence.fsm.yaml").read_text() == print_fsm(compiled.loop)
    assert Image.from_bytes((project / "x.llb").read_bytes()).name == "fewer"
    assert parse_program((project / "x.ir").read_text(), "x.ir") == compiled.program


@pytest.mark.parametrize(
    ("words", "prefix"),
    [
        ((), "program fewer entry main\n"),
        (("--emit", "ir"), "program fewer entry main\n"),
        (("--emit", "fsm"), 'name: "fewer"\n'),
        (("--emit", "bytecode"), "image fewer\n"),
    ],
)
def test_rule_20_emit_selects_the_printed_format(
    llc: Callable[..., Any], convergence: str, words: tuple[str, ...], prefix: str
) -> None:
    """The default is the IR."""
    assert llc("compile", convergence, *words).stdout.startswith(prefix)


def test_rule_20_output_files_run(llc: Callable[..., Any], project: Path, convergence: str) -> None:
    """The FSM and the image behave like the original loop."""
    (project / "world.yaml").write_text("[{state: measure, results: [{output: 3}, {output: 0}]}, {}]")
    for output in ("x.fsm.yaml", "x.llb"):
        llc("compile", convergence, "-o", output)
        assert llc("run", output, "--script", "world.yaml", "--quiet").returncode == 0
