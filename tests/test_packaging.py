"""What is installed is all there and works: wheel and sdist, in an environment of their own."""

from __future__ import annotations

import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("ir", "frontend", "vm", "runtime", "stdlib")
LOOP = "name: two\ninitial: a\nstates:\n  a: {action: 'true', next: done}\n  done: {terminal: true}\n"


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


def test_an_installed_llc_runs_a_loop(built: Path, tmp_path: Path) -> None:
    """From the wheel, in a fresh environment: `llc`, `ll-loop` and `python -m llc` are there and work."""
    (wheel,) = built.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True, system_site_packages=False)
    python = home / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)],
        check=True,
        capture_output=True,
    )
    (tmp_path / "two.yaml").write_text(LOOP, "utf-8")
    for command in (
        [home / "bin" / "llc", "run", "two.yaml"],
        [home / "bin" / "ll-loop", "two.yaml"],
        [python, "-m", "llc", "compile", "two.yaml", "-o", "two.llb"],
        [home / "bin" / "llc", "run", "two.llb"],
    ):
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stdout + run.stderr
