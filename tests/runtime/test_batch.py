"""Batches: many runs in one process, which crash together, stop separately and do not affect each other."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import terminals
from hypothesis import given
from hypothesis import strategies as st
from keepers import kill_with_keeper
from waiting import wait_for

import llc
from llc.runtime.execution import control_channel
from llc.runtime.host import processes
from llc.runtime.host.coroutines import alone
from llc.runtime.journal import reader
from llc.runtime.journal.events import Event
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.launch.batch import Claims
from llc.runtime.runs.runs import runs_in
from llc.runtime.runs.scope_conflicts import overlap

LOOP = """
name: {name}
initial: work
scope: ["{scope}"]
context: {{word: x}}
states:
  work:
    action: {action}
    on_success: done
    on_failure: failed
  done: {{terminal: true}}
  failed: {{terminal: true, status: failure}}
"""


@pytest.fixture
def project(project_dir: Path) -> Path:
    return project_dir


def write_loop(name: str, action: str, scope: str = ".") -> str:
    """A loop that performs one action, in `.loops/`."""
    text = LOOP.format(name=name, action=json.dumps(action), scope=scope)
    Path(".loops", f"{name}.yaml").write_text(text)
    return name


def write_jobs(*rows: dict[str, Any]) -> str:
    Path("jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "jobs.jsonl"


def jobs_without_scope(name: str, count: int, **more: Any) -> str:
    """A jobs file with `count` jobs that hold no paths."""
    return write_jobs(*({"loop": name, "scope": [], **more} for _ in range(count)))


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "llc", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


class Report:
    """Report of a batch: an object for each run, in the order in which the runs ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        output, self.errors = process.communicate(timeout=120)
        self.runs: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
        self.code = process.returncode

    def statuses(self) -> dict[str, int]:
        statuses = [run["status"] for run in self.runs]
        return {status: statuses.count(status) for status in statuses}


def batch(*words: str, **options: Any) -> Report:
    return Report(start("batch", *words, "--json", **options))


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def events(run: str, kind: str) -> list[dict[str, Any]]:
    (path,) = Path().glob(f".loops/.*/{run}/*.events.jsonl")
    recorded = [event.wire for event in reader.read(str(path)) if isinstance(event, Event)]
    return [event for event in recorded if event is not None and event["event"] == kind]


def unfinished() -> list[RunFolder]:
    return list(runs_in(""))


def host_channels() -> list[Path]:
    return list(Path().glob(".loops/.running/.host-*"))


# --- jobs ----------------------------------------------------------------------------------


def test_each_finished_run_is_reported(project: Path) -> None:
    """One line per run with number and loop; all succeed, so the exit code is 0 and no run is left."""
    write_loop("one", "echo ${context.word} >> log", "a")
    Path("two.sexp").write_text("(+ 1 factor)")
    report = batch(
        "one",
        write_jobs({"loop": "one", "context": {"word": "y"}}, {"loop": "two.sexp", "args": {"factor": 2}}),
    )
    assert (report.code, report.statuses()) == (0, {"success": 3})
    runs = {run["job"]: run for run in report.runs}
    assert [runs[n]["loop"] for n in (1, 2, 3)] == ["one", "one", "two.sexp"]
    assert runs[3]["value"] == 3
    assert sorted(lines("log")) == ["x", "y"]
    assert not unfinished()
    assert not host_channels()


def test_unsuccessful_run_makes_the_exit_code_1(project: Path) -> None:
    """A failure, a fault and a success are each reported; the other runs continue."""
    write_loop("good", "true", "a")
    write_loop("bad", "false", "b")
    Path("fault.sexp").write_text('(+ 1 "a")')
    report = batch("good", "bad", "fault.sexp")
    assert (report.code, report.statuses()) == (1, {"success": 1, "failure": 1, "error": 1})
    (fault,) = [run for run in report.runs if run["status"] == "error"]
    assert fault["error"]["kind"] == "type-error"


