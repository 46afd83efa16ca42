"""A fresh environment, a real package, a stock agent: what a new user does first, from the wheel on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from .agent_homes import environment_of
from .model_server import ModelServer, Say, Shell

SDIST = "toolz==0.12.1"
EXAMPLE = Path(__file__).parents[2] / "examples" / "repair"


class Project(NamedTuple):
    """A project with a failing test, and the command with which a model repairs it."""

    path: Path
    repair: str

    def tests(self) -> dict[str, str]:
        """Digests of the files of its tests."""
        files = sorted(self.path.glob("**/tests/*.py"))
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An sdist from the package index in which a function is broken; without the index, the example."""
    download = [
        *["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest"],
        str(tmp_path),
        SDIST,
    ]
    words = [sys.executable, *download, "--disable-pip-version-check"]
    found = subprocess.run(words, capture_output=True, timeout=900, check=False)
    sdists = list(tmp_path.glob("*.tar.gz"))
    if found.returncode or not sdists:
        path = tmp_path / "repair"
        shutil.copytree(EXAMPLE, path)
        return Project(path, "sed -i 's/basket.append(item)/basket = [*basket, item]/' basket.py")
    with tarfile.open(sdists[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / sdists[0].name.removesuffix(".tar.gz")
    module = path / "toolz" / "itertoolz.py"
    right = "    seq = iter(seq)\n    next(seq)\n    return next(seq)\n"
    text = module.read_text()
    assert text.count(right) == 1
    module.write_text(text.replace(right, right.replace("    next(seq)\n", "", 1)))
    edit = r"/^def second/,/return/s/^    seq = iter(seq)$/&\n    next(seq)/"
    return Project(path, f"sed -i '{edit}' toolz/itertoolz.py")


@pytest.fixture
def environment(built: Path, tmp_path: Path, project: Project) -> Path:
    """The programs of a fresh environment with llc from its wheel, pytest, and the project."""
    (wheel,) = built.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words = [str(home / "bin" / "python"), *install, str(wheel), "pytest"]
    subprocess.run(words, check=True, capture_output=True, timeout=900)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "project.pth").write_text(f"{project.path}\n")
    return home / "bin"


def test_a_stock_agent_repairs_a_real_package(
    project: Project, environment: Path, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    """`llc create`, `llc run`: no file is edited by hand; one changed line has another agent do it."""
    unset = ("LLC_AGENT", "PYTHONPATH", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env["PATH"] = f"{environment}:{env['PATH']}"
    # Bytecode is taken for current after an edit within the same second that keeps a file's size.
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": "t", f"GIT_{role}_EMAIL": "t@example.org"}

    def call(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=project.path, env=env | more, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip

    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        assert call("git", *words).returncode == 0
    tests = project.tests()
    assert tests
    assert call("pytest", "-q").returncode == 1
    created = call("llc", "create", "--from", "tests")
    assert created.returncode == 0, created.stderr
    loop = project.path / ".loops" / "tests.yaml"
    created_loop = loop.read_text()
    for agent in ("claude", "opencode", "codex"):
        if agent != "claude":
            assert call("git", "checkout", "-q", "--", ".").returncode == 0
            # Codex states no cost, and the budget of the loop needs one: the price of its model.
            line = f"{agent}\nmodel: gpt-5.5" if agent == "codex" else agent
            loop.write_text(f"agent: {line}\n{created_loop}")
        with ModelServer() as models:
            models.then(Shell(project.repair), Say("Repaired."))
            home = environment_of(tmp_path / f"home-{agent}", installed(agent), models.url)
            home["PATH"] = f"{environment}:{installed(agent)}:{env['PATH']}"
            done = call("llc", "run", "tests", "--json", **home)
        assert done.returncode == 0, done.stderr + done.stdout
        outcome = json.loads(done.stdout)
        assert (outcome["status"], outcome["final_state"]) == ("success", "done"), outcome
        assert len(models.requests) == 2
        assert "FAILED " in json.dumps(models.requests[0])
        changed = call("git", "diff", "--name-only").stdout.split()
        assert len(changed) == 1, changed
        assert changed[0] in call("llc", "diff", "tests").stdout
        assert project.tests() == tests
