"""Resuming an interrupted run never repeats a finished effect."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_process import run_llc
from keepers import kill_with_keeper
from waiting import is_running, wait_for

from llc.frontend.compile import compile_text
from llc.runtime.host.errors import UserError
from llc.runtime.inspection import status
from llc.runtime.journal import journal, reader
from llc.runtime.journal.events import Event
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.launch import resume as launch_resume
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options
from llc.runtime.runs import runs
from llc.runtime.runs.lookup import find_unfinished
from llc.vm.code.emit import emit

# Each action writes a line to `log`, which shows repeated actions.
LOOP = """
name: job
initial: measure
context: {goal: 2}
states:
  measure:
    action: "echo measure >> log; wc -l < log"
    capture: lines
    evaluate: {type: output_numeric, operator: ge, target: 5}
    on_success: report
    on_failure: work
  work:
    action: "echo work >> log; echo did ${captured.lines.output}"
    next: measure
  report:
    action: "echo 'report ${captured.lines.output} ${prev.output}' >> log"
    next: done
  done:
    terminal: true
"""
WORLD = """
- {state: measure, results: [{output: '1'}, {output: '9'}]}
- {state: work}
- {state: report}
"""
LOG = ["measure", "work", "measure", "work", "measure", "report 5 5"]


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    return project_dir


def run(target: str = "job", **values: Any) -> Any:
    return launch_run.outcome(options.Values(target, quiet=True, **values))


def resume(
    target: str = "job", capture: pytest.CaptureFixture[str] | None = None, **values: Any
) -> dict[str, Any]:
    """The output of `llc resume --json`, with its exit code and standard error."""
    done = run_llc("resume", target, "--json", *(f"--{name}={value}" for name, value in values.items()))
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return {**answer, "exit": done.returncode, "shown": done.stderr}


def in_process_resume(target: str = "job") -> int:
    return launch_resume.resume(options.Values(target, quiet=True))


def finished_folder(project: Path) -> Path:
    """The folder of the only run in the history."""
    (folder,) = project.glob(".loops/.history/job-*")
    return folder


def events(path: Path) -> list[dict[str, Any]]:
    return [event.wire for event in reader.read(str(path)) if isinstance(event, Event)]


def log(project: Path) -> list[str]:
    return (project / "log").read_text().splitlines()


def expected_log(event_list: list[dict[str, Any]]) -> list[str]:
    """The lines of `log` that belong to these events: each finished action wrote one."""
    return [
        event["action"].split(">>")[0].removeprefix("echo").strip(" '")
        for event in event_list
        if event["event"] == "action_start"
        and any(e["event"] == "action_complete" and e["seq"] == event["seq"] for e in event_list)
    ]


def verdicts_and_routes(path: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in event.items() if name != "ts"}
        for event in events(path)
        if event["event"] in ("evaluate", "route")
    ]


def test_a_run_interrupted_after_any_event_ends_as_if_uninterrupted(project: Path) -> None:
    """For every prefix of a journal, the resumed run has the same actions, verdicts and routes."""
    outcome = run()
    assert (outcome.status, outcome.iterations) == ("success", 3)
    folder = finished_folder(project)
    lines = (folder / "job.events.jsonl").read_bytes().splitlines(keepends=True)
    expected = verdicts_and_routes(folder / "job.events.jsonl")
    (folder / "active").unlink()  # it has the length of the complete journal
    complete = shutil.move(folder, project / "whole")
    target = project / ".loops" / ".running" / folder.name
    for count in range(1, len(lines)):
        shutil.copytree(complete, target)
        (target / "job.events.jsonl").write_bytes(b"".join(lines[:count]))
        before = expected_log(events(target / "job.events.jsonl"))
        (project / "log").write_text("".join(f"{line}\n" for line in before))
        assert in_process_resume(folder.name) == 0, f"cut after event {count}"
        assert log(project) == LOG, f"cut after event {count}"
        assert verdicts_and_routes(folder / "job.events.jsonl") == expected, f"cut after event {count}"
        shutil.rmtree(folder)


def truncate_run(project: Path, keep: Callable[[dict[str, Any]], bool], extra: bytes = b"") -> Path:
    """Run the loop, then restore the state just before the first event that `keep` rejects."""
    run()
    folder = finished_folder(project)
    path = folder / "job.events.jsonl"
    offset = 0
    for line in path.read_bytes().splitlines(keepends=True):
        event = json.loads(line)
        if not keep(event):
            break
        offset += len(line)
    target = project / ".loops" / ".running" / folder.name
    (target.parent).mkdir(exist_ok=True)
    (folder / "active").unlink()  # it has the length of the complete journal
    shutil.move(folder, target)
    journal_name = path.name
    (target / journal_name).write_bytes((target / journal_name).read_bytes()[:offset] + extra)
    before = expected_log(events(target / journal_name))
    (project / "log").write_text("".join(f"{line}\n" for line in before))
    return target


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_run_with_a_damaged_journal_succeeds_or_is_refused(project: Path, data: st.DataObject) -> None:
    """Bytes changed, removed or inserted anywhere: the resumed run succeeds or is clearly refused."""
    complete = project / "whole"
    if not complete.exists():
        (project / "world.yaml").write_text(WORLD)
        run(script="world.yaml")
        shutil.move(finished_folder(project), complete)
    content = bytearray((complete / "job.events.jsonl").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        size = data.draw(st.integers(0, 200))
        content[place : place + size] = data.draw(
            st.binary(max_size=20) | st.just(b"\n") | st.just(b"\x00" * size)
        )
    target = project / ".loops" / ".running" / "job-20240101-000000-0000"
    shutil.copytree(complete, target)
    (target / "job.events.jsonl").write_bytes(content)
    assert in_process_resume(target.name) in (0, 1)
    for folder in (target, project / ".loops" / ".history" / target.name):
        shutil.rmtree(folder, ignore_errors=True)


def before_end_of(seq: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: not (event["event"] == "action_complete" and event["seq"] == seq)


def test_a_torn_last_line_is_reported_and_set_aside(project: Path) -> None:
    """A partly written line does not prevent resuming."""
    target = truncate_run(project, before_end_of(3), extra=b'{"event":"action_comp')
    answer = resume()
    assert answer["status"] == "success"
    assert "is incomplete; it is dropped" in answer["shown"]
    assert log(project) == LOG
    archived = project / ".loops" / ".history" / target.name
    assert (archived / "job.events.jsonl.damaged-1").read_bytes() == b'{"event":"action_comp'
    assert all(isinstance(event, Event) for event in reader.read(str(archived / "job.events.jsonl")))


def test_damage_to_a_note_loses_no_result(project: Path) -> None:
    """If the damaged line has no result, all later results are used."""
    target = truncate_run(project, before_end_of(4))
    path = target / "job.events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if b'"event":"evaluate"' in line)
    lines[place] = lines[place].replace(b"verdict", b"VERDICT")
    path.write_bytes(b"".join(lines))
    answer = resume()
    assert answer["status"] == "success"
    assert f"line {place + 1} is damaged; no result of an effect is lost" in answer["shown"]
    assert log(project) == LOG


def test_damage_to_a_result_reports_the_lost_results(project: Path) -> None:
    """The run continues before the damaged result and lists later results that cannot be used."""
    target = truncate_run(project, before_end_of(5))
    path = target / "job.events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(
        i for i, line in enumerate(lines) if b'"event":"action_complete"' in line and b'"seq":2' in line
    )
    lines[place] = b"#" * (len(lines[place]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))
    answer = resume()
    assert f"line {place + 1} is damaged" in answer["shown"]
    assert "the results of effects 3 to 4 depend on effect 2" in answer["shown"]
    assert answer["status"] == "success"
    archived = project / ".loops" / ".history" / target.name
    assert b'"seq":4' in (archived / "job.events.jsonl.damaged-1").read_bytes()


def test_a_lost_output_file_is_reported(project: Path) -> None:
    """The action of a lost large output runs again."""
    big = LOOP.replace("wc -l < log", "wc -l < log; head -c 40000 /dev/zero | tr '\\\\0' ' '")
    (project / ".loops" / "job.yaml").write_text(big)
    target = truncate_run(project, before_end_of(3))
    for blob in (target / "outputs").iterdir():
        blob.unlink()
    answer = resume()
    assert "cannot be read" in answer["shown"]
    assert "the result of effect 1 is lost" in answer["shown"]
    assert answer["status"] == "success"


def test_large_outputs_are_read_back(project: Path) -> None:
    """A captured output in its own file is available after resuming."""
    big = LOOP.replace("wc -l < log", "wc -l < log; head -c 40000 /dev/zero | tr '\\\\0' ' '")
    (project / ".loops" / "job.yaml").write_text(big)
    truncate_run(project, before_end_of(3))
    assert resume()["status"] == "success"
    words = [line.split()[0] for line in log(project) if line[:1].isalpha()]
    assert words == ["measure", "work", "measure", "work", "measure", "report"]


@pytest.mark.parametrize("content", [b"", b"{", b"\x00" * 5000, b'{"current_state": 5}'])
def test_a_damaged_state_file_does_not_prevent_resuming(project: Path, content: bytes) -> None:
    """Only the journal is authoritative; the content of the state file does not matter."""
    target = truncate_run(project, before_end_of(3))
    (target / "job.state.json").write_bytes(content)
    assert resume()["status"] == "success"
    assert log(project) == LOG


@pytest.mark.parametrize(
    ("loss", "message"),
    [("gone", "is missing"), ("emptied", "is empty"), ("headless", "has lost its beginning")],
)
def test_a_journal_without_its_beginning_is_refused(project: Path, loss: str, message: str) -> None:
    """Without a record of earlier actions nothing is performed, and the error says so."""
    target = truncate_run(project, before_end_of(3))
    before = log(project)
    path = target / "job.events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if loss == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if loss == "emptied" else b"".join(lines[1:]))
    answer = resume(target.name)
    assert answer["exit"] == 1
    assert answer["error"]["kind"] == "no-record"
    assert message in answer["error"]["message"]
    assert log(project) == before


@pytest.mark.parametrize("policy", ["ask", "fail"])
def test_damage_before_finished_effects_does_not_undo_their_policy(project: Path, policy: str) -> None:
    """For effects recorded after the damage, `on_unknown` of their state decides at every resume."""
    text = LOOP.replace("    next: measure\n", f"    on_unknown: {policy}\n    next: measure\n")
    (project / ".loops" / "job.yaml").write_text(text)
    target = truncate_run(project, before_end_of(3))
    path = target / "job.events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if b'"event":"action_complete"' in line)
    lines[place] = b"#" * (len(lines[place]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))
    (project / "log").write_text("")
    if policy == "fail":
        assert resume(target.name)["status"] == "error"
        assert log(project) == ["measure"]  # the second effect is not performed, and nothing routes its error
        return
    for _ in range(2):
        answer = resume(target.name)
        assert (answer["exit"], answer["error"]["kind"]) == (1, "unknown-outcome")
        assert log(project) == ["measure"]
    assert resume(target.name, **{"on-unknown": "rerun"})["status"] == "success"


def test_a_torn_lock_file_loses_nothing(project: Path) -> None:
    """A scripted run with an empty lock file stays scripted and is found by its name twice."""
    (project / "world.yaml").write_text(WORLD)
    run(script="world.yaml")
    folder = finished_folder(project)
    lines = (folder / "job.events.jsonl").read_bytes().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if b'"event":"action_start"' in line)
    target = project / ".loops" / ".running" / folder.name
    (folder / "active").unlink()
    shutil.move(folder, target)
    (target / "job.events.jsonl").write_bytes(b"".join(lines[:place]))
    (target / "lock").write_bytes(b"")
    assert resume("job")["status"] == "success"
    assert not (project / "log").exists()


def test_a_real_run_with_a_torn_lock_file_is_found_by_its_path(project: Path) -> None:
    """The journal contains the name and the source path of the run."""
    target = truncate_run(project, before_end_of(3))
    (target / "lock").write_bytes(b"")
    assert find_unfinished(".loops/job.yaml", str(project)).about()["program"] == "job"
    assert resume("job")["status"] == "success"


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_interrupted_action_is_ended_before_it_runs_again(project: Path, is_recorded: bool) -> None:
    """After kill -9 of llc and its keeper, the surviving action is ended, then run again once.

    Also where llc was killed before it could record the action's process.
    """
    (project / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: a\nstates:\n"
        "  a: {action: 'echo $$ >> pids; test -e second || { touch second; sleep 600; }', next: done}\n"
        "  done: {terminal: true}\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    wait_for(lambda: (project / "second").exists() and (project / "pids").read_text().endswith("\n"))
    kill_with_keeper(process)
    first = int((project / "pids").read_text())
    assert is_running(first)
    (path,) = project.glob(".loops/.running/*/job.events.jsonl")
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if b'"event":"process"' not in line]
    if not is_recorded:
        path.write_bytes(b"".join(lines))
    answer = resume()
    assert answer["status"] == "success"
    assert f"(pid {first}); it was ended" in answer["shown"]
    assert not is_running(first)
    assert len((project / "pids").read_text().splitlines()) == 2


UNKNOWN = LOOP.replace(
    "    next: measure\n", "    next: measure\n    on_unknown: POLICY\n    on_error: report\n"
)


@pytest.mark.parametrize("policy", ["rerun", "fail"])
def test_on_unknown_is_the_policy_for_an_action_in_doubt(project: Path, policy: str) -> None:
    """rerun: the action runs again. fail: it is an error, which takes the error route of the state."""
    text = LOOP.replace("    next: measure\n", f"    on_unknown: {policy}\n    next: measure\n")
    text = text.replace("initial: measure\n", "initial: measure\non_error: report\n")
    (project / ".loops" / "job.yaml").write_text(text)
    truncate_run(project, before_end_of(2))
    answer = resume()
    assert answer["status"] == "success"
    expected = LOG if policy == "rerun" else ["measure", "report 1 "]
    assert log(project)[: len(expected) - 1] == expected[:-1]
    assert ("work" in log(project)) == (policy == "rerun")


def test_an_effect_that_was_not_started_is_not_in_doubt(project: Path) -> None:
    """The policy does not apply if the start of the action is not on disk."""
    text = LOOP.replace("    next: measure\n", "    on_unknown: fail\n    next: measure\n")
    (project / ".loops" / "job.yaml").write_text(text)
    truncate_run(project, lambda event: not (event["event"] == "action_start" and event["seq"] == 2))
    assert resume()["status"] == "success"
    assert log(project) == LOG


def test_on_unknown_ask_without_a_terminal_says_what_to_do(project: Path) -> None:
    """Without a terminal the command refuses, changes nothing and names the option."""
    text = LOOP.replace("    next: measure\n", "    on_unknown: ask\n    next: measure\n")
    (project / ".loops" / "job.yaml").write_text(text)
    truncate_run(project, before_end_of(2))
    answer = resume()
    assert answer["exit"] == 1
    assert answer["error"]["kind"] == "unknown-outcome"
    assert "--on-unknown" in answer["error"]["help"]
    assert resume(**{"on-unknown": "rerun"})["status"] == "success"
    assert log(project) == LOG


def test_an_active_run_is_not_resumed(project: Path) -> None:
    """The refusal names its pid; the active run is not affected."""
    (project / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: a\nstates:\n"
        "  a: {action: 'touch here; while [ ! -e go ]; do sleep 0.05; done', next: done}\n"
        "  done: {terminal: true}\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    wait_for(lambda: (project / "here").exists())
    answer = resume()
    (project / "go").touch()
    assert process.wait() == 0
    assert answer["error"]["kind"] == "run-is-live"
    assert str(process.pid) in answer["error"]["message"]
    assert answer["exit"] == 1


def test_a_resumed_run_uses_its_recorded_program(project: Path) -> None:
    """Later edits of the loop do not change an interrupted run, which has its own copy."""
    truncate_run(project, before_end_of(3))
    (project / ".loops" / "job.yaml").write_text("name: other\ninitial: x\nstates: {x: {terminal: true}}\n")
    assert resume()["status"] == "success"
    assert log(project) == LOG


def test_another_program_under_the_same_journal_is_refused(project: Path) -> None:
    """A program that does not reproduce the recorded events is refused; the journal is unchanged."""
    target = truncate_run(project, before_end_of(3))
    other = emit(compile_text(LOOP.replace("echo measure", "echo other"), ".loops/job.yaml").program)
    (target / "program.llb").write_bytes(other.to_bytes())
    path = target / "job.events.jsonl"
    changed = events(path)
    changed[0]["program_hash"] = other.program_hash
    path.write_bytes(b"".join(map(journal.seal, changed)))
    before = path.read_bytes()
    answer = resume()
    assert answer["error"]["kind"] == "not-repeatable"
    assert "echo other" in answer["error"]["message"]
    assert (target / "job.events.jsonl").read_bytes() == before


def test_a_finished_run_moves_to_the_history(project: Path) -> None:
    """A run killed between its last event and its clean-up is archived and its outcome shown."""
    outcome = run()
    folder = finished_folder(project)
    for name in ("active", "checkpoint-1"):
        (folder / name).touch()
    shutil.move(folder, project / ".loops" / ".running" / folder.name)
    (row,) = status.unfinished()
    assert row["status"] == "ended"
    answer = resume()
    assert (answer["status"], answer["exit"]) == ("success", 0)
    assert answer["iterations"] == outcome.iterations == 3
    assert answer["final_state"] == "done"
    assert finished_folder(project).name == folder.name
    assert "checkpoint-1" not in os.listdir(finished_folder(project))
    assert log(project) == LOG


def test_resuming_a_finished_flow_returns_its_exit_code(project: Path) -> None:
    """The exit code of the flow is in the journal."""
    (project / ".loops" / "leave.sexp").write_text("(exit 5)\n")
    assert run("leave").exit_code == 5
    (folder,) = project.glob(".loops/.history/leave-*")
    shutil.move(folder, project / ".loops" / ".running" / folder.name)
    assert resume("leave")["exit"] == 5


def test_an_interrupted_start_is_not_a_run(project: Path) -> None:
    """A folder without a journal is not listed, hides no older run and is removed by the next start."""
    target = truncate_run(project, before_end_of(3))
    empty_folder = project / ".loops" / ".running" / "job-20990101-000000-0000"
    empty_folder.mkdir()
    (empty_folder / "lock").write_bytes(b"{}")
    assert [row["run"] for row in status.unfinished()] == [target.name]
    assert resume("job")["status"] == "success"
    assert empty_folder.exists()
    run()
    assert not empty_folder.exists()


def test_a_run_with_an_unreadable_journal_is_kept(project: Path) -> None:
    """A read error (too few file handles, a disk error) is no reason to remove the run."""
    target = truncate_run(project, before_end_of(3))
    (journal,) = target.glob("*.events.jsonl")
    content = journal.read_bytes()
    for state_file in target.glob("*.state.json"):
        state_file.unlink()
    journal.unlink()
    os.mkfifo(journal)
    assert run().status == "success"
    assert target.exists()
    journal.unlink()
    journal.write_bytes(content)
    assert resume("job")["status"] == "success"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["lock", "program.llb", "job.events.jsonl", "active", "outputs"])
def test_a_pipe_or_folder_in_place_of_a_file_is_named_or_not_needed(
    project: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Resuming never blocks on a file of the run; the error names a required file and the fix."""
    place = truncate_run(project, before_end_of(3)) / name
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    make(place)
    for cached in (project / ".loops" / ".cache").iterdir():
        cached.unlink()
        make(cached)
    done = subprocess.run(
        [sys.executable, "-m", "llc", "resume", "job"], capture_output=True, text=True, timeout=60
    )
    if name == "lock":
        assert f"{name}: it is not a regular file; remove or rename it" in done.stderr
    elif name == "job.events.jsonl":
        assert "its journal is not a regular file" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_time_of_a_start_leaves_a_resumable_run(project: Path, number: int) -> None:
    """Once its folder exists, a stopped run exits with 130 and can be resumed."""
    (project / ".loops" / "slow.yaml").write_text(
        "name: slow\ninitial: a\nstates:\n  a: {action: 'sleep 600', next: z}\n  z: {terminal: true}\n"
    )
    folder = project / ".loops" / ".running"
    for pause in (0, 0.002, 0.005, 0.01):
        process = subprocess.Popen([sys.executable, "-m", "llc", "run", "slow", "-q"], stderr=subprocess.PIPE)
        wait_for(lambda: any(folder.glob("slow-*")))
        time.sleep(pause)
        process.send_signal(number)
        process.communicate()
        assert process.returncode == 130
        (run_path,) = folder.glob("slow-*")
        assert not RunFolder("", str(run_path)).is_unrecorded()
        shutil.rmtree(run_path)


