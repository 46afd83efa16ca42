"""The ready loops with their real tools, in git projects; a small program replaces the agent.

The program applies the first edit of its list whose text is in the prompt and whose old text is in
the file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

AGENT = """
import json, pathlib, sys

prompt, edits = sys.argv[-1], json.loads(pathlib.Path(__file__).with_name("edits.json").read_text())
with open(pathlib.Path(__file__).with_name("prompts"), "a") as file:
    file.write(json.dumps(prompt) + "\\n")
done = "nothing"
for words, name, old, new in edits:
    path = pathlib.Path(name)
    text = path.read_text() if path.exists() else ""
    if words in prompt and old in text and (old or not text):
        path.write_text(text.replace(old, new) if old else new)
        done = name
        break
print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "num_turns": 2,
                  "result": "edited " + done, "total_cost_usd": 0.05}))
"""
Edit = tuple[str, str, str, str]


class Project:
    """A git project, with the tools of the test environment on PATH and the agent outside the project."""

    def __init__(self, around: Path) -> None:
        self.path = around / "project"
        self.agent = around / "agent"
        self.path.mkdir()
        self.agent.mkdir()
        (self.agent / "agent.py").write_text(AGENT)
        unwanted = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
        self.env = {name: value for name, value in os.environ.items() if name not in unwanted}
        self.env |= {
            "PATH": f"{Path(sys.executable).parent}:{self.env['PATH']}",
            "LLC_AGENT": f"{sys.executable} {self.agent / 'agent.py'}",
            "XDG_CACHE_HOME": str(around / "cache"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            # Bytecode is taken for current after an edit within the same second that keeps a file's size.
            "PYTHONDONTWRITEBYTECODE": "1",
            **{
                f"GIT_{role}_{key}": "t@example.org"
                for role in ("AUTHOR", "COMMITTER")
                for key in ("NAME", "EMAIL")
            },
        }
        self("git", "init", "-q", "-b", "main")

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.path, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=100, check=False,
        )  # fmt: skip

    def write(self, **files: str) -> None:
        """Files by name; `__` stands for a dot."""
        for name, text in files.items():
            path = self.path / name.replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, message: str) -> None:
        self("git", "add", "-A")
        assert self("git", "commit", "-q", "-m", message).returncode == 0

    def run(self, name: str, edits: list[Edit], *words: str) -> dict[str, Any]:
        """Create a ready loop with the options `words` and run it; returns its outcome with the agent's
        prompts.
        """
        (self.agent / "edits.json").write_text(json.dumps(edits))
        created = self(sys.executable, "-m", "llc", "create", "--from", name, *words)
        assert created.returncode == 0, created.stderr
        valid = self(sys.executable, "-m", "llc", "validate", "--strict", name)
        assert valid.returncode == 0, valid.stderr
        done = self(sys.executable, "-m", "llc", "run", name, "--json")
        outcome: dict[str, Any] = json.loads(done.stdout)
        outcome["shown"] = done.stderr
        prompts = self.agent / "prompts"
        lines = prompts.read_text().splitlines() if prompts.exists() else []
        outcome["prompts"] = [json.loads(line) for line in lines]
        return outcome


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def states_of(outcome: dict[str, Any]) -> list[str]:
    """The states that were entered, in order, except the last one, which has no action."""
    return re.findall(r"(?m)^\[\d+/\d+\] (\S+)", outcome["shown"])


def test_lint(project: Project) -> None:
    """Ruff removes the unused import itself; the agent repairs the undefined name."""
    project.write(pyproject__toml="", a__py="import os\n\n\ndef f(x):\n    return y\n")
    outcome = project.run("lint", [("Undefined name `y`", "a.py", "return y", "return x")])
    assert outcome["status"] == "success", outcome["shown"]
    assert (project.path / "a.py").read_text().strip() == "def f(x):\n    return x"
    assert len(outcome["prompts"]) == 1
    assert "unused" not in outcome["prompts"][0]


def test_types(project: Project) -> None:
    """The prompt has mypy's message."""
    project.write(pyproject__toml="", a__py="def f(x: int) -> str:\n    return x\n")
    edits = [("Incompatible return value", "a.py", "return x", "return str(x)")]
    outcome = project.run("types", edits, "--set", "check=mypy a.py")
    assert outcome["status"] == "success", outcome["shown"]
    assert len(outcome["prompts"]) == 1


