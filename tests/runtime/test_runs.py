"""Lookup of loops by name, and the run folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_process import run_llc

from llc.runtime.host.errors import UserError
from llc.runtime.host.paths import HISTORY, RUNNING, slug
from llc.runtime.journal import journal
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import runs
from llc.runtime.runs.lookup import find_unfinished
from llc.runtime.runs.loop_names import loop_files, resolve_loop


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".loops").mkdir()
    for name in ("lint-fix.yaml", "fix-types.yml", "old.fsm.yaml", ".hidden.yaml", "notes.md"):
        (tmp_path / ".loops" / name).write_text("")
    return tmp_path


@given(st.text())
def test_a_hostile_name_is_a_safe_file_name(name: str) -> None:
    """The file name of any loop is one short visible path component."""
    safe = slug(name)
    assert os.path.basename(safe) == safe
    assert not safe.startswith((".", "-"))
    assert 0 < len(safe.encode()) <= 80
    assert safe.isprintable()


def test_a_plain_name_is_unchanged() -> None:
    """Letters, digits, dots, dashes and underscores are unchanged in run names."""
    assert slug("fix-types_2.0") == "fix-types_2.0"
    assert slug("../../etc/passwd") == "etc-passwd" or "/" not in slug("../../etc/passwd")


def test_the_loops_of_a_project_are_its_yaml_files(project: Path) -> None:
    """Hidden files, compiled FSMs and other files are not loops."""
    assert loop_files(str(project)) == {
        "fix-types": ".loops/fix-types.yml",
        "lint-fix": ".loops/lint-fix.yaml",
    }


def test_a_name_resolves_into_the_loops_folder(project: Path) -> None:
    """A name is `.loops/<name>.yaml` or `.yml`; a path is used as it is."""
    assert resolve_loop("lint-fix", str(project)) == ".loops/lint-fix.yaml"
    assert resolve_loop("fix-types", str(project)) == ".loops/fix-types.yml"
    assert resolve_loop(".loops/old.fsm.yaml", str(project)) == ".loops/old.fsm.yaml"


@pytest.mark.parametrize(
    ("target", "id", "help"),
    [
        ("lint-fx", "unknown-loop", "did you mean `lint-fix`?"),
        ("zzz", "unknown-loop", "loops here: `fix-types`, `lint-fix`"),
        ("", "unknown-loop", "loops here"),
        (".loops/lint-fixx.yaml", "unknown-file", "did you mean `.loops/lint-fix.yaml`?"),
        ("lint-fix.yaml", "unknown-file", "did you mean `.loops/lint-fix.yaml`?"),
        ("loops/fix-types.yml", "unknown-file", "did you mean `.loops/fix-types.yml`?"),
        ("nowhere/x.yaml", "unknown-file", "there is no directory `nowhere` either"),
        (".loops/", "not-a-loop", "name a loop file in it"),
    ],
)
def test_an_unknown_target_is_refused_with_a_suggestion(
    project: Path, target: str, id: str, help: str
) -> None:
    with pytest.raises(UserError) as caught:
        resolve_loop(target, str(project))
    assert caught.value.id == id
    assert help in (caught.value.help or "")
    assert caught.value.exit_code == 2


def test_a_file_named_without_its_folder_gets_a_hint(project: Path) -> None:
    """A file in the working folder has the name that was given for a loop."""
    (project / "job").write_text("")
    with pytest.raises(UserError) as caught:
        resolve_loop("job", str(project))
    assert caught.value.help == "to run the file `job`, write `./job`"


@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling"])
def test_a_loop_that_is_not_a_regular_file_is_reported(project: Path, kind: str) -> None:
    """A directory, a pipe or a dangling link is not suggested as a loop."""
    path = project / ".loops" / "odd.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    with pytest.raises(UserError) as caught:
        resolve_loop("odd", str(project))
    expected = {
        "directory": "is a directory",
        "pipe": "is not a regular file",
        "dangling": "is a link to `nowhere`, which does not exist",
    }
    assert caught.value.message == f"`.loops/odd.yaml` {expected[kind]}"


def recorded_run(project: Path, name: str, seconds: float | None = None, path: str = "") -> RunFolder:
    """A run with a journal."""
    run = RunFolder.create(str(project), name, seconds)
    start = {"event": "run_start", "program": name, "path": path, "ts": "2024-01-15T10:30:00.000Z"}
    Path(run.journal).write_bytes(journal.seal(start))
    return run


def test_a_run_folder_is_named_after_loop_and_time(project: Path) -> None:
    """`<name>-YYYYMMDD-HHMMSS-xxxx`, and its files are named after the loop."""
    runs.make_running_folder(str(project))
    run = RunFolder.create(str(project), "lint-fix", 1705314600)
    assert run.id.startswith("lint-fix-20240115-103000-")
    assert len(run.id) == len("lint-fix-20240115-103000-") + 4
    assert run.journal.endswith("/lint-fix.events.jsonl")
    assert run.state.endswith("/lint-fix.state.json")


def test_runs_of_the_same_second_have_different_folders(project: Path) -> None:
    """The last four digits distinguish them."""
    runs.make_running_folder(str(project))
    assert len({RunFolder.create(str(project), "x", 0).id for _ in range(50)}) == 50


def test_a_finished_run_moves_to_the_history(project: Path) -> None:
    runs.make_running_folder(str(project))
    run = RunFolder.create(str(project), "x")
    run.finish()
    assert list(runs.runs_in(str(project))) == []
    assert [other.id for other in runs.runs_in(str(project), HISTORY)] == [run.id]
    assert os.path.isdir(run.path)


def test_the_last_unfinished_run_of_a_loop_is_found(project: Path) -> None:
    """The name of a loop selects its latest unfinished run; an id selects that run."""
    runs.make_running_folder(str(project))
    first = recorded_run(project, "lint-fix", 1000)
    last = recorded_run(project, "lint-fix", 2000)
    recorded_run(project, "lint-fix-more", 3000)
    assert find_unfinished("lint-fix", str(project)).id == last.id
    assert find_unfinished(first.id, str(project)).id == first.id


def test_a_run_is_found_by_the_file_it_was_started_from(project: Path) -> None:
    """If file and loop have different names, both find the run."""
    runs.make_running_folder(str(project))
    run = recorded_run(project, "inner", path=".loops/outer.yaml")
    for target in ("inner", "outer", ".loops/outer.yaml"):
        assert find_unfinished(target, str(project)).id == run.id


def test_an_ended_run_cannot_be_resumed(project: Path) -> None:
    """The error has the id of the run."""
    runs.make_running_folder(str(project))
    run = RunFolder.create(str(project), "lint-fix")
    run.finish()
    with pytest.raises(UserError) as caught:
        find_unfinished("lint-fix", str(project))
    assert caught.value.id == "run-ended"
    assert run.id in caught.value.message


def test_an_unknown_run_gets_a_suggestion(project: Path) -> None:
    """The suggestion is the nearest unfinished run."""
    runs.make_running_folder(str(project))
    recorded_run(project, "lint-fix")
    with pytest.raises(UserError) as caught:
        find_unfinished("lint-fxi", str(project))
    assert caught.value.help == "did you mean `lint-fix`?"


def test_a_folder_that_cannot_be_created_is_an_error(project: Path) -> None:
    (project / ".loops" / ".running").write_text("a file")
    with pytest.raises(UserError) as caught:
        runs.make_running_folder(str(project))
    assert caught.value.id == "cannot-write"
    assert caught.value.exit_code == 1


def test_git_ignores_the_folders_of_runs(project: Path) -> None:
    """Each has a `.gitignore` for all its files."""
    runs.make_running_folder(str(project))
    RunFolder.create(str(project), "x").finish()
    for folder in (RUNNING, HISTORY):
        assert (project / folder / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("words", [["status"], ["list", "--running"], ["stop", "--all"]], ids=" ".join)
def test_an_unreadable_folder_of_runs_is_an_error(
    project: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not reported as a folder without runs."""
    monkeypatch.chdir(project)
    (project / ".loops" / ".running").write_text("")
    done = run_llc(*words)
    assert done.returncode == 1
    assert "error[cannot-read]: cannot read .loops/.running: not a directory" in done.stderr