def test_the_latest_run_is_the_last_started_one(project: Path) -> None:
    """Runs started within one second are ordered by their start."""
    folder = runs.make_running_folder(str(project))
    made = [RunFolder.create(str(project), "job", 1000 + i / 1000).id for i in range(50)]
    assert [run.id for run in runs.runs_in(str(project))] == made[::-1]
    assert all(os.path.isdir(os.path.join(folder, name)) for name in made)


def test_an_ignored_interrupt_stays_ignored(project: Path) -> None:
    """A run in the background of a script ignores the Ctrl-C that is meant for the script."""
    (project / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: a\nstates:\n"
        "  a: {action: 'touch here; while [ ! -e go ]; do sleep 0.05; done', next: done}\n"
        "  done: {terminal: true}\n"
    )
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'llc', 'run', 'job', '-q'])"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: (project / "here").exists())
    process.send_signal(signal.SIGINT)
    (project / "go").touch()
    assert process.wait() == 0


def test_a_run_stopped_by_a_full_disk_reports_its_position(project: Path) -> None:
    """The JSON answer contains state and iterations although the journal could not be written."""
    (project / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: a\nstates:\n"
        "  a: {action: 'head -c 2000 /dev/zero | tr \"\\\\0\" x', on_success: a, on_failure: done}\n"
        "  done: {terminal: true}\nmax_iterations: 1000\n"
    )
    command = f"ulimit -f 32; trap '' XFSZ; exec {sys.executable} -m llc run job --json -q"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["status"], answer["error"]["kind"]) == (1, "error", "journal")
    assert answer["final_state"] == "a"
    assert answer["iterations"] > 1