def test_jobs_are_read_from_standard_input(project: Path) -> None:
    """The file name `-` selects standard input."""
    write_loop("one", "true")
    process = start("batch", "-", "--json", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write('{"loop": "one"}\n\n{"loop": "one"}\n')
    process.stdin.close()
    process.stdin = None
    report = Report(process)
    assert (report.code, report.statuses()) == (0, {"success": 2})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"loop": "one"', "the line is not JSON"),
        ("[1]", "the line is not a JSON object"),
        ('{"loop": "one", "contxt": {}}', "a job has no key `contxt`"),
        ('{"loop": "one", "scope": "src"}', "`scope` should be a list of paths"),
        ('{"loop": "one", "loop": "one"}', "`loop` is given twice"),
        ('{"loop": "one", "context": {"a": 1, "b": 2, "a": 3}}', "`a` is given twice"),
        ('{"context": {}}', "a job needs `loop`"),
        ('{"loop": "oen"}', "no loop named `oen`"),
        ('{"loop": "broken"}', "no state named `dnoe`"),
        ('{"loop": "one", "args": {"x": 1}}', "a loop takes no arguments"),
        ('{"loop": "one", "budget": {"usd": "much"}}', "usd is a number from 0, not `much`"),
        ('{"loop": "one", "budget": {"pounds": 1}}', "no unit `pounds`"),
    ],
)
def test_an_invalid_line_is_reported_before_any_start(project: Path, line: str, message: str) -> None:
    """The error names file, line and fix; the exit code is 2, and no run starts."""
    write_loop("one", "touch started")
    text = LOOP.format(name="broken", action='"true"', scope=".").replace(
        "on_success: done", "on_success: dnoe"
    )
    Path(".loops/broken.yaml").write_text(text)
    Path("jobs.jsonl").write_text(f'{{"loop": "one"}}\n{line}\n')
    process = start("batch", "jobs.jsonl")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert message in errors
    assert "jobs.jsonl:2:1" in errors or "broken.yaml:" in errors
    assert not output
    assert not Path("started").exists()
    assert not unfinished()


def test_an_error_in_a_loop_is_reported_once(project: Path) -> None:
    """Independent of the number of jobs and their values."""
    write_loop("one", "true")
    path = Path(".loops/one.yaml")
    path.write_text(path.read_text().replace("on_success: done", "on_success: dnoe"))
    rows = "".join(f'{{"loop": "one", "context": {{"word": "{word}"}}}}\n' for word in "abc")
    Path("jobs.jsonl").write_text(rows)
    process = start("batch", "jobs.jsonl")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count("no state named `dnoe`") == 1


def test_an_invalid_script_is_reported_before_any_start(project: Path) -> None:
    """Once, with its position, as by `llc run`."""
    write_loop("one", "true")
    Path("world.yaml").write_text("rules: [{state: work, exit_code: none}]\n")
    for script, message in (("nowhere.yaml", "no file `nowhere.yaml`"), ("world.yaml", "--> world.yaml:1:")):
        process = start("batch", "one", "one", "--script", script)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (2, "")
        assert errors.count(message) == 1


def test_quiet_still_shows_errors(project: Path) -> None:
    """As with `llc run --quiet`; successful runs are not shown."""
    write_loop("one", "true")
    Path(".loops/bad.sexp").write_text("(car (list))")
    process = start("batch", "one", "bad", "--quiet")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(output.splitlines()) == 1
    assert "bad-" in output
    assert not errors


def test_a_batch_without_arguments_is_refused(project: Path) -> None:
    """The error shows the usage."""
    process = start("batch")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no job is named" in errors


