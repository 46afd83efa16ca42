"""Guarded paths: changes by an agent are reverted or fail the step; changes by the user stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from keepers import kill_with_keeper

from llc.runtime.trees.guard import pattern_of

Run = Callable[..., subprocess.CompletedProcess[str]]
LOOP = """
name: l
initial: fix
agent: stub
guard: {paths: ["tests/**"], on: ON}
states:
  fix: {action: Repair it, action_type: prompt, next: done, on_error: bad}
  done: {terminal: true}
  bad: {terminal: true, status: failure}
"""


def write_project(project_dir: Path, agent: str, on: str = "revert", is_repository: bool = True) -> None:
    (project_dir / ".loops/l.yaml").write_text(LOOP.replace("ON", on))
    (project_dir / ".loops/config.yaml").write_text(
        'agents: {stub: {argv: [./stub, "{prompt}"], output: text}}'
    )
    (project_dir / "stub").write_text(f"#!/bin/sh\n{agent}\n")
    (project_dir / "stub").chmod(0o755)
    (project_dir / "tests/deep").mkdir(parents=True)
    (project_dir / "tests/test_a.py").write_text("assert a\n")
    (project_dir / "tests/deep/test_b.py").write_text("assert b\n")
    (project_dir / "tests/run").write_text("#!/bin/sh\n")
    (project_dir / "tests/run").chmod(0o755)
    os.symlink("test_a.py", project_dir / "tests/link")
    (project_dir / "a.py").write_text("a = 0\n")
    if is_repository:
        subprocess.run(["git", "init", "-q"], cwd=project_dir, check=True)
        subprocess.run(["git", "add", "."], cwd=project_dir, check=True)
        who = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", *who, "commit", "-qm", "x"], cwd=project_dir, check=True)
    # The user's own changes, which are not committed.
    (project_dir / "tests/test_a.py").write_text("assert a == 1\n")
    (project_dir / "tests/own.py").write_text("mine\n")


def guarded_files(project_dir: Path) -> dict[str, tuple[str, int]]:
    """Files below `tests`, each with content or link target, and mode."""
    files = {}
    for path in sorted((project_dir / "tests").rglob("*")):
        if path.is_symlink():
            files[str(path.relative_to(project_dir))] = os.readlink(path), 0
        elif path.is_file():
            files[str(path.relative_to(project_dir))] = path.read_text(), path.stat().st_mode
    return files


def recorded_changes(project_dir: Path) -> list[list[str]]:
    (path,) = project_dir.glob(".loops/.*/l-*/*.events.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [change for event in events if event["event"] == "guard" for change in event["changes"]]


ATTACKS = {
    "edit": ("echo 'assert True' > tests/test_a.py", [["M", "tests/test_a.py"]]),
    "delete": ("rm tests/test_a.py tests/own.py", [["D", "tests/own.py"], ["D", "tests/test_a.py"]]),
    "rename": (
        "mv tests/test_a.py tests/deep/c.py",
        [["A", "tests/deep/c.py"], ["D", "tests/test_a.py"]],
    ),
    "new": ("mkdir -p tests/x/y; echo 1 > tests/x/y/conftest.py", [["A", "tests/x/y/conftest.py"]]),
    "mode": ("chmod -x tests/run", [["M", "tests/run"]]),
    "link": ("ln -sf ../a.py tests/link", [["M", "tests/link"]]),
    "to-link": ("rm tests/test_a.py; ln -s ../a.py tests/test_a.py", [["T", "tests/test_a.py"]]),
    "to-folder": (
        "rm tests/test_a.py; mkdir tests/test_a.py; echo > tests/test_a.py/z",
        [["D", "tests/test_a.py"], ["A", "tests/test_a.py/z"]],
    ),
}


@pytest.mark.parametrize("is_repository", [True, False], ids=["git", "manifest"])
@pytest.mark.parametrize("name", ATTACKS)
def test_changes_of_guarded_paths_are_reverted(
    llc: Run, project_dir: Path, name: str, is_repository: bool
) -> None:
    """Changes by the agent outside the guarded paths and the user's own changes stay."""
    attack, changes = ATTACKS[name]
    write_project(project_dir, f"echo 'a = 1' > a.py\n{attack}", is_repository=is_repository)
    before = guarded_files(project_dir)
    done = llc("run", "l")
    assert done.returncode == 0, done.stdout + done.stderr
    assert guarded_files(project_dir) == before
    assert (project_dir / "a.py").read_text() == "a = 1\n"
    assert recorded_changes(project_dir) == changes
    assert "guarded paths reverted: " in llc("logs", "l").stdout


def test_guarded_folder_replaced_by_a_link_is_not_followed(
    llc: Run, project_dir: Path, tmp_path_factory: object
) -> None:
    """No file outside the project is written."""
    outside = project_dir.parent / f"{project_dir.name}-outside"
    outside.mkdir()
    write_project(project_dir, f"rm -r tests; ln -s {outside} tests; echo x > tests/test_a.py")
    before = guarded_files(project_dir)
    assert llc("run", "l").returncode == 0
    assert guarded_files(project_dir) == before
    assert not (project_dir / "tests").is_symlink()
    assert sorted(path.name for path in outside.iterdir()) == ["test_a.py"]
    assert (outside / "test_a.py").read_text() == "x\n"


def test_change_of_guarded_paths_fails_the_step(llc: Run, project_dir: Path) -> None:
    """`on: fail` keeps the changed files, and the error names them."""
    write_project(project_dir, "echo x > tests/test_a.py", on="fail")
    done = llc("run", "l")
    assert done.returncode == 1
    assert "the agent changed guarded paths: tests/test_a.py" in done.stdout + done.stderr
    assert (project_dir / "tests/test_a.py").read_text() == "x\n"


def test_no_event_without_changes_of_guarded_paths(llc: Run, project_dir: Path) -> None:
    """No `guard` event is recorded, and the run replays."""
    write_project(project_dir, "echo 'a = 1' > a.py")
    assert llc("run", "l").returncode == 0
    assert recorded_changes(project_dir) == []
    assert llc("replay", "l").returncode == 0


def test_changes_before_a_kill_are_reverted_on_resume(project_dir: Path) -> None:
    """After kill -9, the paths are compared with the tree before the first start of the step."""
    write_project(project_dir, "[ -e tests/new.py ] && exit 0; echo 1 > tests/new.py; sleep 30")
    before = guarded_files(project_dir)
    run = subprocess.Popen([sys.executable, "-m", "llc", "run", "l", "-q"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (project_dir / "tests/new.py").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    kill_with_keeper(run)
    run.wait()
    done = subprocess.run([sys.executable, "-m", "llc", "resume", "l", "-q"], check=False, timeout=60)
    assert done.returncode == 0
    assert guarded_files(project_dir) == before


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("tests/**", ["tests", "tests/a", "tests/a/b"], ["test", "testsuite/a", "x/tests/a"]),
        ("**/conftest.py", ["conftest.py", "a/b/conftest.py"], ["aconftest.py"]),
        ("*.lock", ["a.lock"], ["a/b.lock", "alock"]),
        ("tests/", ["tests/a"], ["tests.py"]),
        ("a?c+", ["abc+"], ["a/c+", "abcc"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    """`*` matches within a name, `**` across folders; other characters match themselves."""
    pattern_regex = pattern_of([pattern])
    assert [path for path in matching if not pattern_regex.fullmatch(path)] == []
    assert [path for path in other if pattern_regex.fullmatch(path)] == []