def test_time_between_interruption_and_resume_does_not_count(project: Path) -> None:
    """The timeout of a loop limits its active time."""
    target = truncate_run(project, before_end_of(2))
    old = (target / "job.events.jsonl").read_bytes().splitlines()
    lines = []
    for line in old:
        event = journal.unseal(line)
        assert event is not None
        event["ts"] = "2001-" + event["ts"][5:]
        lines.append(journal.seal(event))
    (target / "job.events.jsonl").write_bytes(b"".join(lines))
    assert resume()["duration_ms"] < 60_000


def test_resuming_twice_works(project: Path) -> None:
    """A run that was interrupted, resumed and interrupted again can be resumed again."""
    truncate_run(project, before_end_of(2))
    (project / ".loops" / ".running" / "x").mkdir()
    first = resume()
    archived = project / ".loops" / ".history" / first["run"]
    lines = (archived / "job.events.jsonl").read_bytes().splitlines(keepends=True)
    place = max(i for i, line in enumerate(lines) if b'"event":"action_start"' in line and b'"seq":4' in line)
    target = project / ".loops" / ".running" / first["run"]
    (archived / "active").unlink()  # it has the length of the complete journal
    shutil.move(archived, target)
    (target / "job.events.jsonl").write_bytes(b"".join(lines[:place]))
    (project / "log").write_text("".join(f"{line}\n" for line in LOG[:3]))
    assert resume()["status"] == "success"
    assert log(project) == LOG


