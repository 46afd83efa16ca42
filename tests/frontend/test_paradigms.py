"""Paradigms become the FSMs of the seed, except for the differences listed in `loops.md`."""

from __future__ import annotations

from typing import Any

import pytest

from llc.frontend.loop.fsm_printer import print_fsm
from llc.frontend.loop.paradigms import slug, to_fsm
from llc.frontend.loop.reader import read_loop
from llc.frontend.loop.schema import Loop
from llc.frontend.source.document import Document
from llc.frontend.source.files import text_source
from llc.frontend.source.yaml_tree import read_document

GOAL = """\
paradigm: goal
goal: "No type errors in src/"
tools:
  - /ll:check_code types
  - /ll:manage_issue bug fix
max_iterations: 20
"""
GOAL_FSM = """\
name: "goal-no-type-errors-in-src"
initial: "evaluate"
states:
  evaluate:
    action: "/ll:check_code types"
    on_success: "done"
    on_failure: "fix"
  fix:
    action: "/ll:manage_issue bug fix"
    next: "evaluate"
  done:
    terminal: true
max_iterations: 20
"""
CONVERGENCE = """\
paradigm: convergence
name: "reduce-lint-errors"
check: "ruff check src/ --output-format=json | jq '.count'"
toward: 0
using: "/ll:check_code fix"
tolerance: 0  # optional: stop when within tolerance of target
"""
CONVERGENCE_FSM = """\
name: "reduce-lint-errors"
initial: "measure"
context:
  metric_cmd: "ruff check src/ --output-format=json | jq '.count'"
  target: 0
  tolerance: 0
states:
  measure:
    action: "${context.metric_cmd}"
    capture: "current_value"
    evaluate:
      type: convergence
      target: "${context.target}"
      tolerance: "${context.tolerance}"
      previous: "${prev.output}"
    route:
      target: "done"
      progress: "apply"
      stall: "done"
  apply:
    action: "/ll:check_code fix"
    next: "measure"
  done:
    terminal: true
"""
INVARIANTS = """\
paradigm: invariants
name: "code-quality-guardian"
constraints:
  - name: "tests-pass"
    check: "pytest"
    fix: "/ll:manage_issue bug fix"
  - name: "lint-clean"
    check: "ruff check src/"
    fix: "/ll:check_code fix"
  - name: "types-valid"
    check: "mypy src/"
    fix: "/ll:manage_issue bug fix"
maintain: true  # continuous mode
"""
INVARIANTS_FSM = """\
name: "code-quality-guardian"
initial: "check_tests-pass"
states:
  check_tests-pass:
    action: "pytest"
    on_success: "check_lint-clean"
    on_failure: "fix_tests-pass"
  fix_tests-pass:
    action: "/ll:manage_issue bug fix"
    next: "check_tests-pass"
  check_lint-clean:
    action: "ruff check src/"
    on_success: "check_types-valid"
    on_failure: "fix_lint-clean"
  fix_lint-clean:
    action: "/ll:check_code fix"
    next: "check_lint-clean"
  check_types-valid:
    action: "mypy src/"
    on_success: "all_valid"
    on_failure: "fix_types-valid"
  fix_types-valid:
    action: "/ll:manage_issue bug fix"
    next: "check_types-valid"
  all_valid:
    terminal: true
    on_maintain: "check_tests-pass"
maintain: true
"""
IMPERATIVE = """\
paradigm: imperative
name: "fix-all-types"
steps:
  - /ll:check_code types
  - /ll:manage_issue bug fix
until:
  check: "mypy src/"
  passes: true
max_iterations: 20
backoff: 2  # seconds between iterations
"""
IMPERATIVE_FSM = """\
name: "fix-all-types"
initial: "step_0"
states:
  step_0:
    action: "/ll:check_code types"
    next: "step_1"
  step_1:
    action: "/ll:manage_issue bug fix"
    next: "check_done"
  check_done:
    action: "mypy src/"
    on_success: "done"
    on_failure: "step_0"
  done:
    terminal: true
max_iterations: 20
backoff: 2
"""
FSM = """\
paradigm: fsm
name: "lint-fix-cycle"
initial: "check"
states:
  check:
    action: "/ll:check_code lint"
    on_success: "done"
    on_failure: "fix"
  fix:
    action: "/ll:check_code fix"
    next: "check"
  done:
    terminal: true
max_iterations: 10
"""


def load(text: str) -> tuple[Loop, Document]:
    spec, document, diagnostics = read_loop(text_source(text, "t.yaml"))
    assert diagnostics == []
    assert spec is not None
    return to_fsm(spec), document


def data(text: str) -> Any:
    document = read_document(text_source(text))
    assert document.root is not None
    return document.plain(document.root)


@pytest.mark.parametrize(
    ("text", "fsm"),
    [
        (GOAL, GOAL_FSM),
        (CONVERGENCE, CONVERGENCE_FSM),
        (INVARIANTS, INVARIANTS_FSM),
        (IMPERATIVE, IMPERATIVE_FSM),
        (FSM, FSM),
    ],
    ids=["goal", "convergence", "invariants", "imperative", "fsm"],
)
def test_a_paradigm_prints_as_the_seeds_fsm(text: str, fsm: str) -> None:
    """`--emit fsm` prints the seed's text for its example, with the names of `loops.md` 16."""
    printed = print_fsm(load(text)[0])
    assert printed == fsm
    assert data(printed) == data(fsm)


