"""`examples/mend`: a flow that repairs a project whose tests fail, with a real shell and no model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MEND = Path(__file__).parents[2] / "examples" / "mend"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project."""
    return Path(shutil.copytree(MEND, tmp_path / "mend", ignore=shutil.ignore_patterns("__pycache__")))


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    env["XDG_CACHE_HOME"] = str(project.parent / "cache")
    return subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=120)


def test_the_flow_repairs_the_project(project: Path) -> None:
    """Its tests fail before and pass after; the loop stops in the iteration that made them pass."""
    before = run(project, "pytest", "-q")
    assert "2 failed" in before.stdout or "3 failed" in before.stdout, before.stdout
    result = run(project, "llc", "run", "mend", "--json")
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)["value"]
    assert value["edits"] == 3
    after = run(project, "pytest", "-q")
    assert after.returncode == 0, after.stdout


def test_an_edit_that_does_not_apply_ends_the_flow(project: Path) -> None:
    """An exception of the tool is a fault that names phase and iteration, and stops the changes."""
    source = project / "slug.py"
    source.write_text(source.read_text().replace("title.split", "title.strip().split"))
    result = run(project, "llc", "run", "mend")
    assert result.returncode == 1
    assert "in the executor, iteration 2: `code:replace`: ValueError" in result.stderr


def test_the_flow_is_valid_and_laid_out(project: Path) -> None:
    """No warnings, and no changes by the formatter."""
    assert run(project, "llc", "validate", "--strict").returncode == 0
    assert run(project, "llc", "fmt", "--check").returncode == 0


def test_it_runs_in_a_scripted_world(project: Path) -> None:
    """With tools and commands answered by rules, the decisions are the same and no file changes."""
    (project / "world.yaml").write_text(
        "- {tool: code:replace, value: edited}\n- {tool: code:failures, value: test_x}\n"
        "- {kind: shell, command: pytest, results: [{exit_code: 1}, {exit_code: 0}]}\n"
    )
    source = (project / "slug.py").read_text()
    result = run(project, "llc", "run", "mend", "--script", "world.yaml", "--json")
    assert json.loads(result.stdout)["value"] == {"edits": 2, "last": "edited"}
    assert (project / "slug.py").read_text() == source
