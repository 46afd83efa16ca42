"""Loops of little-loops have the same meaning in llc, compared with little-loops itself.

The comparison needs little-loops 1.167.0 in an environment of its own; `LLC_LITTLE_LOOPS` names its Python:

    python -m venv /tmp/little && /tmp/little/bin/pip install little-loops==1.167.0
    LLC_LITTLE_LOOPS=/tmp/little/bin/python pytest tests/runtime/test_little_loops.py -s
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from linked_programs import World, drive

import llc
from llc.frontend.compile import compile_file
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError
from llc.ir.nodes import Program
from llc.runtime.effects import jq_worker
from llc.vm.machine.machine import Effect
from llc.vm.values.faults import Fault

from .little_loops_oracle import INPUT, TooLong, scripted, scripted_answer, verdict_of
from .little_loops_oracle import SCENARIOS as WORLDS

DIALECT = CompileOptions(dialect="little-loops")
PYTHON = os.environ.get("LLC_LITTLE_LOOPS", "")
needs_little_loops = pytest.mark.skipif(not PYTHON, reason="LLC_LITTLE_LOOPS names no Python")

# Runs a loop with little-loops; prints the entered states, the verdicts and the outcome.
ORACLE = """
import json, sys
from pathlib import Path
from little_loops.fsm.executor import FSMExecutor
from little_loops.fsm.validation import load_and_validate
loop, _ = load_and_validate(Path(sys.argv[1]))
loop.context.setdefault("run_dir", "runs/it/")
Path("runs/it").mkdir(parents=True)
seen = {"path": [], "verdicts": []}
def note(event):
    if event["event"] == "state_enter":
        seen["path"].append(event["state"])
    if event["event"] == "evaluate":
        seen["verdicts"].append(event["verdict"])
result = FSMExecutor(loop, event_callback=note, loops_dir=Path(sys.argv[1]).parent).run()
seen["end"] = [result.terminated_by, result.failure_terminal]
print("ORACLE" + json.dumps(seen))
"""

SCENARIOS = {
    "next and on_error": """
        initial: a
        states:
          a: {action: exit 1, next: b, on_error: c}
          b: {action: 'true', next: done}
          c: {action: 'true', next: failed}
          done: {terminal: true}
          failed: {terminal: true}
    """,
    "retries": """
        initial: a
        states:
          a: {action: exit 1, on_yes: done, on_no: a, max_retries: 2, on_retry_exhausted: b}
          b: {action: exit 0, on_yes: done, on_no: failed}
          done: {terminal: true}
          failed: {terminal: true}
    """,
    "classify": """
        initial: a
        states:
          a: {action: 'echo x; echo GO', evaluate: {type: classify}, route: {GO: b, _: failed}}
          b: {action: 'echo n=3; echo n=5', evaluate: {type: output_numeric, operator: ge, target: 5, key: n},
              on_yes: c, on_no: failed}
          c: {action: 'echo yes; exit 4', evaluate: {type: output_contains, pattern: 'yes'},
              on_yes: failed, on_no: failed, on_error: done}
          done: {terminal: true}
          failed: {terminal: true}
    """,
    "limit": """
        initial: a
        max_steps: 4
        on_max_steps: last
        states:
          a: {action: exit 1, on_yes: done, on_no: b}
          b: {action: exit 0, next: a}
          last: {action: echo partial, terminal: true}
          done: {terminal: true}
    """,
    "stall": """
        initial: a
        states:
          a: {action: 'echo 3 >> ${context.run_dir}.score_history',
              evaluate: {type: score_stall, max_stall: 2}, on_yes: a, on_no: b}
          b: {action: 'exit 3', evaluate: {type: exit_code, abstain_on_exit_3: true},
              on_yes: done, on_no: done, on_cannot_judge: blocked}
          done: {terminal: true}
          blocked: {terminal: true, failure: true}
    """,
    "scores": """
        initial: a
        states:
          a: {action: echo 0.7, evaluate: {type: harbor_scorer}, on_yes: b, on_no: failed}
          b: {action: echo many, evaluate: {type: harbor_scorer}, on_yes: failed, on_no: failed, on_error: c}
          c: {action: exit 3, evaluate: {type: harbor_scorer}, on_yes: failed, on_no: d, on_error: failed}
          d:
            action: echo 0.5
            evaluate: {type: convergence, target: 0.5, tolerance: 0.1, direction: maximize, reference: 0.6}
            route: {stall: e, target: failed, progress: failed}
          e:
            action: echo 0.6
            evaluate: {type: convergence, target: 0.5, tolerance: 0.1, direction: maximize, reference: 0.6}
            route: {target: done, stall: failed, progress: failed}
          done: {terminal: true}
          failed: {terminal: true}
    """,
    "repeated state": """
        initial: a
        states:
          a: {action: exit 1, on_yes: done, on_no: a, on_error: tired}
          tired: {action: 'true', next: done}
          done: {terminal: true}
    """,
}


CODE = """\
name: x
dialect: little-loops
initial: a
states:
  a: {action: 'cat value', capture: v, next: b}
  b:
    action: "python3 -c \\"print('${captured.v.output}'.upper())\\" >shown"
    on_yes: done
    on_no: failed
    on_error: odd
  done: {terminal: true}
  odd: {terminal: true}
  failed: {terminal: true}
