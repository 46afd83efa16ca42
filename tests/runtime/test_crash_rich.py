"""Crashes of a run with long texts in files, checkpoints, concurrent calls and sub-loops.

A sample; `make crash` runs the complete matrix.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres
import pytest
from crash_projects import KILLS, Project, Runner

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
INNER = """
name: inner
initial: make
context: {tag: x}
max_iterations: 5
states:
  make:
    action: 'echo "$LLC_EFFECT_ID make" >> log; seq ${captured.n.output:default=0} 9000; echo ${context.tag}'
    capture: made
    next: count
  count:
    action: |
      echo "$LLC_EFFECT_ID count" >> log
      test "$(echo ${captured.made.output} | tail -n 1)" = ${context.tag} || exit 1
      expr ${captured.n.output:default=0} + 1
    capture: n
    evaluate: {type: output_numeric, operator: ge, target: 2}
    on_success: done
    on_failure: make
  done: {terminal: true}
"""
FLOW = """
(define (one tag)
  (let ((end (run-loop "inner" (context (tag tag)))))
    (sleep 0.002)
    (list (get end "status") (get end "iterations"))))
(let ((ends (parallel-map one '("p" "q" "r"))))
  (list ends (one "s")))
"""
END = [[["success", 2]] * 3, ["success", 2]]
ACTIONS = 16


def make_project(folder: Path) -> Project:
    project = Project(folder, "rich", FLOW, ".loops/job.sexp")
    (folder / ".loops" / "inner.yaml").write_text(INNER)
    return project


@pytest.fixture(scope="module", params=["files", "database"])
def llc(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Both run stores; checkpoints are written as often as possible."""
    job: dict[str, Any] = {"checkpoints": 256}
    if request.param == "database":
        job["database"] = postgres.cluster_database(request.getfixturevalue("postgres_server"))
    with Runner(**job) as runner:
        yield runner


@pytest.fixture(scope="module")
def on_files() -> Iterator[Runner]:
    """The file store, whose files are damaged; for the database see `tests/database/test_hostile_rows.py`."""
    with Runner(checkpoints=256) as runner:
        yield runner


@pytest.fixture(scope="module")
def writes(llc: Runner, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Number of writes of an uninterrupted run."""
    return count_writes(llc, tmp_path_factory.mktemp("alone") / "job")


def count_writes(llc: Runner, folder: Path) -> int:
    project = make_project(folder)
    assert llc(project.folder, "run", "job", "-q", fault="none") == 0
    assert project.end()["value"] == END
    assert sum(project.log().values()) == ACTIONS
    return llc.writes


def check(llc: Runner, project: Project, about: str) -> None:
    """The resumed run ends as expected, and no finished effect is performed again."""
    finished, before = project.finished(), project.log()
    if not project.is_run():
        assert not before, about
        return
    if not project.has_ended():
        code = llc(project.folder, "resume", "job", "-q")
        assert code == 0, (about, project.printed())
    assert project.end()["value"] == END, about
    after = project.log()
    assert all(after[seq] == before[seq] for seq in finished), about
    assert all(count <= 2 for count in after.values()), about


FAULTS = (*KILLS, "enospc", "eio", "sync", "sigint", "sigterm")


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_a_write(llc: Runner, tmp_path: Path, writes: int, fault: str) -> None:
    """To the journal, a checkpoint, a long text or any other file of the run."""
    writes_to_fail = range(1, writes + 1)
    chance = random.Random(FAULTS.index(fault))
    for at in writes_to_fail if IS_LARGE else sorted(chance.sample(writes_to_fail, 2)):
        project = make_project(tmp_path / str(at))
        code = llc(project.folder, "run", "job", "-q", fault=fault, at=at)
        check(llc, project, f"{fault} at {at}, exit {code}")


def test_partial_writes_lose_nothing(llc: Runner, tmp_path: Path) -> None:
    """The system may write less than requested; no data is lost or duplicated."""
    project = make_project(tmp_path / "job")
    assert llc(project.folder, "run", "job", "-q", fault="short") == 0
    assert project.end()["value"] == END
    assert set(project.log().values()) == {1}
    assert llc(project.folder, "replay", "job") == 0


@pytest.fixture(scope="module")
def killed_run(on_files: Runner, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run that was killed after most of its work, with all kinds of files."""
    writes = count_writes(on_files, tmp_path_factory.mktemp("alone") / "job")
    project = make_project(tmp_path_factory.mktemp("cut") / "job")
    on_files(project.folder, "run", "job", "-q", fault="after", at=writes * 4 // 5)
    (folder,) = project.folder.glob(".loops/.running/job-*")
    assert {path.name for path in folder.iterdir()} >= {"checkpoint-1", "checkpoint-2", "outputs"}
    assert len(list((folder / "outputs").iterdir())) >= 2
    return project


def damage(data: bytes, offset: int, how: str) -> bytes:
    if how == "cut off":
        return data[:offset]
    return data[:offset] + bytes([data[offset] ^ (1 << offset % 8)]) + data[offset + 1 :]


@pytest.mark.parametrize("how", ["cut off", "flipped"])
@pytest.mark.parametrize("kind", ["*.events.jsonl", "checkpoint-*", "outputs/*"])
def test_file_damaged_at_a_byte(
    on_files: Runner, killed_run: Project, tmp_path: Path, how: str, kind: str
) -> None:
    """The run ends as expected; results before the damage are not performed again."""
    (folder,) = killed_run.folder.glob(".loops/.running/job-*")
    chance = random.Random(f"{how} {kind}")
    first = len((folder / "job.events.jsonl").read_bytes().splitlines()[0]) + 1
    for number in range(150 if IS_LARGE else 3):
        project = Project(tmp_path / str(number), "rich", copy=killed_run)
        (target,) = project.folder.glob(".loops/.running/job-*/")
        path = chance.choice(sorted(target.glob(kind)))
        complete = path.read_bytes()
        offset = chance.randrange(first if kind.startswith("*") else 0, len(complete))
        finished = project.finished()
        path.write_bytes(damage(complete, offset, how))
        about = f"{how} at {offset} of {path.name}"
        before = project.log()
        undamaged = finished if kind.startswith("checkpoint") else project.finished_before_damage()
        code = on_files(project.folder, "resume", "job", "-q", "--accept-loss")
        assert code == 0, (about, project.printed())
        assert project.end()["value"] == END, about
        after = project.log()
        assert all(after[seq] == before[seq] for seq in undamaged), (about, undamaged)


def test_several_files_damaged_at_once(on_files: Runner, killed_run: Project, tmp_path: Path) -> None:
    """Also if only the beginning of the journal is intact."""
    chance = random.Random(5)
    for number in range(100 if IS_LARGE else 2):
        project = Project(tmp_path / str(number), "rich", copy=killed_run)
        (target,) = project.folder.glob(".loops/.running/job-*/")
        first = len((target / "job.events.jsonl").read_bytes().splitlines()[0]) + 1
        about = str(number)
        for path in sorted(target.rglob("*")):
            if not path.is_file() or path.name == "program.llb" or chance.random() < 0.5:
                continue
            complete = path.read_bytes()
            min_size = first if path.name.endswith(".jsonl") else 0
            if len(complete) > min_size:
                offset = chance.randrange(min_size, len(complete))
                path.write_bytes(damage(complete, offset, chance.choice(["cut off", "flipped"])))
                about += f", {path.name} at {offset}"
        code = on_files(project.folder, "resume", "job", "-q", "--accept-loss")
        assert code == 0, (about, project.printed())
        assert project.end()["value"] == END, about
        shutil.rmtree(project.folder)
