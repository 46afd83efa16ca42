"""Forks: a new run from a point of another run shares the events before that point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.host.errors import UserError
from llc.runtime.journal import journal as journals
from llc.runtime.launch import resume as launch_resume
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options
from llc.runtime.recordings import find, fork

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: work
initial: count
context: {goal: 4}
states:
  count:
    action: "echo count >> log; wc -l < log"
    evaluate: {type: output_numeric, operator: ge, target: 5}
    on_success: report
    on_failure: act
  act:
    action: "echo act >> log; seq 9000"
    capture: big
    next: count
  report:
    action: "echo report ${context.goal} >> log; echo ${captured.big.output} | tail -1"
    next: done
  done: {terminal: true}
max_iterations: 9
"""
WORLD = """
- {state: count, results: [{output: '1'}, {output: '3'}, {output: '9'}]}
- {state: act, output: did}
- {state: report}
"""


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "work.yaml").write_text(LOOP)
    (project_dir / "world.yaml").write_text(WORLD)
    return project_dir


def run_folder(project: Path, run: str) -> Path:
    (folder,) = project.glob(f".loops/.*/{run}")
    return folder


def events(path: Path) -> list[dict[str, Any]]:
    (journal,) = path.glob("*.events.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()]


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_fork_performs_only_effects_after_its_point(llc: Llc, project: Path) -> None:
    """Earlier events are in the fork's own journal; the parent is unchanged."""
    parent = json.loads(llc("run", "work", "--json").stdout)
    log = (project / "log").read_text().splitlines()
    assert log == ["count", "act", "count", "act", "count", "report 4"]
    before = files(run_folder(project, parent["run"]))
    done = llc("fork", "work", "--at", "6", "--json")
    child = json.loads(done.stdout)
    assert f"is forked from {parent['run']} before effect 6 in `report`, iteration 3" in done.stderr
    assert (child["status"], child["final_state"], child["iterations"]) == ("success", "done", 3)
    assert child["run"] != parent["run"]
    assert (project / "log").read_text().splitlines() == [*log, "report 4"]
    assert files(run_folder(project, parent["run"])) == before
    recorded = events(run_folder(project, child["run"]))
    assert recorded[0]["forked_from"] == {
        "run": parent["run"],
        "at": 6,
        "ts": recorded[0]["forked_from"]["ts"],
    }
    assert [event["seq"] for event in recorded if event["event"] == "action_complete"] == [1, 2, 3, 4, 5, 6]
    assert llc("replay", child["run"]).returncode == 0


def test_history_counts_shared_events_once(llc: Llc, project: Path) -> None:
    """A fork counts its own states and verdicts, without the verdict of the last shared result."""
    parent = json.loads(llc("run", "work", "--json").stdout)["run"]
    llc("fork", parent, "--at", "6")
    llc("fork", parent, "--at", "5")
    report = json.loads(llc("history", "work", "--json").stdout)
    assert [sum(row["verdicts"].values()) for row in report["runs"]] == [1, 0, 3]
    assert report["states"]["act"]["entered"] == 2
    assert json.loads(llc("history", f".loops/.history/{parent}", "--json").stdout)["total"] == 1


def test_a_scripted_run_is_not_the_last_run(llc: Llc, project: Path) -> None:
    """A loop's name selects a scripted run only if there is no other; history does not count it."""
    real = json.loads(llc("run", "work", "--json").stdout)["run"]
    scripted = json.loads(llc("run", "work", "--script", "world.yaml", "--json").stdout)["run"]
    assert find.find_run("work").name == real
    assert find.find_run(scripted).name == scripted
    report = json.loads(llc("history", "work", "--json").stdout)
    assert [row["scripted"] for row in report["runs"]] == [True, False]
    assert report["statuses"] == {"success": 1}
    assert "1 scripted not counted" in llc("history", "work").stdout


def test_removed_parent_leaves_a_complete_fork(llc: Llc, project: Path) -> None:
    """Shared long outputs stay when either run is removed."""
    parent = json.loads(llc("run", "work", "--json").stdout)
    child = json.loads(llc("fork", "work", "--at", "6", "--json").stdout)
    outputs = run_folder(project, child["run"]) / "outputs"
    assert 43893 in [file.stat().st_size for file in outputs.iterdir()]
    shutil.rmtree(run_folder(project, parent["run"]))
    assert llc("replay", child["run"]).returncode == 0
    assert json.loads(llc("fork", child["run"], "--at", "4", "--json").stdout)["status"] == "success"


def run_fork(**arguments: Any) -> dict[str, Any]:
    """Fork a run, drive the fork with its scripted world in this process, and return its end event."""
    changes = arguments.pop("changes", None)
    arguments = {"at": None, "state": None, "iteration": None, **arguments}
    created = fork.fork(
        arguments.pop("target", "work"), arguments["at"], arguments["state"], arguments["iteration"], changes
    )
    code = launch_resume.resume(options.Values(created.run.id, quiet=True))
    assert code == 0
    end = find.find_run(created.run.id).recording().end
    assert end is not None
    return end


@pytest.mark.parametrize("at", range(1, 7))
def test_a_fork_at_any_effect_ends_like_its_parent(project: Path, at: int) -> None:
    """In a world with the same results, the outcome and counters are the same."""
    values = options.Values("work", quiet=True, script="world.yaml")
    launch_run.outcome(values)
    end = find.find_run("work").recording().end
    fork_end = run_fork(at=at)
    assert end is not None
    for name in ("status", "final_state", "iterations", "steps", "duration_ms"):
        assert fork_end[name] == end[name], name


def test_the_verdict_of_the_last_shared_result_is_in_its_own_state(project: Path, llc: Llc) -> None:
    """It is shown and journaled in that state; the fork resumes before that verdict."""
    first = json.loads(llc("run", "work", "--json").stdout)["run"]
    done = llc("fork", first, "--at", "2", "--json")
    child = json.loads(done.stdout)["run"]
    recorded = [
        event for event in events(run_folder(project, child)) if event["event"] in ("run_resume", "evaluate")
    ]
    assert [event["state"] for event in recorded[:2]] == ["count", "count"]
    assert "resumes in count" in llc("logs", child).stdout


def test_a_fork_where_a_state_is_entered(project: Path) -> None:
    """By first entry or by iteration; an unknown state is reported with the states that were entered."""
    launch_run.outcome(options.Values("work", quiet=True, script="world.yaml"))
    files = find.find_run("work")
    recording, image = files.recording(), files.load_image()
    assert fork.find_point(recording, image, None, "act", None).seq == 2
    point = fork.find_point(recording, image, None, "act", 2)
    assert (point.seq, point.answers, point.state, point.iteration) == (4, 3, "act", 2)
    for point_options, message in (
        ((None, "atc", None), "the run entered no state `atc`"),
        ((None, "act", 7), "`act` was not entered in iteration 7"),
        ((None, "done", None), "no effect follows the entry of `done`"),
        ((9, None, None), "there is no effect 9"),
        ((0, None, None), "there is no effect 0"),
    ):
        with pytest.raises(UserError) as caught:
            fork.find_point(recording, image, *point_options)
        assert message in caught.value.message


def test_changed_program_needs_the_same_events_before_the_fork(llc: Llc, project: Path) -> None:
    """A changed context or program applies after the point; it must reach the point with the same events."""
    llc("run", "work")
    done = llc("fork", "work", "--at", "6", "--context", "goal=7")
    assert done.returncode == 0, done.stderr
    assert (project / "log").read_text().splitlines()[-1] == "report 7"
    (project / "edited.yaml").write_text(LOOP.replace("echo report", "echo edited"))
    assert llc("fork", "work", "--at", "6", "--with", "edited.yaml").returncode == 0
    assert (project / "log").read_text().splitlines()[-1] == "edited 7"
    (project / "other.yaml").write_text(LOOP.replace("echo act", "echo other"))
    before = {path.name for path in project.glob(".loops/.*/work-*")}
    done = llc("fork", "work", "--at", "6", "--with", "other.yaml")
    assert done.returncode == 1
    assert "error[incompatible-fork]: with these changes the run does not reach this point" in done.stderr
    assert "is now shell `echo other >> log; seq 9000`" in done.stderr
    assert {path.name for path in project.glob(".loops/.*/work-*")} == before


def test_an_interrupted_run_can_be_forked(llc: Llc, project: Path) -> None:
    """The fork continues from its point, the parent from its interruption."""
    llc("run", "work")
    (parent,) = project.glob(".loops/.history/work-*")
    (journal,) = parent.glob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    last_line = next(n for n, line in enumerate(lines) if b'"action_start"' in line and b'"seq":4' in line)
    journal.write_bytes(b"".join(lines[: last_line + 1]))
    (parent / "active").unlink()  # it has the active time of the complete journal
    parent.rename(project / ".loops/.running" / parent.name)
    child = json.loads(llc("fork", "work", "--at", "2", "--json").stdout)
    assert child["status"] == "success"
    assert json.loads(llc("resume", parent.name, "--json").stdout)["status"] == "success"


def test_concurrent_calls_without_a_result_are_performed_again(llc: Llc, project: Path) -> None:
    """A fork between their results shares the results recorded before its point."""
    (project / "side.sexp").write_text(
        "(parallel-map (lambda (n) (begin (sleep (/ n 20)) (sleep 0) n)) (list 3 1 2))\n"
    )
    parent = json.loads(llc("run", "side.sexp", "--json").stdout)
    child = json.loads(llc("fork", parent["run"], "--at", "5", "--json").stdout)
    assert child["value"] == [3, 1, 2]
    recorded = [
        event for event in events(run_folder(project, child["run"])) if event["event"] != "effect_start"
    ]
    resume_index = next(n for n, event in enumerate(recorded) if event["event"] == "run_resume")
    shared = [event["seq"] for event in recorded[:resume_index] if event["event"] == "effect_complete"]
    repeated = [event["seq"] for event in recorded[resume_index:] if event["event"] == "effect_complete"]
    assert shared[0] == 2
    assert sorted(shared + repeated) == [1, 2, 3, 4, 5, 6]
    assert 1 in repeated
    assert 5 in repeated
    assert llc("replay", child["run"]).returncode == 0


def test_a_fork_on_locked_paths_is_refused(llc: Llc, project: Path) -> None:
    """It leaves no run that `resume` of the loop would find."""
    llc("run", "work")
    (project / "holds.yaml").write_text(
        "name: holds\ninitial: a\nstates:\n"
        "  a: {action: 'touch held; while [ ! -e free ]; do sleep 0.05; done', next: b}\n"
        "  b: {terminal: true}\n"
    )
    with subprocess.Popen([sys.executable, "-m", "llc", "run", "holds.yaml", "--quiet"]) as holder:
        deadline = time.monotonic() + 60
        while not os.path.exists("held"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        done = llc("fork", "work", "--at", "6")
        (project / "free").touch()
        assert holder.wait() == 0
    assert done.returncode == 1
    assert "scope-conflict" in done.stderr
    assert "is forked from" not in done.stderr
    assert "unknown-run" in llc("resume", "work").stderr or "run-ended" in llc("resume", "work").stderr
    assert list((project / ".loops" / ".running").glob("work-*")) == []


def test_a_fork_killed_during_creation_leaves_no_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a journal is not a run; the next start removes it."""
    launch_run.outcome(options.Values("work", quiet=True, script="world.yaml"))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fork, "_run_start", killed)
        patch.setattr(
            "llc.runtime.journal.run_folder.RunFolder.discard",
            lambda self: (Path(self.path) / "outputs").mkdir(),
        )
        with pytest.raises(KeyboardInterrupt):
            fork.fork("work", 2, None, None, None)
    assert len(list(project.glob(".loops/.running/work-*/outputs"))) == 1
    launch_run.outcome(options.Values("work", quiet=True, script="world.yaml"))
    assert not list(project.glob(".loops/.running/work-*"))


def test_a_fork_needs_exactly_one_point(llc: Llc, project: Path) -> None:
    """No point or two points are refused."""
    llc("run", "work")
    for words in ([], ["--at", "2", "--state", "act"], ["--at", "2", "--iteration", "1"]):
        done = llc("fork", "work", *words)
        assert done.returncode == 2, words
    assert "llc fork fix-types --at 12" in llc("fork", "--help").stdout


def test_a_fork_shows_its_parent_and_start_time(llc: Llc, project: Path) -> None:
    """In history, status, list and logs; its start time is that of the fork, not of the parent."""
    parent = json.loads(llc("run", "work", "--json").stdout)["run"]
    child = json.loads(llc("fork", parent, "--at", "6", "--json").stdout)["run"]
    rows = {row["run"]: row for row in json.loads(llc("history", "work", "--json").stdout)["runs"]}
    assert rows[parent]["forked_from"] is None
    assert rows[child]["forked_from"] == {"run": parent, "at": 6}
    assert rows[child]["started_at"] > rows[parent]["ended_at"]
    lines = llc("history", "work").stdout.splitlines()
    assert lines[0].endswith("FORKED FROM")
    assert [line.split()[0] for line in lines[1:3]] == [child, parent]
    assert [line.split()[-1] for line in lines[1:3]] == [parent, "-"]
    assert f"fork of    {parent} before effect 6" in llc("status", child).stdout
    shown = json.loads(llc("status", child, "--json").stdout)
    assert (shown["forked_from"], shown["started_at"]) == (
        {"run": parent, "at": 6},
        rows[child]["started_at"],
    )
    assert f"is forked from {parent} before effect 6" in llc("logs", child).stdout
    shutil.move(run_folder(project, child), project / ".loops" / ".running" / child)
    (row,) = json.loads(llc("list", "--running", "--json").stdout)
    assert (row["forked_from"], row["started_at"]) == ({"run": parent, "at": 6}, rows[child]["started_at"])
    assert f"(forked from {parent})" in llc("list", "--running").stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "missing-secret"),
        (("--budget", "horses=1"), "bad-option"),
        (("--tier", "first"), "bad-option"),
    ],
)
def test_a_refused_fork_leaves_nothing(
    llc: Llc, project: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], error: str
) -> None:
    """The reason is reported, and no run of the fork exists."""
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    (project / ".loops" / "work.yaml").write_text(LOOP.replace("seq 9000", "echo $MY_TOKEN"))
    llc("run", "work")
    monkeypatch.delenv("MY_TOKEN")
    done = llc("fork", "work", "--at", "4", "--json", *words)
    assert f"error[{error}]" in done.stderr
    assert "is forked from" not in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["run"], answer["error"]["kind"]) == (None, error)
    assert llc("status").stdout.startswith("no run is unfinished")


def test_a_fork_of_a_long_run_takes_little_memory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared events are read and written one by one; neither history nor journal is held in memory."""
    launch_run.outcome(options.Values("work", quiet=True, script="world.yaml"))
    parts: list[bytes] = []
    write = journals.write_file

    def collect_parts(path: str, data: Any, *args: Any, **kwargs: Any) -> None:
        if path.endswith(".jsonl"):
            data = (parts.append(part) or part for part in data)
        write(path, data, *args, **kwargs)

    monkeypatch.setattr(journals, "write_file", collect_parts)
    monkeypatch.setattr(find.RunFiles, "history", None)
    created = fork.fork("work", 4, None, None, None)
    lines = Path(created.run.journal).read_bytes().splitlines(keepends=True)
    assert parts == lines
    assert len(lines) > 10