"""


@pytest.mark.parametrize(("value", "end"), [("a b/c", "done"), ("'); open('made', 'w'); ('", "odd")])
def test_value_in_code_is_checked(
    value: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that is code is an error of the state; without the dialect the loop is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".loops").mkdir()
    (tmp_path / "value").write_text(value)
    loop = tmp_path / ".loops" / "x.yaml"
    loop.write_text(CODE)
    assert llc.run("x").final_state == end
    assert not (tmp_path / "made").exists()
    if end == "done":
        assert (tmp_path / "shown").read_text() == "A B/C\n"
    loop.write_text(CODE.replace("dialect: little-loops\n", ""))
    with pytest.raises(CompileError, match="part of code"):
        compile_file(str(loop))


CHILD = """\
name: child
initial: a
context: {input: none}
states:
  a: {action: 'echo "${context.input_hash} ${context.readiness_threshold}" >>shown', next: failed}
  failed: {terminal: true}
"""
PARENT = """\
name: x
dialect: little-loops
flow: [a?failed:b, b, c?odd:d, d?odd:failed, odd, failed]
state_defs:
  a: {loop: child, with: {input: some text}}
  b: {action: "printf 'other text'", capture: said}
  c: {loop: child, with: {input: "${captured.said.output}"}}
  d: {loop: child, worktree: "${captured.said.output}", on_error: failed}
  odd: {terminal: true, failure: true}
  failed: {terminal: true}