def test_a_secret_is_masked(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in JSON output."""
    monkeypatch.setenv("DEPLOY_PASSWORD", "correct horse")
    Path("say.sexp").write_text('(string-append "it is " (get (run "printenv DEPLOY_PASSWORD") "output"))')
    process = start("batch", "say.sexp", "--json")
    output, errors = process.communicate(timeout=60)
    assert "correct horse" not in output + errors


# --- scheduling ------------------------------------------------------------------------

WORK = "echo + ${context.word} >> log; sleep 0.05; echo - ${context.word} >> log"


def test_runs_on_the_same_paths_run_sequentially(project: Path) -> None:
    """In their order; a run on other paths does not wait for them."""
    write_loop("one", WORK, "src")
    write_loop("apart", "until [ -e log ]; do sleep 0.01; done; touch went", "docs")
    rows = [
        {"loop": "one", "context": {"word": str(n)}, "scope": [["src"], ["src/a"]][n % 2]} for n in range(6)
    ]
    report = batch(write_jobs(*rows, {"loop": "apart"}))
    assert report.statuses() == {"success": 7}
    assert lines("log") == [f"{sign} {n}" for n in range(6) for sign in "+-"]
    assert Path("went").exists()


def test_concurrent_actions_are_limited(project: Path) -> None:
    """The limit counts the actions of all runs together."""
    write_loop("one", WORK)
    assert batch(jobs_without_scope("one", 20), "--at-once", "3").statuses() == {"success": 20}
    active = peak = 0
    for line in lines("log"):
        active += 1 if line.startswith("+") else -1
        peak = max(peak, active)
    assert peak == 3


def test_sleeping_runs_hold_no_slot_and_no_thread(project: Path) -> None:
    """A hundred runs sleep while an action has the only slot; the process has one thread."""
    write_loop("one", "touch went")
    Path("jobs.jsonl").write_text('{"loop": "nap.sexp", "scope": []}\n' * 100)
    Path("nap.sexp").write_text("(sleep 600)")
    process = start("batch", "jobs.jsonl", "one", "--at-once", "1", "--json")
    wait_for(Path("went").exists)
    wait_for(lambda: len(unfinished()) == 100)
    wait_for(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 1)
    process.send_signal(signal.SIGINT)
    report = Report(process)
    assert (report.code, report.statuses()) == (130, {"success": 1, "interrupted": 100})


def test_a_batch_waits_for_another_process(project: Path) -> None:
    """A batch that needs paths held by another process is shown as queued, then continues."""
    write_loop("other", "touch held; until [ -e go ]; do sleep 0.01; done", "src")
    write_loop("one", "touch went", "src")
    write_loop("apart", "touch apart", "docs")
    other = start("run", "other", "--quiet")
    wait_for(Path("held").exists)
    process = start("batch", "one", "one", "apart", "--json")
    wait_for(Path("apart").exists)
    wait_for(lambda: any(run.about().get("queued") for run in unfinished()))
    assert not Path("went").exists()
    Path("go").touch()
    assert other.wait(timeout=60) == 0
    other.communicate()
    assert Report(process).statuses() == {"success": 3}


def test_a_run_of_a_batch_holds_its_paths(project: Path) -> None:
    """A conflicting start in another process is refused and names the run."""
    write_loop("one", "touch held; until [ -e go ]; do sleep 0.01; done", "src")
    write_loop("other", "true", "src/a")
    process = start("batch", "one", "--json")
    wait_for(Path("held").exists)
    other = start("run", "other")
    _, errors = other.communicate(timeout=60)
    assert other.returncode == 1
    assert f"pid {process.pid}" in errors
    Path("go").touch()
    assert Report(process).code == 0


paths = st.lists(st.sampled_from("ab"), max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(paths, max_size=4), st.lists(paths, max_size=4), st.lists(paths, max_size=3))
def test_claims_overlap_like_scopes(held: list[str], gone: list[str], wanted: list[str]) -> None:
    """Active claims overlap if and only if the two scopes would."""
    claims = Claims()
    claims.add(held)
    claims.add(gone)
    claims.remove(gone)
    assert claims.overlap(wanted) == any(overlap(a, b) for a in held for b in wanted)


# --- interruption --------------------------------------------------------------------------------------


def write_two_step_loop(name: str) -> str:
    """A loop whose first action completes while its second action waits."""
    Path(".loops", f"{name}.yaml").write_text(
        f"""
name: {name}
initial: first
states:
  first: {{action: "echo $LLC_RUN_ID >> first", next: second}}
  second: {{action: "until [ -e go ]; do sleep 0.05; done; echo $LLC_RUN_ID >> second", next: done}}
  done: {{terminal: true}}
"""
    )
    return name


def test_each_run_resumes_after_kill_9(project: Path) -> None:
    """Fifty runs lose their process; finished actions of each are not repeated."""
    write_two_step_loop("one")
    process = start("batch", jobs_without_scope("one", 50), "--at-once", "50", "--json")
    wait_for(lambda: len(lines("first")) == 50)
    wait_for(lambda: all(len(events(run.id, "action_start")) == 2 for run in unfinished()))
    process.kill()
    process.communicate()
    assert len(unfinished()) == 50
    Path("go").touch()
    report = batch("--resume", "--at-once", "50")
    assert (report.code, report.statuses()) == (0, {"success": 50})
    names = {run["run"] for run in report.runs}
    assert set(lines("first")) == names
    assert len(lines("first")) == 50
    assert set(lines("second")) == names
    assert not unfinished()
    assert not host_channels()


def test_one_run_of_a_batch_can_be_resumed_alone(project: Path) -> None:
    """`llc resume` resumes one run, `llc batch --resume` the others."""
    write_two_step_loop("one")
    process = start("batch", jobs_without_scope("one", 3), "--json")
    wait_for(lambda: len(lines("first")) == 3)
    kill_with_keeper(process)
    process.communicate()
    Path("go").touch()
    first = min(run.id for run in unfinished())
    alone = start("resume", first, "--json")
    assert json.loads(alone.communicate(timeout=60)[0])["status"] == "success"
    assert batch("--resume").statuses() == {"success": 2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_stop_request_ends_all_runs_cleanly(project: Path, number: int) -> None:
    """Each run ends its action and its journal and is resumable; jobs that did not start are reported."""
    write_loop("one", "echo $$ >> pids; exec sleep 600")
    process = start("batch", jobs_without_scope("one", 20), "--at-once", "4", "--json")
    wait_for(lambda: len(lines("pids")) == 4)
    process.send_signal(number)
    report = Report(process)
    assert report.code == 130
    assert set(report.statuses()) == {"interrupted"}
    assert "not started" in report.errors
    assert "llc batch --resume" in report.errors
    assert not any(processes.is_alive(int(pid), processes.start_time(int(pid))) for pid in lines("pids"))
    for run in report.runs:
        assert len(events(run["run"], "run_interrupted")) == 1
    assert {run.id for run in unfinished()} == {run["run"] for run in report.runs}


def test_a_second_stop_request_kills_actions(project: Path) -> None:
    """An action that ignores TERM does not delay the batch; the runs are resumable."""
    write_loop("one", "trap '' TERM; echo $$ >> pids; while :; do sleep 0.05; done")
    process = start("batch", jobs_without_scope("one", 3), "--json")
    wait_for(lambda: len(lines("pids")) == 3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    report = Report(process)
    assert (report.code, report.statuses()) == (130, {"interrupted": 3})
    assert all(events(run["run"], "run_interrupted") for run in report.runs)


def test_a_computing_run_does_not_block_others(project: Path) -> None:
    """A run that never waits neither blocks other runs nor its own stop request."""
    Path("spin.sexp").write_text("(define (spin n) (spin (+ n 1))) (spin 0)")
    write_loop("one", "touch went")
    process = start("batch", "spin.sexp", "one", "--json")
    wait_for(lambda: [run.name for run in unfinished()] == ["spin"] and Path("went").exists())
    process.send_signal(signal.SIGINT)
    report = Report(process)
    assert report.statuses() == {"success": 1, "interrupted": 1}


# --- single runs ----------------------------------------------------------------------------------


def test_stopping_one_run_keeps_the_others(project: Path) -> None:
    """`llc stop RUN` ends that run and its action; the others finish."""
    write_loop("one", "echo $LLC_RUN_ID $$ >> pids; until [ -e go ]; do sleep 0.05; done")
    process = start("batch", jobs_without_scope("one", 5), "--json")
    wait_for(lambda: len(lines("pids")) == 5)
    chosen, pid = lines("pids")[2].split()
    stop = start("stop", chosen, "--json")
    (stopped,) = json.loads(stop.communicate(timeout=60)[0])
    assert (stopped["how"], stopped["status"]) == ("stopped", "interrupted")
    assert not processes.is_alive(int(pid), processes.start_time(int(pid)))
    assert process.poll() is None
    Path("go").touch()
    report = Report(process)
    assert (report.code, report.statuses()) == (1, {"success": 4, "interrupted": 1})
    assert [run["run"] for run in report.runs if run["status"] == "interrupted"] == [chosen]


def test_stop_kills_the_action_of_an_unresponsive_run(project: Path) -> None:
    """The process and the other runs are not affected."""
    write_loop("one", "trap '' TERM; echo $LLC_RUN_ID >> pids; until [ -e go ]; do sleep 0.05; done")
    process = start("batch", jobs_without_scope("one", 2), "--json")
    wait_for(lambda: len(lines("pids")) == 2)
    stop = start("stop", lines("pids")[0], "--wait", "0.1", "--json")
    (stopped,) = json.loads(stop.communicate(timeout=60)[0])
    assert stopped["how"] == "stopped"
    Path("go").touch()
    assert Report(process).statuses() == {"success": 1, "interrupted": 1}


def test_stop_all_reaches_every_run(project: Path) -> None:
    """Also sleeping runs."""
    Path("nap.sexp").write_text("(sleep 600)")
    process = start("batch", jobs_without_scope("nap.sexp", 10), "--json")
    wait_for(lambda: len(unfinished()) == 10)
    stop = start("stop", "--all", "--json")
    stopped = json.loads(stop.communicate(timeout=60)[0])
    assert {entry["how"] for entry in stopped} == {"stopped"}
    assert Report(process).statuses() == {"interrupted": 10}


def test_a_lost_journal_ends_only_its_run(project: Path) -> None:
    """A run folder is removed while its action runs; that run ends with an error, the others succeed."""
    write_loop("bad", "rm -rf .loops/.running/$LLC_RUN_ID; true")
    write_loop("good", "sleep 0.2; echo >> log")
    rows = [{"loop": name, "scope": []} for name in ("good", "bad", "good")]
    report = batch(write_jobs(*rows))
    assert (report.code, report.statuses()) == (1, {"success": 2, "error": 1})
    (bad,) = [run for run in report.runs if run["status"] == "error"]
    assert bad["error"]["kind"] == "journal"
    assert len(lines("log")) == 2


def test_each_run_can_be_inspected_and_answered(project: Path) -> None:
    """`llc status` shows each run, and `llc answer` reaches the run that asks."""
    Path("ask.sexp").write_text('(ask "which one?")')
    Path("nap.sexp").write_text("(sleep 600)")
    process = start("batch", "ask.sexp", "nap.sexp", "--json")
    wait_for(lambda: list(Path().glob(".loops/.running/ask-*/answers/*.wake")))
    rows = json.loads(start("status", "--json").communicate(timeout=60)[0])
    assert {(row["program"], row["status"], row["pid"], row["driven_by"]) for row in rows} == {
        ("ask", "running", process.pid, "batch"),
        ("nap", "running", process.pid, "batch"),
    }
    shown = start("status", "nap").communicate(timeout=60)[0]
    assert f": running (pid {process.pid}, in a batch)\n" in shown
    answer = start("answer", "ask", "this")
    assert answer.wait(timeout=60) == 0
    answer.communicate()
    wait_for(lambda: [run.name for run in unfinished()] == ["nap"])
    start("stop", "nap").communicate(timeout=60)
    report = Report(process)
    assert {run["program"]: run["status"] for run in report.runs} == {"ask": "success", "nap": "interrupted"}


def test_action_output_is_shown_live(project: Path) -> None:
    """The end of the output is available for inspection, as for a single run."""
    write_loop("one", "echo so far; until [ -e go ]; do sleep 0.05; done")
    process = start("batch", "one", "--json")
    wait_for(lambda: any("so far" in path.read_text() for path in Path().glob(".loops/.running/*/one.live")))
    Path("go").touch()
    assert Report(process).code == 0


# --- limits of open files -----------------------------------------------------------------------


def file_limits(soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_open_file_limit_bounds_active_runs(project: Path) -> None:
    """With a low limit, the remaining runs start when others end."""
    Path("nap.sexp").write_text("(sleep 0.05)")
    report = batch(jobs_without_scope("nap.sexp", 120), "--at-once", "1", preexec_fn=file_limits(100, 100))
    assert (report.code, report.statuses()) == (0, {"success": 120})


def test_the_soft_limit_is_raised(project: Path) -> None:
    """With a low soft limit and a higher hard limit all runs are active at once."""
    Path("nap.sexp").write_text("(sleep 600)")
    process = start("batch", jobs_without_scope("nap.sexp", 150), "--json", preexec_fn=file_limits(128, 4096))
    wait_for(lambda: len(unfinished()) == 150)
    process.send_signal(signal.SIGINT)
    assert Report(process).statuses() == {"interrupted": 150}


def test_too_few_open_files_are_an_error(project: Path) -> None:
    """If not even one run is possible, the error says what to do."""
    Path("nap.sexp").write_text("(sleep 0.1)")
    report = batch("nap.sexp", "--at-once", "50", preexec_fn=file_limits(200, 200))
    assert report.code == 1
    assert "too-few-descriptors" in report.errors
    assert not unfinished()


# --- in Python ------------------------------------------------------------------------------------


def test_run_many_returns_an_outcome_for_each_job(project: Path) -> None:
    """In the order of the jobs, for every kind of outcome."""
    write_loop("good", "true", "a")
    write_loop("bad", "false", "b")
    Path("twice.sexp").write_text("(* 2 x)")
    outcomes = llc.run_many(["bad", {"loop": "twice.sexp", "args": {"x": 21}}, "good"], at_once=2)
    assert [outcome.status for outcome in outcomes] == ["failure", "success", "success"]
    assert outcomes[1].value == 42


def test_run_many_refuses_an_invalid_job(project: Path) -> None:
    """Before any run starts."""
    write_loop("good", "touch started")
    with pytest.raises(llc.UserError, match="job 2: a job has no key `lop`") as refused:
        llc.run_many(["good", {"lop": "good"}])
    assert refused.value.id == "bad-job"
    assert not Path("started").exists()


# --- waiting --------------------------------------------------------------------------------------


class Immediate:
    """An awaitable that returns or raises its value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def wait(self) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


def test_alone_returns_the_result_of_each_wait() -> None:
    """An exception of a wait is raised in the waiting generator, which may continue."""

    def steps() -> Any:
        results = [(yield Immediate(1)), (yield None)]
        try:
            yield Immediate(KeyError("two"))
        except KeyError as error:
            results.append(error.args[0])
        return [*results, (yield Immediate(3))]

    assert alone(steps()) == [1, None, "two", 3]


def test_requests_arrive_in_order(project: Path) -> None:
    """By name, one by one; a request to an ended receiver is refused."""
    channel = control_channel.ControlChannel.open()
    assert channel is not None
    assert channel.requests() == []
    assert control_channel.ask(channel.path, "a-1")
    assert control_channel.ask(channel.path, "b-2")
    assert control_channel.ask(channel.path, "a-1")
    assert channel.requests() == ["a-1", "b-2", "a-1"]
    channel.close()
    assert not control_channel.ask(channel.path, "a-1")
    os.mkfifo(".loops/.running/.host-of-a-dead-process")
    next_channel = control_channel.ControlChannel.open()
    assert next_channel is not None
    assert host_channels() == [Path(next_channel.path)]
    next_channel.close()


def test_ctrl_c_ends_run_many_cleanly(project: Path) -> None:
    """The runs are resumable, and the caller gets KeyboardInterrupt."""
    write_loop("one", "echo $$ >> pids; exec sleep 600")
    code = "import llc; llc.run_many([{'loop': 'one', 'scope': []}] * 3)"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(lines("pids")) == 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert all(events(run.id, "run_interrupted") for run in unfinished())
    assert len(unfinished()) == 3


def test_a_terminal_shows_the_number_of_active_runs(project: Path) -> None:
    """A status line shows the number and disappears at the end; each finished run has a line."""
    write_loop("one", "until [ -e go ]; do sleep 0.05; done")
    child = terminals.spawn("batch", jobs_without_scope("one", 5), "--at-once", "2", width=100)
    child.expect("0 of 5 finished, [0-9] started, 2 working")
    Path("go").touch()
    child.expect("5 runs: 5 success")
    assert terminals.exit_code(child) == 0
    remaining = terminals.screen_of(child.before)
    assert not any("under way" in line for line in remaining)


def test_resuming_an_empty_batch_is_not_an_error(project: Path) -> None:
    """Nor is a file without jobs."""
    for words, message in ((["--resume"], "no run is unfinished"), ([write_jobs()], "there are no jobs")):
        process = start("batch", *words)
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output.strip()) == (0, message)