def test_a_scripted_run_stays_scripted_when_resumed(project: Path) -> None:
    """A resumed scripted run performs no real effects."""
    (project / "world.yaml").write_text(WORLD)
    outcome = run(script="world.yaml")
    assert outcome.status == "success"
    folder = finished_folder(project)
    lines = (folder / "job.events.jsonl").read_bytes().splitlines(keepends=True)
    place = next(
        i for i, line in enumerate(lines) if b'"event":"action_start"' in line and b'"seq":3' in line
    )
    target = project / ".loops" / ".running" / folder.name
    (folder / "active").unlink()
    shutil.move(folder, target)
    (target / "job.events.jsonl").write_bytes(b"".join(lines[:place]))
    answer = resume()
    assert (answer["status"], answer["iterations"]) == ("success", 2)
    assert not (project / "log").exists()


def test_an_unfinished_run_does_not_block_a_new_run(project: Path) -> None:
    """The new run does not mention it unless asked."""
    truncate_run(project, before_end_of(2))
    assert run().status == "success"
    assert len(list(runs.runs_in(str(project)))) == 1


def test_resume_in_process_raises_nothing(project: Path) -> None:
    """An unknown run is an exit code, not an exception."""
    assert in_process_resume("nothing") == 2
    with pytest.raises(UserError):
        find_unfinished("nothing", os.getcwd())