"""


def test_inner_loop_gets_the_values_that_little_loops_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of its input and the thresholds are set; `worktree` is not supported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "child.yaml").write_text(CHILD)
    loop = tmp_path / ".loops" / "x.yaml"
    loop.write_text(PARENT)
    outcome = llc.run("x")
    assert outcome.final_state == "failed"
    texts = ("some text", "other text")
    digests = [hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts]
    assert (tmp_path / "shown").read_text() == "".join(f"{digest} 85\n" for digest in digests)
    (journal,) = tmp_path.rglob("*.events.jsonl")
    assert "names the branch `other text`" in journal.read_text()


@needs_little_loops
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_takes_the_same_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same states, the same verdicts, the same outcome."""
    lines = ["name: x", *(line.removeprefix("        ") for line in SCENARIOS[name].splitlines())]
    folder = tmp_path / ".loops"
    folder.mkdir()
    (folder / "x.yaml").write_text("\n".join(["dialect: little-loops", *lines]) + "\n")
    other_project = tmp_path / "theirs"
    other_project.mkdir()
    (other_project / "x.yaml").write_text("\n".join(lines) + "\n")
    command = [PYTHON, "-c", ORACLE, str(other_project / "x.yaml")]
    shown = subprocess.run(
        command, cwd=other_project, capture_output=True, text=True, check=True, timeout=120
    )
    oracle = json.loads(shown.stdout.partition("ORACLE")[2])
    monkeypatch.chdir(tmp_path)
    outcome = llc.run("x")
    (journal,) = folder.rglob("*.events.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    entered = [event["state"] for event in events if event["event"] == "state_enter"]
    judged = [event["verdict"] for event in events if event["event"] == "evaluate"]
    words = {"success": "yes", "failure": "no"}
    ends = {"success": ["terminal", False], "failure": ["terminal", True], "limit": ["max_steps", False]}
    # Only llc records the entry of a terminal and judges `next` with `on_error`.
    if outcome.status in ("success", "failure"):
        entered.pop()
    assert entered == oracle["path"]
    assert ends[outcome.status] == oracle["end"]
    if name == "limit":  # little-loops judges the last state; llc does not, because no route follows
        oracle["verdicts"].pop()
    if name != "next and on_error":
        assert [words.get(verdict, verdict) for verdict in judged][: len(oracle["verdicts"])] == oracle[
            "verdicts"
        ]


def shipped_loops() -> list[Path]:
    """Paths of the loops that little-loops ships, and of their libraries."""
    code = "import little_loops; print(little_loops.__path__[0])"
    completed = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return sorted((Path(completed.stdout.strip()) / "loops").rglob("*.yaml"))


@needs_little_loops
def test_shipped_loops_are_accepted() -> None:
    """Exceptions: two that only serve as parents, and four that are refused on their own."""
    reasons = Counter(reason_of(path) for path in shipped_loops())
    print(*(f"{count:4} {reason}" for reason, count in reasons.most_common()), sep="\n")
    assert reasons["library"] == 9
    assert reasons["accepted"] >= 105


def reason_of(path: Path) -> str:
    """Why a loop is refused: diagnostic ids, "library" or "accepted"."""
    try:
        compile_file(str(path), DIALECT)
    except CompileError as error:
        ids: Any = {diagnostic.id for diagnostic in error.diagnostics if diagnostic.is_error}
        if ids == {"fragment-library"}:
            return "library"
        return ", ".join(sorted(ids))
    return "accepted"


# --- all shipped loops --------------------------------------------------------------------------

# Loops that take another path, each with the reason.
_STALL = "`diff_stall` of a loop that runs again starts from zero"
DIFFERENCES: dict[str, str] = {
    "prompt-across-issues": "`max_steps` is the only limit of how often a route is taken",
    "html-website-generator": _STALL,
    "interactive-component-generator": _STALL,
    "svg-image-generator": _STALL,
    "loop-composer-adaptive": "a loop that cannot run gives a result with the error",
    "outer-loop-eval": "an unknown loop name is an error before the run",
    "ready-to-implement-gate": "`type: learning` is a task of an agent",
}


def scripted_results(scenario: str) -> Callable[[Effect], dict[str, Any] | None]:
    """Results of the scripted world for each effect."""
    counts: Counter[str] = Counter()

    def actions() -> int:
        return counts["shell"] + counts["agent"] + counts["tool"]

    def result_of(effect: Effect) -> dict[str, Any] | None:
        args = effect.args
        if effect.kind == "shell" and args["command"].startswith("{ git rev-parse HEAD;"):
            return {"output": "same", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}
        if effect.kind == "shell" and args["command"].startswith("cat -- "):
            return {"output": "", "stderr": "", "exit_code": 1, "duration_ms": 1, "elapsed_ms": 1}
        counts[effect.kind] += 1
        if effect.kind == "tool":
            code, output = scripted(scenario, actions() - 1)
            error = {"error": {"kind": "mcp-error", "message": output}} if code else {}
            return {"value": output, "duration_ms": 1, "elapsed_ms": 1, **error}
        if effect.kind in ("shell", "agent"):
            code, output = scripted(scenario, actions() - 1)
            return {"output": output, "stderr": "", "exit_code": code, "duration_ms": 1, "elapsed_ms": 1}
        if effect.kind == "evaluate":
            answer = scripted_answer(scenario, counts["evaluate"] - 1)
            if answer == "error":
                return {"error": {"kind": "scripted", "message": "scripted"}, "elapsed_ms": 1}
            allowed = args["schema"]["properties"]["verdict"].get("enum") or ("yes", "no")
            return {"reply": {"verdict": verdict_of(answer, allowed), "confidence": 1.0}, "elapsed_ms": 1}
        if effect.kind == "env":
            return {"values": {name: os.environ.get(name) for name in args["names"]}}
        if effect.kind == "link":
            return {"error": {"kind": "unknown-loop", "message": "no such loop"}}
        if effect.kind == "ask":
            return {"error": {"kind": "no-answer", "message": "nobody"}, "output": "", "elapsed_ms": 1}
        if effect.kind == "jq":
            return jq_worker.answer({**args, "limit": 5})
        return None

    return result_of


WORDS = {"success": "yes", "failure": "no"}
# Takes the same path with other verdicts in scripted worlds; the cause is unknown.
OTHER_VERDICTS = {"html-anything"}


def by_state(verdicts: list[tuple[str, str]], states: set[str]) -> dict[str, list[str]]:
    """The verdicts of each of the given states, in order."""
    return {name: [verdict for state, verdict in verdicts if state == name] for name in states}


def run_program(program: Program, scenario: str) -> tuple[list[str], list[tuple[str, str]], str]:
    """The states that a program enters, without terminals, the verdicts, and the outcome."""
    world = World(scripted_results(scenario))
    try:
        result = drive(program, world)
    except TooLong:
        outcome = "too long"
    else:
        outcome = (
            "error"
            if isinstance(result, Fault)
            else {"success": "yes", "failure": "no"}.get(result["status"], "limit")
        )
    path: list[str] = []
    verdicts: list[tuple[str, str]] = []
    for kind, fields in world.notes:
        if kind == "state_enter":
            path.append(fields["state"])
        elif kind == "evaluate":
            verdicts.append((fields["state"], WORDS.get(fields["verdict"], fields["verdict"])))
        elif kind == "cycle" or (kind == "loop_complete" and fields["terminated_by"] == "terminal"):
            path.pop()
    return path, verdicts, outcome


def end_of(recorded: dict[str, Any]) -> str:
    """The outcome of little-loops, in the terms of `run_program`."""
    terminated_by, failed, _ = recorded["end"]
    if terminated_by == "terminal":
        return "no" if failed else "yes"
    limits = ("max_steps", "max_iterations_reached", "max_iterations", "timeout")
    return "limit" if terminated_by in limits else "too long" if terminated_by == "too long" else "error"


def program_with(path: Path, given: dict[str, str]) -> Program:
    """The program of a loop, with `given` and with values for its other required inputs."""
    loop = compile_file(str(path), DIALECT).loop
    assert loop is not None
    needed = [
        name
        for name, parameter in (loop.parameters or {}).items()
        if parameter.required and name != "run_dir"
    ]
    empty = [key for key in ("input", *(loop.required_inputs or ()), *needed) if not loop.context.get(key)]
    context = {**{key: INPUT for key in empty if key in loop.context}, **given}
    return compile_file(str(path), DIALECT.evolve(context=context)).program


@needs_little_loops
def test_shipped_loops_take_the_same_path(tmp_path: Path) -> None:
    """All accepted loops, with the loops that they run, in scripted worlds: the same states and outcome."""
    loops = [path for path in shipped_loops() if reason_of(path) == "accepted"]
    jobs = [(path, scenario) for path in loops for scenario in WORLDS]
    oracle = Path(__file__).with_name("little_loops_oracle.py")
    completed = subprocess.run(
        [PYTHON, str(oracle)], input=json.dumps([(str(path), scenario) for path, scenario in jobs]),
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=3000,
    )  # fmt: skip
    recorded = [json.loads(line[6:]) for line in completed.stdout.splitlines() if line.startswith("ORACLE")]
    assert len(recorded) == len(jobs)
    programs: dict[tuple[Path, str], Program] = {}
    differing: dict[Path, list[str]] = {}
    for (path, scenario), theirs in zip(jobs, recorded, strict=True):
        key = (path, json.dumps(theirs["given"]))
        if key not in programs:
            try:
                programs[key] = program_with(path, theirs["given"])
            except CompileError as error:
                differing.setdefault(path, []).append(f"{scenario}: {error.diagnostics[0].message}")
                continue
        our_path, verdicts, outcome = run_program(programs[key], scenario)
        length = min(len(our_path), len(theirs["path"])) if "too long" in (outcome, end_of(theirs)) else None
        if (our_path[:length], outcome) != (theirs["path"][:length], end_of(theirs)):
            index = next(
                (i for i, pair in enumerate(zip(our_path, theirs["path"], strict=False)) if len({*pair}) > 1),
                -1,
            )
            step = slice(max(index - 1, 0), index + 1)
            difference = f"{scenario}: {our_path[step]} {outcome}, not {theirs['path'][step]} {theirs['end']}"
            differing.setdefault(path, []).append(difference)
        elif length is None and path.stem not in OTHER_VERDICTS:
            judged = [(state, WORDS.get(verdict, verdict)) for state, verdict in theirs["verdicts"]]
            # Only llc judges a state with `next` and `on_error`, and a state that runs a loop.
            both = {state for state, _ in judged} & {state for state, _ in verdicts}
            if by_state(judged, both) != by_state(verdicts, both):
                differing.setdefault(path, []).append(f"{scenario}: other verdicts")
    for path, lines in differing.items():
        print(path.stem, DIFFERENCES.get(path.stem, ""), *lines, sep="\n    ")
    agreeing = len(loops) - len(differing)
    print(f"{agreeing} of {len(loops)} loops take the same path")
    assert agreeing >= 97
    assert {path.stem for path in differing} <= DIFFERENCES.keys()