def test_tests(project: Project) -> None:
    """A syntax error (pytest's exit code 2), then a wrong result, then success."""
    project.write(
        pyproject__toml="",
        calc__py="def add(a, b)\n    return a - b\n",
        test_calc__py="from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    )
    edits = [
        ("SyntaxError", "calc.py", "b)\n", "b):\n"),
        ("assert -1 == 5", "calc.py", "a - b", "a + b"),
    ]
    outcome = project.run("tests", edits)
    assert outcome["status"] == "success", outcome["shown"]
    assert len(outcome["prompts"]) == 2
    assert "result: exit code 2" in outcome["prompts"][0]
    assert project("git", "status", "--short", "test_calc.py").stdout.startswith("??")


def test_tests_that_cannot_be_repaired(project: Project) -> None:
    """The loop ends at its limit; without a test it is an error, and the agent is not called."""
    project.write(pyproject__toml="", test_a__py="def test_a():\n    assert False\n")
    outcome = project.run("tests", [], "--set", "rounds=2")
    assert outcome["terminated_by"] == "max_iterations"
    assert len(outcome["prompts"]) == 2
    (project.path / "test_a.py").unlink()
    outcome = project.run("tests", [], "--force")
    assert outcome["status"] == "error"
    assert len(outcome["prompts"]) == 2


def test_coverage(project: Project) -> None:
    """The report names the lines; a wrong added test is repaired before the coverage counts."""
    project.write(
        pyproject__toml="",
        sign__py="def sign(x):\n    if x > 0:\n        return 1\n    return -1 if x else 0\n",
        test_sign__py="from sign import sign\n\n\ndef test_positive():\n    assert sign(3) == 1\n",
    )
    more = (
        "from sign import sign\n\n\ndef test_others():\n    assert sign(-3) == 1\n    assert sign(0) == 0\n"
    )
    edits = [
        ("75%   4", "test_more.py", "", more),
        ("assert -1 == 1", "test_more.py", "(-3) == 1", "(-3) == -1"),
    ]
    outcome = project.run("coverage", edits, "--set", "target=95")
    assert outcome["status"] == "success", outcome["shown"]
    assert states_of(outcome) == ["test", "report", "add_tests", "test", "repair", "test", "report"]


def wheel(folder: Path, version: str, code: str) -> None:
    """A wheel of the package `greeting`."""
    folder.mkdir(exist_ok=True)
    about = f"greeting-{version}.dist-info"
    with zipfile.ZipFile(folder / f"greeting-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("greeting.py", code)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


def test_dependency_bump(project: Project) -> None:
    """Pip installs a version whose function has another name; the agent adapts the code."""
    wheels = project.path.parent / "wheels"
    pip = f"{sys.executable} -m pip install -q --no-index --find-links {wheels} --upgrade --target lib"
    pip += " -r requirements.txt"
    wheel(wheels, "1.0", "def hello(name):\n    return f'hello {name}'\n")
    project.write(
        requirements__txt="greeting>=1\n",
        app__py="import greeting\n\n\ndef welcome():\n    return greeting.hello('you')\n",
        test_app__py="from app import welcome\n\n\ndef test_app():\n    assert welcome() == 'hello you'\n",
    )
    assert project("bash", "-c", pip).returncode == 0
    wheel(wheels, "2.0", "def greet(name):\n    return f'hello {name}'\n")
    edits = [("has no attribute 'hello'", "app.py", "greeting.hello", "greeting.greet")]
    words = (
        "--set",
        f"bump={pip}",
        "--set",
        "test=PYTHONPATH=lib:. pytest -q -p no:cacheprovider test_app.py",
    )
    outcome = project.run("dependency-bump", edits, *words)
    assert outcome["status"] == "success", outcome["shown"]
    assert states_of(outcome) == ["before", "bump", "test", "repair", "verify"]
    assert "passed before" in outcome["prompts"][0]


def test_dependency_bump_of_a_broken_project(project: Project) -> None:
    """Nothing is updated, and no agent is called."""
    project.write(test_a__py="def test_a():\n    assert False\n")
    outcome = project.run("dependency-bump", [], "--set", "bump=touch updated")
    assert (outcome["status"], outcome["final_state"]) == ("failure", "broken")
    assert outcome["prompts"] == []
    assert not (project.path / "updated").exists()


def test_docs_drift(project: Project) -> None:
    """The agent gets the commits since the last change of the documentation; its examples are run."""
    project.write(
        calc__py="def add(a, b):\n    return a + b\n",
        README__md="# Calc\n\n>>> from calc import add\n>>> add(1, 2)\n3\n",
    )
    project.commit("begin")
    project.write(calc__py="def plus(a, b):\n    return a + b\n")
    project.commit("calc: `add` is called `plus`")
    edits = [
        ("`add` is called `plus`", "README.md", "import add", "import plus"),
        ("NameError: name 'add'", "README.md", ">>> add", ">>> plus"),
    ]
    outcome = project.run("docs-drift", edits)
    assert outcome["status"] == "success", outcome["shown"]
    assert states_of(outcome) == ["drift", "update", "check", "repair", "verify"]
    assert "| " in outcome["prompts"][0]
    again = project.run("docs-drift", [], "--force")
    assert again["status"] == "success"


def test_docs_that_are_up_to_date(project: Project) -> None:
    """Only the check runs; also outside a repository."""
    project.write(README__md=">>> 1 + 1\n2\n")
    assert states_of(project.run("docs-drift", [])) == ["drift", "check"]
    project.commit("begin")
    outcome = project.run("docs-drift", [], "--force")
    assert outcome["status"] == "success", outcome["shown"]
    assert (states_of(outcome), outcome["prompts"]) == (["drift", "check"], [])


def test_review_sweep(project: Project) -> None:
    """Each changed file is reviewed once, whatever its name; a review that breaks a test is repaired."""
    project.write(pyproject__toml="", a__py="", **{"it's b__py": "", "c__py": ""})
    project.write(test_a__py="from a import half\n\n\ndef test_half():\n    assert half(4) == 2\n")
    project.commit("begin")
    project("git", "switch", "-q", "-c", "change")
    project.write(a__py="def half(x):\n    return x / 2\n", **{"it's b__py": "def f(x=[]):\n    return x\n"})
    project.commit("change")
    edits = [
        ("Review the file a.py and", "a.py", "x / 2", "x // 3"),
        ("Review the file it's b.py and", "it's b.py", "x=[]", "x=()"),
        ("assert 1 == 2", "a.py", "x // 3", "x // 2"),
    ]
    outcome = project.run("review-sweep", edits)
    assert outcome["status"] == "success", outcome["shown"]
    assert [re.split(" and |;", prompt)[0] for prompt in outcome["prompts"]] == [
        "Review the file a.py",
        "The tests fail after a review. Repair the cause",
        "Review the file it's b.py",
    ]
    assert (project.path / "it's b.py").read_text() == "def f(x=()):\n    return x\n"


def test_migration(project: Project) -> None:
    """File by file until the search finds nothing."""
    code = "import os\n\n\ndef name(path):\n    return os.path.basename(path)\n"
    test = "from {0} import name\n\n\ndef test_name():\n    assert name('x/y') == 'y'\n"
    project.write(
        pyproject__toml="", a__py=code, b__py=code, test_a__py=test.format("a"), test_b__py=test.format("b")
    )
    project.commit("begin")
    new = "import pathlib\n\n\ndef name(path):\n    return pathlib.Path(path).name\n"
    edits = [("a.py:5:", "a.py", code, new), ("b.py:5:", "b.py", code, new.replace(".name", ".stem.upper()"))]
    edits += [("AssertionError", "b.py", ".stem.upper()", ".name")]
    words = (
        "--set",
        "find=git grep -n 'os[.]path' -- '*.py'",
        "--set",
        "change=Use pathlib instead of os.path.",
    )
    outcome = project.run("migration", edits, *words)
    assert outcome["status"] == "success", outcome["shown"]
    assert states_of(outcome) == (
        ["find", "migrate", "verify", "find", "migrate", "verify", "repair", "verify", "find", "test"]
    )