def test_error_shows_both_actions_of_a_fix() -> None:
    """The second one is marked, and the first one has a label."""
    fix = "fix: {prompt: y, run: x}"
    text = f"paradigm: invariants\nname: g\nconstraints:\n  - {{name: t, check: 'true', {fix}}}\n"
    _, _, (finding,) = read_loop(text_source(text, "g.yaml"))
    assert (finding.id, finding.message) == ("contradictory-keys", "`fix` has both `prompt` and `run`")
    ((first, label),) = finding.related
    assert finding.span is not None
    assert (finding.label, label) == ("given too", "first given here")
    assert first.column < finding.span.column


def test_a_goal_with_one_tool_checks_and_repairs_with_it() -> None:
    """`loops.md` 16."""
    loop, _ = load("paradigm: goal\nname: g\ngoal: x\ntools: [make]")
    assert {name: state.action for name, state in loop.states.items()} == {
        "evaluate": "make",
        "fix": "make",
        "done": None,
    }


def test_further_tools_of_a_goal_run_in_order() -> None:
    """`loops.md` 16."""
    loop, _ = load("paradigm: goal\nname: g\ngoal: x\ntools: [look, a, b, c]")
    ways = [(state.action, state.on_failure or state.next) for state in loop.states.values()]
    assert ways == [("look", "fix"), ("a", "fix_2"), ("b", "fix_3"), ("c", "evaluate"), (None, None)]


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("No type errors in src/", "no-type-errors-in-src"),
        ("  Größe < 5 %  ", "größe-5"),
        ("../../etc/passwd", "etc-passwd"),
        ("!!!", ""),
        ("word " * 30, "-".join(["word"] * 12)),
        ("x" * 100, "x" * 60),
    ],
)
def test_goal_becomes_the_name(goal: str, expected: str) -> None:
    """The name is a slug: lower-case words joined by hyphens, limited in length, without path separators."""
    assert slug(goal) == expected


def test_a_convergence_may_maximize() -> None:
    """The direction is passed to the evaluator."""
    loop, _ = load("paradigm: convergence\nname: x\ncheck: c\ntoward: 9\nusing: u\ndirection: maximize")
    assert "direction: maximize" in print_fsm(loop)


def test_context_of_a_convergence_is_kept() -> None:
    """The author's variables are kept, and generated ones get unused names."""
    text = "paradigm: convergence\nname: x\ncheck: c\ntoward: 9\nusing: u\ncontext: {target: mine, a: 1}"
    loop, _ = load(text)
    assert loop.context == {"target": "mine", "a": 1, "metric_cmd": "c", "target_": 9, "tolerance": 0}
    assert "${context.target_}" in print_fsm(loop)


def test_until_may_wait_for_a_failure() -> None:
    """`passes: false` ends the loop when the check fails."""
    loop, _ = load("paradigm: imperative\nname: x\nsteps: [a]\nuntil: {check: grep pending, passes: false}")
    check = loop.states["check_done"]
    assert (check.on_success, check.on_failure) == ("step_0", "done")


@pytest.mark.parametrize("text", [GOAL, CONVERGENCE, INVARIANTS, IMPERATIVE])
def test_settings_are_copied_to_the_fsm(text: str) -> None:
    """Every setting of a loop has the same meaning in every paradigm."""
    text = text.replace("max_iterations: 20\n", "").replace("maintain: true", "").replace("backoff: 2", "")
    settings = (
        "max_iterations: 3\nmax_steps: 9\nbackoff: 1.5\ntimeout: 60\nmaintain: true\nmaintain_delay: 5\n"
        "scope: [src]\ndescription: d\nbudget: {usd: 1}\nllm: {enabled: false}\nagent: {program: a}\n"
        "context: {k: v}\non_error: done\n"
    ).replace("done", "all_valid" if "invariants" in text else "done")
    loop, _ = load(text + settings)
    limits = (loop.max_iterations, loop.max_steps, loop.backoff, loop.timeout, loop.maintain_delay)
    assert limits == (3, 9, 1.5, 60, 5)
    assert (loop.scope, loop.description, loop.llm.enabled, loop.context["k"]) == (("src",), "d", False, "v")
    assert loop.budget is not None
    assert loop.agent is not None
    (end,) = [state for state in loop.states.values() if state.terminal]
    assert end.on_maintain == loop.initial
    assert loop.on_error == end.name


@pytest.mark.parametrize(
    ("text", "state", "line"),
    [
        (GOAL, "fix", 5),
        (CONVERGENCE, "measure", 3),
        (INVARIANTS, "fix_lint-clean", 9),
        (IMPERATIVE, "check_done", 7),
    ],
)
def test_generated_state_has_the_span_of_its_source(text: str, state: str, line: int) -> None:
    """Errors of a generated state are shown at the source text."""
    loop, _ = load(text)
    span = loop.states[state].spans["action"]
    assert span.line == line


def test_metadata_contains_the_paradigm() -> None:
    assert load(GOAL)[0].paradigm == "goal"
    assert load(FSM)[0].paradigm == "fsm"
