"""Loops of little-loops mean the same to llc, compared with little-loops itself.

The comparison needs little-loops 1.167.0 in an environment of its own; `LLC_LITTLE_LOOPS` names its Python:

    python -m venv /tmp/little && /tmp/little/bin/pip install little-loops==1.167.0
    LLC_LITTLE_LOOPS=/tmp/little/bin/python pytest tests/runtime/test_little_loops.py -s
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import llc
from llc.frontend.compile import compile_file
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError

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


@needs_little_loops
def test_the_loops_that_it_ships_are_accepted() -> None:
    """All but those that run loops whose names are known late, and a few that are refused on their own."""
    code = "import little_loops; print(little_loops.__path__[0])"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    reasons: Counter[str] = Counter()
    options = CompileOptions(dialect="little-loops")
    for path in sorted((Path(found.stdout.strip()) / "loops").rglob("*.yaml")):
        reasons[reason_of(path, options)] += 1
    print(*(f"{count:4} {reason}" for reason, count in reasons.most_common()), sep="\n")
    assert reasons["library"] == 9
    assert reasons["accepted"] >= 97


def reason_of(path: Path, options: CompileOptions) -> str:
    """Why a loop is refused, in a few words."""
    try:
        compile_file(str(path), options)
    except CompileError as error:
        ids: Any = {finding.id for finding in error.diagnostics if finding.is_error}
        if ids == {"fragment-library"}:
            return "library"
        return ", ".join(sorted(ids))
    return "accepted"
