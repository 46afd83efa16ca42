"""Examples that measure with mypy and ruff reach their goal with the real tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SPEC = Path(__file__).parents[2] / "spec"
TOOLS = Path(sys.executable).parent
BAD = "import os\n\n\ndef f() -> int:\n    return 'x'\n"
GOOD = "def f() -> int:\n    return 1\n"
# A command that replaces the agent.
REPAIR = f"printf '{GOOD}' > src/a.py".replace("\n", "\\n")

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")


def example(chapter: str, name: str) -> str:
    """The text of a loop in a chapter, with a command in place of its agent."""
    blocks = re.findall(r"```yaml[^\n]*\n(.*?)```", (SPEC / chapter).read_text("utf-8"), re.DOTALL)
    (text, *_) = (block for block in blocks if re.search(rf'^name: "?{name}"?$', block, re.M))
    return re.sub(r'"/ll:[^"]*"', json.dumps(REPAIR), text)


def run(project_dir: Path, text: str, source: str = BAD) -> dict[str, Any]:
    """The JSON output of `llc run` for a loop in a project with one module."""
    (project_dir / ".loops" / "job.yaml").write_text(text)
    (project_dir / "src").mkdir()
    (project_dir / "src" / "a.py").write_text(source)
    environment = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "llc", "run", "job", "--json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return {**answer, "shown": done.stderr}


@pytest.mark.parametrize("source", [BAD, GOOD])
@pytest.mark.parametrize(
    ("chapter", "name"),
    [("loops.md", "count-errors"), ("loops.md", "reduce-lint-errors"), ("interpolation.md", "fix-errors")],
)
def test_an_example_of_the_spec_reaches_its_goal(
    project_dir: Path, chapter: str, name: str, source: str
) -> None:
    """With errors to repair, and without errors from the start."""
    outcome = run(project_dir, example(chapter, name), source)
    assert (outcome["status"], outcome["final_state"]) == ("success", "done"), outcome["shown"]
    assert (project_dir / "src" / "a.py").read_text() == GOOD


def test_a_command_that_prints_zero_twice_is_a_number(project_dir: Path) -> None:
    """`grep -c` prints 0 and fails, so `echo 0` prints another 0 (a command of the seed)."""
    text = example("loops.md", "count-errors").replace("grep -c error: || true", "grep -c error || echo 0")
    assert "|| echo 0" in text
    outcome = run(project_dir, text)
    assert (outcome["status"], outcome["final_state"]) == ("success", "done"), outcome["shown"]


def test_a_command_that_reads_a_field_of_a_list_reports_it(project_dir: Path) -> None:
    """The error has the message of jq, not only that there is no number (a command of the seed)."""
    text = example("loops.md", "reduce-lint-errors").replace("jq length", "jq '.count'")
    outcome = run(project_dir, text)
    assert outcome["status"] == "error"
    assert "the output is not a number" in outcome["error"]["message"]
    assert "Cannot index array with string" in outcome["error"]["message"]
