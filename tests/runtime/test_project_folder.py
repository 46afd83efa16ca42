"""Selection of the project folder: from sub-folders, with `-C`, and by the path of a loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOP = """name: where
initial: look
states:
  look: {action: pwd, capture: place, next: done}
  done: {terminal: true}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two projects and a folder outside of projects, in a home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for project in ("one", "two"):
        (tmp_path / project / ".loops").mkdir(parents=True)
        (tmp_path / project / ".loops" / "where.yaml").write_text(LOOP)
        (tmp_path / project / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "none").mkdir()
    return tmp_path


def llc(project_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llc", *words], cwd=project_dir, capture_output=True, text=True, check=False
    )


def place_of(done: subprocess.CompletedProcess[str]) -> str:
    """The folder in which the loop's action ran."""
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.lstrip().startswith("│")]
    return line.split("│ ")[1]


@pytest.mark.parametrize("words", [("run", "where"), ("where",)])
def test_a_project_is_found_from_its_sub_folders(home: Path, words: tuple[str, ...]) -> None:
    """The nearest folder above with `.loops/`; its runs are kept there."""
    project = home / "one"
    assert place_of(llc(project / "sub" / "deep", *words)) == str(project)
    assert not (project / "sub" / "deep" / ".loops").exists()
    (row,) = json.loads(llc(project / "sub", "history", "--json").stdout)["runs"]
    assert row["program"] == "where"


def test_the_option_directory_selects_the_project(home: Path) -> None:
    """`-C DIR` precedes the subcommand; the folder may be a sub-folder of a project."""
    assert place_of(llc(home, "-C", "one", "run", "where")) == str(home / "one")
    assert place_of(llc(home, "--directory=two/sub", "where")) == str(home / "two")
    refused = llc(home, "-C", "three", "list")
    assert (refused.returncode, "-C: cannot change to `three`" in refused.stderr) == (2, True)
    late = llc(home, "run", "-C", "one", "where")
    assert (late.returncode, "before the subcommand: `llc -C DIR …`" in late.stderr) == (2, True)


def test_a_loop_by_its_path_runs_in_its_project(home: Path) -> None:
    """From another project and from a folder outside of projects."""
    path = os.path.join("..", "two", ".loops", "where.yaml")
    assert place_of(llc(home / "one", "run", path)) == str(home / "two")
    assert place_of(llc(home / "none", "run", path)) == str(home / "two")
    assert not (home / "one" / ".loops" / ".history").exists()


def test_a_loop_outside_of_projects_runs_in_the_project_of_the_caller(home: Path) -> None:
    (home / "none" / "where.yaml").write_text(LOOP)
    path = str(home / "none" / "where.yaml")
    assert place_of(llc(home / "one" / "sub", "run", path)) == str(home / "one")
    (home / "other").mkdir()
    assert place_of(llc(home / "other", "run", path)) == str(home / "other")


def test_paths_are_relative_to_the_working_folder(home: Path) -> None:
    """Sources, outputs and worlds, relative or absolute."""
    sub = home / "one" / "sub"
    (sub / "world.yaml").write_text('rules:\n  - {state: look, output: "scripted\\n"}\n')
    assert place_of(llc(sub, "run", "where", "--script", "world.yaml")) == "scripted"
    assert llc(sub, "compile", "where", "-o", "out.llb").returncode == 0
    assert (sub / "out.llb").exists()
    assert place_of(llc(sub, "run", "out.llb")) == str(home / "one")
    assert place_of(llc(sub / "deep", "run", str(sub / "out.llb"))) == str(home / "one")
    assert llc(sub, "schema", "-o", "schema.json").returncode == 0
    assert (sub / "schema.json").exists()


def test_the_home_folder_is_a_project_only_inside_it(home: Path) -> None:
    """A `.loops` of the home folder does not make projects of all folders below it."""
    (home / ".loops").mkdir()
    (home / ".loops" / "where.yaml").write_text(LOOP)
    refused = llc(home / "none", "run", "where")
    assert (refused.returncode, "no loop named `where`" in refused.stderr) == (2, True)
    assert place_of(llc(home, "run", "where")) == str(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_project_of_another_user_is_not_selected_automatically(home: Path) -> None:
    """Its configuration may name any program; `-C` selects it explicitly."""
    project = home / "one"
    os.chown(project / ".loops", 12345, 12345)
    assert llc(project / "sub", "run", "where").returncode == 2
    assert place_of(llc(home, "-C", "one", "run", "where")) == str(project)


def test_completion_works_in_sub_folders(home: Path) -> None:
    """Loops of the project, and paths relative to the working folder."""
    sub = home / "one" / "sub"
    (sub / "own.yaml").write_text(LOOP)
    for start, wanted in (("w", ["where"]), ("o", ["own.yaml"])):
        line = {"_LLC_COMPLETE": "complete_bash", "COMP_WORDS": f"llc\nrun\n{start}", "COMP_CWORD": "2"}
        done = subprocess.run(
            [str(Path(sys.executable).with_name("llc"))],
            cwd=sub,
            env={**os.environ, **line},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == wanted
