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

from .little_loops_oracle import INPUT, TooLong, answer, scripted, verdict_of
from .little_loops_oracle import SCENARIOS as WORLDS

DIALECT = CompileOptions(dialect="little-loops")
PYTHON = os.environ.get("LLC_LITTLE_LOOPS", "")
needs_little_loops = pytest.mark.skipif(not PYTHON, reason="LLC_LITTLE_LOOPS names no Python")

# Runs a loop with little-loops; prints the states it entered, the verdicts and how it ended.
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
    "again and again": """
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
def test_a_value_in_code_is_checked(
    value: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could mean something in the code is an error of the state; without the dialect nothing runs."""
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


def test_a_loop_within_another_finds_what_little_loops_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of its input and the thresholds; it does not run in another work tree."""
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
def test_a_loop_takes_the_same_way(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same states, the same verdicts, the same end."""
    lines = ["name: x", *(line.removeprefix("        ") for line in SCENARIOS[name].splitlines())]
    folder = tmp_path / ".loops"
    folder.mkdir()
    (folder / "x.yaml").write_text("\n".join(["dialect: little-loops", *lines]) + "\n")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "x.yaml").write_text("\n".join(lines) + "\n")
    command = [PYTHON, "-c", ORACLE, str(theirs / "x.yaml")]
    shown = subprocess.run(command, cwd=theirs, capture_output=True, text=True, check=True, timeout=120)
    oracle = json.loads(shown.stdout.partition("ORACLE")[2])
    monkeypatch.chdir(tmp_path)
    outcome = llc.run("x")
    (journal,) = folder.rglob("*.events.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    entered = [event["state"] for event in events if event["event"] == "state_enter"]
    judged = [event["verdict"] for event in events if event["event"] == "evaluate"]
    words = {"success": "yes", "failure": "no"}
    ends = {"success": ["terminal", False], "failure": ["terminal", True], "limit": ["max_steps", False]}
    # A terminal is entered here, and only the end there; `next` with `on_error` is judged here.
    if outcome.status in ("success", "failure"):
        entered.pop()
    assert entered == oracle["path"]
    assert ends[outcome.status] == oracle["end"]
    if name == "limit":  # what runs at the limit is not judged, since nothing follows
        oracle["verdicts"].pop()
    if name != "next and on_error":
        assert [words.get(verdict, verdict) for verdict in judged][: len(oracle["verdicts"])] == oracle[
            "verdicts"
        ]


def shipped() -> list[Path]:
    """The loops that little-loops ships, and their libraries."""
    code = "import little_loops; print(little_loops.__path__[0])"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return sorted((Path(found.stdout.strip()) / "loops").rglob("*.yaml"))


@needs_little_loops
def test_the_loops_that_it_ships_are_accepted() -> None:
    """All but two that only others inherit from, and four that are refused on their own."""
    reasons = Counter(reason_of(path) for path in shipped())
    print(*(f"{count:4} {reason}" for reason, count in reasons.most_common()), sep="\n")
    assert reasons["library"] == 9
    assert reasons["accepted"] >= 105


def reason_of(path: Path) -> str:
    """Why a loop is refused, in a few words."""
    try:
        compile_file(str(path), DIALECT)
    except CompileError as error:
        ids: Any = {finding.id for finding in error.diagnostics if finding.is_error}
        if ids == {"fragment-library"}:
            return "library"
        return ", ".join(sorted(ids))
    return "accepted"


# --- all loops that it ships --------------------------------------------------------------------

# Loops that take another way, by the rule.
_STALL = "`diff_stall` of a loop that runs again begins anew"
DIFFERENCES: dict[str, str] = {
    "prompt-across-issues": "no limit of how often one route is taken but `max_steps`",
    "html-website-generator": _STALL,
    "interactive-component-generator": _STALL,
    "svg-image-generator": _STALL,
    "loop-composer-adaptive": "a loop that cannot be run leaves a result with the error",
    "outer-loop-eval": "a name that is given and names no loop is an error before the run",
    "ready-to-implement-gate": "`type: learning` is a task of an agent",
}


def answers(scenario: str) -> Callable[[Effect], dict[str, Any] | None]:
    """What the scripted world says to each effect."""
    counts: Counter[str] = Counter()

    def actions() -> int:
        return counts["shell"] + counts["agent"] + counts["tool"]

    def answer_of(effect: Effect) -> dict[str, Any] | None:
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
            said = answer(scenario, counts["evaluate"] - 1)
            if said == "error":
                return {"error": {"kind": "scripted", "message": "scripted"}, "elapsed_ms": 1}
            allowed = args["schema"]["properties"]["verdict"].get("enum") or ("yes", "no")
            return {"reply": {"verdict": verdict_of(said, allowed), "confidence": 1.0}, "elapsed_ms": 1}
        if effect.kind == "env":
            return {"values": {name: os.environ.get(name) for name in args["names"]}}
        if effect.kind == "link":
            return {"error": {"kind": "unknown-loop", "message": "no such loop"}}
        if effect.kind == "ask":
            return {"error": {"kind": "no-answer", "message": "nobody"}, "output": "", "elapsed_ms": 1}
        if effect.kind == "jq":
            return jq_worker.answer({**args, "limit": 5})
        return None

    return answer_of


WORDS = {"success": "yes", "failure": "no"}
# Takes the same path by other verdicts in scripted worlds; the cause is not known.
OTHER_VERDICTS = {"html-anything"}


def by_state(verdicts: list[tuple[str, str]], states: set[str]) -> dict[str, list[str]]:
    """The verdicts of each of some states, in their order."""
    return {name: [verdict for state, verdict in verdicts if state == name] for name in states}


def way(program: Program, scenario: str) -> tuple[list[str], list[tuple[str, str]], str]:
    """The states that a program enters, without terminals, their verdicts, and how it ends."""
    world = World(answers(scenario))
    try:
        end = drive(program, world)
    except TooLong:
        how = "too long"
    else:
        how = (
            "error"
            if isinstance(end, Fault)
            else {"success": "yes", "failure": "no"}.get(end["status"], "limit")
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
    return path, verdicts, how


def end_of(seen: dict[str, Any]) -> str:
    """How little-loops ended, in the words of `way`."""
    terminated_by, failed, _ = seen["end"]
    if terminated_by == "terminal":
        return "no" if failed else "yes"
    limits = ("max_steps", "max_iterations_reached", "max_iterations", "timeout")
    return "limit" if terminated_by in limits else "too long" if terminated_by == "too long" else "error"


def program_with(path: Path, given: dict[str, str]) -> Program:
    """The program of a loop, where what it needs is given, and what else is."""
    loop = compile_file(str(path), DIALECT).loop
    assert loop is not None
    needed = [name for name, one in (loop.parameters or {}).items() if one.required and name != "run_dir"]
    empty = [key for key in ("input", *(loop.required_inputs or ()), *needed) if not loop.context.get(key)]
    context = {**{key: INPUT for key in empty if key in loop.context}, **given}
    return compile_file(str(path), DIALECT.evolve(context=context)).program


@needs_little_loops
def test_loops_take_the_same_way(tmp_path: Path) -> None:
    """Those that are accepted, with the loops they run, in scripted worlds: the same states, the same end."""
    loops = [path for path in shipped() if reason_of(path) == "accepted"]
    jobs = [(path, scenario) for path in loops for scenario in WORLDS]
    oracle = Path(__file__).with_name("little_loops_oracle.py")
    told = subprocess.run(
        [PYTHON, str(oracle)], input=json.dumps([(str(path), scenario) for path, scenario in jobs]),
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=3000,
    )  # fmt: skip
    seen = [json.loads(line[6:]) for line in told.stdout.splitlines() if line.startswith("ORACLE")]
    assert len(seen) == len(jobs)
    programs: dict[tuple[Path, str], Program] = {}
    differing: dict[Path, list[str]] = {}
    for (path, scenario), theirs in zip(jobs, seen, strict=True):
        key = (path, json.dumps(theirs["given"]))
        if key not in programs:
            try:
                programs[key] = program_with(path, theirs["given"])
            except CompileError as error:
                differing.setdefault(path, []).append(f"{scenario}: {error.diagnostics[0].message}")
                continue
        ours, verdicts, how = way(programs[key], scenario)
        length = min(len(ours), len(theirs["path"])) if "too long" in (how, end_of(theirs)) else None
        if (ours[:length], how) != (theirs["path"][:length], end_of(theirs)):
            at = next(
                (i for i, pair in enumerate(zip(ours, theirs["path"], strict=False)) if len({*pair}) > 1), -1
            )
            step = slice(max(at - 1, 0), at + 1)
            here = f"{scenario}: {ours[step]} {how}, not {theirs['path'][step]} {theirs['end']}"
            differing.setdefault(path, []).append(here)
        elif length is None and path.stem not in OTHER_VERDICTS:
            judged = [(state, WORDS.get(verdict, verdict)) for state, verdict in theirs["verdicts"]]
            # What follows `next` with `on_error`, and a loop that is run, is judged here only.
            both = {state for state, _ in judged} & {state for state, _ in verdicts}
            if by_state(judged, both) != by_state(verdicts, both):
                differing.setdefault(path, []).append(f"{scenario}: other verdicts")
    for path, lines in differing.items():
        print(path.stem, DIFFERENCES.get(path.stem, ""), *lines, sep="\n    ")
    agreeing = len(loops) - len(differing)
    print(f"{agreeing} of {len(loops)} loops take the same way")
    assert agreeing >= 97
    assert {path.stem for path in differing} <= DIFFERENCES.keys()
