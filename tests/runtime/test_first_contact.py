"""First steps of a new user, from the wheel on: a new environment, a loop, a real package, a stock agent.

The wheel and the sdist are complete and work; they and the environment are built once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from .agent_homes import environment_of
from .model_server import ModelServer, Say, Shell

# opencode takes seconds of processor time for a start.
IS_LARGE = bool(os.environ.get("LLC_AGENTS"))
ROOT = Path(__file__).parents[2]
FOLDERS = ("ir", "frontend", "vm", "runtime", "stdlib")
LOOP = "name: two\ninitial: a\nstates:\n  a: {action: 'true', next: done}\n  done: {terminal: true}\n"
SDIST = "toolz==0.12.1"
EXAMPLE = ROOT / "examples" / "repair"


class Project(NamedTuple):
    """A project with a failing test, and the command with which a model repairs it."""

    path: Path
    repair: str

    def tests(self) -> dict[str, str]:
        """Digests of the test files."""
        files = sorted(self.path.glob("**/tests/*.py"))
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An sdist from the package index with a broken function; without access to the index, the example."""
    download = [
        *["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest"],
        str(tmp_path),
        SDIST,
    ]
    words = [sys.executable, *download, "--disable-pip-version-check"]
    download_result = subprocess.run(words, capture_output=True, timeout=900, check=False)
    sdists = list(tmp_path.glob("*.tar.gz"))
    if download_result.returncode or not sdists:
        path = tmp_path / "repair"
        shutil.copytree(EXAMPLE, path)
        return Project(path, "sed -i 's/basket.append(item)/basket = [*basket, item]/' basket.py")
    with tarfile.open(sdists[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / sdists[0].name.removesuffix(".tar.gz")
    module = path / "toolz" / "itertoolz.py"
    original = "    seq = iter(seq)\n    next(seq)\n    return next(seq)\n"
    text = module.read_text()
    assert text.count(original) == 1
    module.write_text(text.replace(original, original.replace("    next(seq)\n", "", 1)))
    edit = r"/^def second/,/return/s/^    seq = iter(seq)$/&\n    next(seq)/"
    return Project(path, f"sed -i '{edit}' toolz/itertoolz.py")


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "checkout"
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listing.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(source)], check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def environment(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of a new environment with llc from its wheel, and pytest."""
    (wheel,) = distribution.glob("*.whl")
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    # Python compiles what the tests use when it is first imported, a part of what is installed.
    options = ("--quiet", "--disable-pip-version-check", "--no-compile")
    subprocess.run(
        [*pip, "install", *options, str(wheel), "pytest"], check=True, capture_output=True, timeout=900
    )
    subprocess.run([home / "bin" / "pytest", "--version"], check=True, capture_output=True)
    return home / "bin"


def tracked() -> list[str]:
    """Files of the repository that belong to the package."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a checkout knows its files")
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    inside = {"__init__.py", "__main__.py", "py.typed"}
    return [
        name
        for name in listing.stdout.split("\n")
        if name in inside or (name.split("/")[0] in FOLDERS and name)
    ]


def test_wheel_has_the_package_and_nothing_else(distribution: Path) -> None:
    """Every tracked file of the package is included, with data files, below `llc/` only."""
    (wheel,) = distribution.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {f"llc/{name}" for name in tracked()}


def test_sdist_is_complete(distribution: Path) -> None:
    """It has all sources of the package, the readme and the licence."""
    (sdist,) = distribution.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {*tracked(), "README.md", "LICENSE", "pyproject.toml"}


def test_installed_llc_runs_a_loop(environment: Path, tmp_path: Path) -> None:
    """In a new environment with the wheel, `llc`, `ll-loop` and `python -m llc` work."""
    (tmp_path / "two.yaml").write_text(LOOP, "utf-8")
    for command in (
        [environment / "llc", "run", "two.yaml"],
        [environment / "ll-loop", "two.yaml"],
        [environment / "python", "-m", "llc", "compile", "two.yaml", "-o", "two.llb"],
        [environment / "llc", "run", "two.llb"],
    ):
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stdout + run.stderr


def test_stock_agent_repairs_a_real_package(
    project: Project, environment: Path, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    """With `llc create` and `llc run` no file is edited by hand; one changed line selects another agent."""
    (packages,) = environment.parent.glob("lib/python*/site-packages")
    (packages / "project.pth").write_text(f"{project.path}\n")
    unset = ("LLC_AGENT", "PYTHONPATH", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env["PATH"] = f"{environment}:{env['PATH']}"
    # Python does not notice an edit within the same second that keeps the size of a file.
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
    for agent in ("claude", "opencode", "codex") if IS_LARGE else ("claude", "codex"):
        if agent != "claude":
            assert call("git", "checkout", "-q", "--", ".").returncode == 0
            # Codex reports no cost, and the budget of the loop needs the price of its model.
            line = f"{agent}\nmodel: gpt-5.5" if agent == "codex" else agent
            loop.write_text(f"agent: {line}\n{created_loop}")
        with ModelServer() as models:
            models.then(Shell(project.repair), Say("Repaired."))
            home = environment_of(tmp_path / f"home-{agent}", installed(agent), models.url)
            home["PATH"] = f"{environment}:{installed(agent)}:{env['PATH']}"
            completed = call("llc", "run", "tests", "--json", **home)
        assert completed.returncode == 0, completed.stderr + completed.stdout
        outcome = json.loads(completed.stdout)
        assert (outcome["status"], outcome["final_state"]) == ("success", "done"), outcome
        assert len(models.requests) == 2
        assert "FAILED " in json.dumps(models.requests[0])
        changed = call("git", "diff", "--name-only").stdout.split()
        assert len(changed) == 1, changed
        assert changed[0] in call("llc", "diff", "tests").stdout
        assert project.tests() == tests
