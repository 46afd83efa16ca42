"""What a new user does first, from the wheel on: a fresh environment, a loop, a real package, a stock agent.

What is installed is all there and works: the wheel and the sdist are built once, as is the environment.
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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy so that nothing is left behind."""
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
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with llc from its wheel, and pytest."""
    (wheel,) = built.glob("*.whl")
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    words = [*pip, "install", "--quiet", "--disable-pip-version-check", str(wheel), "pytest"]
    subprocess.run(words, check=True, capture_output=True, timeout=900)
    return home / "bin"


def tracked() -> list[str]:
    """The files of the repository that belong in the package."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a checkout knows its files")
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    inside = {"__init__.py", "__main__.py", "py.typed"}
    return [
        name
        for name in listing.stdout.split("\n")
        if name in inside or (name.split("/")[0] in FOLDERS and name)
    ]


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    """Every tracked file of the package is in it, data files too, and only below `llc/`."""
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {f"llc/{name}" for name in tracked()}


def test_the_sdist_can_be_built_from(built: Path) -> None:
    """It holds all sources of the package, the readme and the licence."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {*tracked(), "README.md", "LICENSE", "pyproject.toml"}


def test_an_installed_llc_runs_a_loop(environment: Path, tmp_path: Path) -> None:
    """From the wheel, in a fresh environment: `llc`, `ll-loop` and `python -m llc` are there and work."""
    (tmp_path / "two.yaml").write_text(LOOP, "utf-8")
    for command in (
        [environment / "llc", "run", "two.yaml"],
        [environment / "ll-loop", "two.yaml"],
        [environment / "python", "-m", "llc", "compile", "two.yaml", "-o", "two.llb"],
        [environment / "llc", "run", "two.llb"],
    ):
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stdout + run.stderr


def test_a_stock_agent_repairs_a_real_package(
    project: Project, environment: Path, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    """`llc create`, `llc run`: no file is edited by hand; one changed line has another agent do it."""
    (packages,) = environment.parent.glob("lib/python*/site-packages")
    (packages / "project.pth").write_text(f"{project.path}\n")
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
    for agent in ("claude", "opencode", "codex") if IS_LARGE else ("claude", "codex"):
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
