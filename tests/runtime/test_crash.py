"""The crash matrix: a run that is interrupted at any point ends as an uninterrupted run does.

After each fault no finished effect is repeated, effects in doubt follow their policy, and outcome, counters
and notes are those of an uninterrupted run. A larger matrix: `make crash`.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import postgres
import pytest
from crash_projects import JUDGED, KILLS, PROGRAMS, RETRY, Project, Runner

IS_LARGE = bool(os.environ.get("LLC_CRASH"))


@pytest.fixture(scope="module", params=["files", "database"])
def llc(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Both run stores; the tests do not distinguish them."""
    job = {}
    if request.param == "database":
        job["database"] = postgres.cluster_database(request.getfixturevalue("postgres_server"))
    with Runner(**job) as runner:
        yield runner


def check_resumed(llc: Runner, project: Project, name: str, expected: Any, about: str, **env: Any) -> None:
    """Resume the run to its end; no finished effect is repeated and the outcome is as expected."""
    finished, before = project.finished(), project.log()
    if not project.is_run():
        assert not before, about
        return
    if not project.has_ended():
        code = llc(project.folder, "resume", "job", "-q", **env)
        assert code == (3 if name == "maintain" else 0), (about, project.printed())
    assert project.has_ended(), about
    after = project.log()
    for seq in finished:
        assert after[seq] == before[seq], (about, seq)
    assert all(count <= 2 for count in after.values()), about
    assert project.observable_history(name) == expected, about


@pytest.fixture(scope="module")
def expected(llc: Runner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Outcome of each program without a fault."""
    outcomes = {}
    for name in PROGRAMS:
        project = Project(tmp_path_factory.mktemp("alone") / name, name)
        llc(project.folder, "run", project.target, "-q")
        outcomes[name] = project.observable_history(name)
        assert set(project.log().values()) == {1}
    return outcomes


def faulty_runs(
    llc: Runner, folder: Path, name: str, fault: str, step: int = 1
) -> Iterator[tuple[Project, str]]:
    """A project for each write with the fault, until a run ends without it.

    step: only every `step`-th write; the first write differs by program, so that together they cover all.
    """
    if llc.database is not None and not IS_LARGE:
        step *= 3  # a process with a database takes longer to start
    at = 1 + list(PROGRAMS).index(name) % step
    while True:
        project = Project(folder / f"{fault}-{at}", name)
        code = llc(project.folder, "run", project.target, "-q", fault=fault, at=at)
        if code in (0, 3):
            assert at > (5 if fault == "sync" else 8)
            return
        yield project, f"{name}: {fault} at write {at}, exit {code}"
        at += step


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("fault", KILLS)
def test_killed_at_any_write(
    llc: Runner, tmp_path: Path, expected: dict[str, Any], name: str, fault: str
) -> None:
    """kill -9 before, during and after each write to the files of a run."""
    step = 1 if IS_LARGE else 4
    for project, about in faulty_runs(llc, tmp_path, name, fault, step):
        check_resumed(llc, project, name, expected[name], about)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("fault", ["enospc", "eio", "sync", "sigint", "sigterm"])
def test_refused_or_signalled_at_any_write(
    llc: Runner, tmp_path: Path, expected: dict[str, Any], name: str, fault: str
) -> None:
    """A full or broken disk, Ctrl-C and SIGTERM leave a run that can be resumed."""
    step = 1 if IS_LARGE else 8
    for project, about in faulty_runs(llc, tmp_path, name, fault, step):
        check_resumed(llc, project, name, expected[name], about)


def test_killed_again_during_resume(llc: Runner, tmp_path: Path, expected: dict[str, Any]) -> None:
    """A kill at some write, at some write of the resumed run, and once more."""
    chance = random.Random(7)
    for number in range(400 if IS_LARGE else 8):
        name = chance.choice(list(PROGRAMS))
        project = Project(tmp_path / str(number), name)
        about = f"{number}: {name}"
        words = ["run", project.target]
        performed: Counter[str] = Counter()
        finished: set[str] = set()
        for _ in range(3):
            fault, at = chance.choice([*KILLS, "eio", "sigint"]), chance.randint(1, 12)
            about += f", {words[0]} {fault} at {at}"
            llc(project.folder, *words, "-q", fault=fault, at=at)
            log = project.log()
            for seq in finished:
                assert log[seq] == performed[seq], (about, seq)
            finished, performed = project.finished(), log
            if not project.is_run() or project.has_ended():
                break
            words = ["resume", "job"]
        if project.is_run() and not project.has_ended():
            code = llc(project.folder, "resume", "job", "-q")
            assert code == (3 if name == "maintain" else 0), (about, project.printed())
        for seq in finished:
            assert project.log()[seq] == performed[seq], (about, seq)
        if project.is_run():
            assert project.observable_history(name) == expected[name], about


def test_killed_at_any_time(llc: Runner, tmp_path: Path, expected: dict[str, Any]) -> None:
    """kill -9 at a random time."""
    chance = random.Random(11)
    for number in range(200 if IS_LARGE else 8):
        name = chance.choice(list(PROGRAMS))
        project = Project(tmp_path / str(number), name)
        llc(project.folder, "run", project.target, "-q", kill_after=chance.uniform(0.005, 0.12))
        check_resumed(llc, project, name, expected[name], f"{number}: {name}")


FAILING_IN_DOUBT = RETRY.replace("initial: count\n", "initial: count\non_error: report\n").replace(
    "    next: done\n", "    on_unknown: fail\n    next: done\n    on_error: done\n"
)
FAILING_IN_DOUBT = FAILING_IN_DOUBT.replace(
    "    capture: n\n", "    capture: n\n    on_unknown: fail\n"
).replace("exit 1'\n", "exit 1'\n    on_unknown: fail\n")


@pytest.mark.parametrize("fault", KILLS)
def test_on_unknown_fail_performs_no_action_twice(llc: Runner, tmp_path: Path, fault: str) -> None:
    """With `on_unknown: fail` no action is performed twice; its error is routed."""
    PROGRAMS["careful"] = FAILING_IN_DOUBT
    try:
        for project, about in faulty_runs(llc, tmp_path, "careful", fault, 1 if IS_LARGE else 3):
            if project.is_run() and not project.has_ended():
                assert llc(project.folder, "resume", "job", "-q") in (0, 1), about
            assert set(project.log().values()) <= {1}, about
    finally:
        del PROGRAMS["careful"]


def test_killed_around_a_model_call(llc: Runner, tmp_path: Path, answers: ModuleType) -> None:
    """A received verdict is not requested again; an interrupted request is."""

    def judge(handler: Any, request: dict[str, Any]) -> None:
        is_two = "\n2" in json.dumps(request["messages"]).replace("\\n", "\n")
        answers.verdict("success" if is_two else "failure")(handler, request)

    with answers.MessagesServer() as server:
        server.then(judge)
        env = {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "test-key",
            "NO_PROXY": "127.0.0.1",
        }
        uninterrupted = Project(tmp_path / "alone", "judged", JUDGED)
        assert llc(uninterrupted.folder, "run", "job", "-q", env=env) == 0
        request_count = len(server.requests)
        writes = range(1, 20) if IS_LARGE else (5, 6, 7) if llc.database is None else (6,)
        for at in writes:
            server.requests.clear()
            project = Project(tmp_path / str(at), "judged", JUDGED)
            code = llc(project.folder, "run", "job", "-q", env=env, fault="after", at=at)
            if code == 0:
                break
            check_resumed(
                llc, project, "judged", uninterrupted.observable_history("judged"), f"at {at}", env=env
            )
            assert len(server.requests) <= request_count + 1, at
