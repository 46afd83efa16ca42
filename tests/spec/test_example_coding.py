"""`examples/coding`: a model changes a project until its tests pass; real shell, local Messages API."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RIGHT = '''"""Words of a text."""

import string


def words(text: str) -> list[str]:
    """The words, in lower case and without punctuation around them."""
    return [word.strip(string.punctuation).lower() for word in text.split()]


def longest(text: str) -> str:
    """The longest word; the first of several, '' where there are none."""
    return max(words(text), key=len, default="")
'''


@pytest.fixture(scope="module")
def messages() -> Any:
    spec = importlib.util.spec_from_file_location(
        "llc_tests_messages_server", ROOT / "tests" / "runtime" / "messages_server.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(messages: Any) -> Iterator[Any]:
    with messages.MessagesServer() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, as a repository."""
    ignored = shutil.ignore_patterns("__pycache__", ".cache", ".history", ".running")
    path = Path(shutil.copytree(ROOT / "examples" / "coding", tmp_path / "coding", ignore=ignored))
    subprocess.run(["git", "init", "-q"], cwd=path, check=True)
    return path


def run(project: Path, server: Any, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    env |= {
        "XDG_CACHE_HOME": str(project.parent / "cache"),
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "test-key",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=120)


def change(messages: Any, content: str, path: str = "words.py") -> Any:
    return messages.result({"summary": "a change", "files": [{"path": path, "content": content}]})


def test_the_loop_works_until_the_tests_pass(project: Path, server: Any, messages: Any) -> None:
    """An insufficient change, an analysis, the right change: tests fail, then they pass."""
    server.then(
        change(messages, (project / "words.py").read_text().replace('split(" ")', "lower().split()")),
        messages.result(
            {
                "success": False,
                "analysis": "Punctuation stays.",
                "next_input": "Strip punctuation in words.py; longest fails for ''.",
                "new_files": ["pyproject.toml"],
            }
        ),
        change(messages, RIGHT),
        messages.result({"success": True, "analysis": "All tests pass."}),
    )
    result = run(project, server, "llc", "run", "code", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["value"] == {"iterations": 2, "analysis": "All tests pass."}
    first, judged, second, last = [
        "".join(part["text"] for part in request["messages"][-1]["content"]) for request in server.requests
    ]
    # The prompts contain the files, the output of the tests, the next prompt and the new file.
    assert 'return text.split(" ")' in first
    assert "assert longest" in first
    assert '<check exit_code="1">' in judged
    assert "AssertionError" in judged
    assert "Strip punctuation" in second
    assert "lower().split()" in second
    assert '<file path="pyproject.toml">' in second
    assert '<check exit_code="0">' in last


def test_the_director_works_until_the_tests_pass(project: Path, server: Any, messages: Any) -> None:
    """A plan, an insufficient change, feedback for the next plan, the right change."""
    too_little = (project / "words.py").read_text().replace('split(" ")', "lower().split()")
    server.then(
        messages.result({"instructions": "Split at white space.", "files": ["words.py"]}),
        change(messages, too_little),
        messages.result({"status": "REVISE", "explanation": "Punctuation.", "next_prompt": "Strip it."}),
        messages.result({"instructions": "Strip punctuation.", "files": ["words.py"]}),
        change(messages, RIGHT),
        messages.result({"status": "GOOD", "explanation": "All tests pass."}),
    )
    result = run(project, server, "llc", "run", "direct", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["value"] == {
        "status": "GOOD",
        "explanation": "All tests pass.",
        "iterations": 2,
    }
    planned, changed, judged, again, *_ = [
        "".join(part["text"] for part in request["messages"][-1]["content"]) for request in server.requests
    ]
    assert "assert longest" in planned
    assert "Split at white space." in changed
    assert '<check exit_code="1">' in judged
    assert "<feedback>\nStrip it.\n</feedback>" in again


def test_a_model_cannot_write_outside_of_the_project(project: Path, server: Any, messages: Any) -> None:
    """A path outside of the project is a fault that names the phase; nothing is written."""
    server.then(change(messages, "x", path="../stolen.py"))
    result = run(project, server, "llc", "run", "code")
    assert result.returncode == 1
    assert "in the executor, iteration 1" in result.stderr
    assert not (project.parent / "stolen.py").exists()


def test_a_failed_analysis_ends_the_loop(project: Path, server: Any, messages: Any) -> None:
    """After one repair attempt the loop stops with the failed result and its reason."""
    server.then(change(messages, RIGHT), messages.result({"success": False, "analysis": "no idea"}))
    done = run(project, server, "llc", "run", "code", "--json")
    value = json.loads(done.stdout)["value"]
    assert value["notes"]["error"]["reason"] == "output_format_failure"
    assert "next_input" in value["notes"]["error"]["message"]
    assert len(server.requests) == 3


def test_the_flow_is_valid_and_laid_out(project: Path, server: Any) -> None:
    """No warnings, and no changes by the formatter."""
    assert run(project, server, "llc", "validate", "--strict").returncode == 0
    assert run(project, server, "llc", "fmt", "--check").returncode == 0
