"""Background runs and `llc stop`, with real processes, terminals and signals."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fork_server
import pexpect
import pytest
import terminals
from waiting import is_running, wait_for

from llc.runtime.host import processes
from llc.runtime.host.errors import UserError
from llc.runtime.host.paths import HISTORY, RUNNING
from llc.runtime.inspection import stop
from llc.runtime.journal.events import RunInterrupted
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import locks, runs
from llc.runtime.runs.lookup import find_unfinished

Llc = Callable[..., subprocess.CompletedProcess[str]]

WAITING_LOOP = """
name: waits
initial: a
context: {n: "1"}
states:
  a:
    action: "echo started; echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo went"
    next: done
  done: {terminal: true}
"""
STUBBORN_LOOP = WAITING_LOOP.replace("name: waits", "name: stubborn").replace(
    "echo started", "trap '' TERM; echo started"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with loops that wait for a file; runs that are active at the end are stopped."""
    folder = tmp_path / "project" / ".loops"
    folder.mkdir(parents=True)
    (folder / "waits.yaml").write_text(WAITING_LOOP)
    (folder / "stubborn.yaml").write_text(STUBBORN_LOOP)
    (folder / "bad.yaml").write_text(WAITING_LOOP.replace("next: done", "next: dnoe"))
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "project"
    with contextlib.suppress(UserError):  # a test may leave no folder of runs
        stop.stop(stop.live_runs(None), 0.5)


def llc(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run llc in its own process until it ends."""
    if not options:
        return fork_server.programs().run(*words)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, text=True, check=False, timeout=60, **options)


def start(name: str = "waits", *words: str) -> dict[str, Any]:
    """Start a background run, wait for its action, and return the output of `--json`."""
    done = llc("run", name, "--background", "--json", *words)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: os.path.exists("pid") and Path("pid").read_text().endswith("\n"))
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def only_run() -> RunFolder:
    (run,) = runs.runs_in("")
    return run


def has_ended(status: str = "success") -> bool:
    finished = list(runs.runs_in("", HISTORY))
    return bool(finished) and (finished[0].end() or {}).get("status") == status


# --- starting -----------------------------------------------------------------------------------


def test_the_id_is_printed_at_once_and_the_run_continues(project: Path) -> None:
    """`--background` prints only the id of the run; progress goes to the log."""
    done = llc("run", "waits", "--background")
    run = only_run()
    assert (done.returncode, done.stdout) == (0, run.id + "\n")
    assert f"llc attach {run.id}" in done.stderr
    assert locks.is_live(run)
    wait_for(lambda: "│ started" in Path(run.log).read_text())
    (project / "go").touch()
    wait_for(has_ended)
    log = project / ".loops" / ".history" / run.id / "waits.log"
    wait_for(lambda: "Loop completed: done" in log.read_text())
    assert "\x1b" not in log.read_text()


def test_json_contains_run_pid_and_log(project: Path) -> None:
    """The pid is that of the process that owns the run; the log is its output file."""
    report = start()
    run = only_run()
    assert report == {"run": run.id, "pid": run.about()["pid"], "log": run.log}
    assert is_running(report["pid"])
    assert "started" in Path(report["log"]).read_text()


def test_the_process_is_detached(project: Path, tmp_path: Path) -> None:
    """It leads a session without a terminal, reads nothing, and inherits no open file of its caller."""
    locked_file = open(tmp_path / "mine", "w")  # noqa: SIM115 - closed below
    with locked_file:
        fcntl.flock(locked_file, fcntl.LOCK_EX)
        read, write = os.pipe()
        done = llc("run", "waits", "--background", "--json", pass_fds=(locked_file.fileno(), write))
        os.close(write)
        pid = json.loads(done.stdout)["pid"]
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
        assert os.read(read, 1) == b""  # no other process holds the write end
        os.close(read)
    with open(tmp_path / "mine") as reopened:
        fcntl.flock(reopened, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["bad"], 2, "did you mean `done`?"),
        (["waitss"], 2, "did you mean `waits`?"),
        (["waits", "--dry-run"], 2, "--dry-run executes nothing"),
        (["waits", "--script", "nothing.yaml"], 2, "nothing.yaml"),
    ],
)
def test_start_errors_are_reported(project: Path, words: list[str], code: int, message: str) -> None:
    """A start error has the same message and exit code as in the foreground."""
    before = llc("run", *words) if "--dry-run" not in words else None
    done = llc("run", *words, "--background")
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    if before is not None:
        assert (before.returncode, before.stderr) == (done.returncode, done.stderr)
    assert list(runs.runs_in("")) == []


def test_a_locked_scope_is_reported(project: Path) -> None:
    """The second run of a scope is refused, also in JSON; the first continues."""
    report = start()
    done = llc("run", "waits", "--background", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["kind"] == "scope-conflict"
    assert report["run"] in done.stderr
    assert locks.is_live(only_run())


def test_an_unwritable_log_is_reported(project: Path) -> None:
    """An unwritable folder is an error of the caller, and no run is left."""
    (project / ".loops" / ".running").write_text("")
    done = llc("run", "waits", "--background")
    assert done.returncode == 1
    assert "error[cannot-write]" in done.stderr


def test_a_killed_start_is_reported(project: Path) -> None:
    """A process that dies before its run is recorded is reported as an error."""
    (project / "hook").mkdir()
    (project / "hook" / "sitecustomize.py").write_text(
        "import os, signal\n"
        "os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(project / "hook")}
    done = llc("run", "waits", "--background", env=env)
    assert done.returncode == 1
    assert "error[not-started]" in done.stderr
    assert "SIGKILL ended the process of the run before the run started" in done.stderr


def test_a_closed_terminal_does_not_end_the_run(project: Path) -> None:
    """The terminal that started a background run may close."""
    child = terminals.spawn("run", "waits", "--background")
    child.expect("running in the background")
    child.close(force=True)
    run = only_run()
    wait_for(lambda: os.path.exists("pid"))
    pid = run.about()["pid"]
    os.kill(pid, signal.SIGHUP)
    time.sleep(0.3)
    assert is_running(pid)
    assert locks.is_live(run)


def test_actions_receive_hangups(project: Path) -> None:
    """Actions do not inherit that the run ignores SIGHUP."""
    (project / ".loops" / "hup.yaml").write_text(
        WAITING_LOOP.replace("name: waits", "name: hup").replace(
            "echo started", "grep SigIgn /proc/self/status"
        )
    )
    report = start("hup")
    wait_for(lambda: "│ SigIgn" in Path(report["log"]).read_text())
    (line,) = [line for line in Path(report["log"]).read_text().splitlines() if "│ SigIgn" in line]
    assert not int(line.split()[-1], 16) & 1 << (signal.SIGHUP - 1)


def test_resume_in_the_background(project: Path) -> None:
    """A stopped run continues in the background, with the same log."""
    first = start()
    assert llc("stop", "waits").returncode == 0
    resumed = json.loads(llc("resume", "waits", "--background", "--json").stdout)
    assert (resumed["run"], resumed["log"]) == (first["run"], first["log"])
    assert resumed["pid"] != first["pid"]
    (project / "go").touch()
    wait_for(has_ended)


def test_the_commands_of_the_seed_work(project: Path) -> None:
    """`ll-loop NAME --background` and the seed's subcommands for runs, as the seed writes them."""
    code = "import sys; from llc.runtime.cli.entry import main_ll_loop; sys.exit(main_ll_loop())"

    def ll_loop(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run_id = ll_loop("waits", "--background").strip()
    wait_for(lambda: os.path.exists("pid"))
    assert run_id in ll_loop("list", "--running")
    assert "running" in ll_loop("status", "waits")
    assert "Stopped" in ll_loop("stop", "waits")
    (project / "go").touch()
    assert "Loop completed: done" in ll_loop("resume", "waits")
    assert run_id in ll_loop("history", "waits")


# --- stopping -----------------------------------------------------------------------------------


def test_stop_leaves_a_resumable_run(project: Path) -> None:
    """`stop` ends the run and its action, and prints how to resume it."""
    report = start()
    action = int(Path("pid").read_text())
    done = llc("stop", "waits")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Stopped {report['run']} in a, iteration 1")
    assert f"llc resume {report['run']}" in done.stdout
    assert not is_running(report["pid"])
    assert not is_running(action)
    assert isinstance(only_run().last_event(), RunInterrupted)
    (project / "go").touch()
    assert llc("resume", report["run"], "-q").returncode == 0


def test_stop_kills_an_unresponsive_action(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the wait a second request kills the action; the run still records its state."""
    requests = []
    insist = stop.Holder.insist

    def insist_and_count(holder: stop.Holder) -> None:
        requests.append(holder.pid)
        insist(holder)

    monkeypatch.setattr(stop.Holder, "insist", insist_and_count)
    report = start("stubborn")
    action = int(Path("pid").read_text())
    (result,) = stop.stop([only_run()], 0.2)
    assert (result.how, result.status, result.state) == ("stopped", "interrupted", "a")
    assert requests == [report["pid"]] * 2
    assert result.seconds >= 0.2
    assert not is_running(action)


def test_stop_kills_an_unresponsive_process(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its actions are ended as well, and the run is resumable."""
    monkeypatch.setattr(stop, "INSIST_SECONDS", 0.2)
    report = start()
    action = int(Path("pid").read_text())
    monkeypatch.setattr(stop.Holder, "ask", lambda self: self.send(signal.SIGSTOP))
    (result,) = stop.stop([only_run()], 0.2)
    assert (result.how, result.status) == ("killed", "crashed")
    assert not is_running(report["pid"])
    wait_for(lambda: not is_running(action))
    (project / "go").touch()
    assert llc("resume", report["run"], "-q").returncode == 0


def test_stop_wakes_a_suspended_run(project: Path) -> None:
    """A suspended run receives the stop request."""
    report = start()
    os.kill(report["pid"], signal.SIGSTOP)
    (row,) = json.loads(llc("stop", "waits", "--wait", "20", "--json").stdout)
    assert row["how"] == "stopped"


def test_stop_all_stops_every_run(project: Path) -> None:
    """Without `--all`, one of several runs of a loop must be named."""
    for name in ("one", "two"):
        text = WAITING_LOOP.replace("name: waits", f"name: {name}\nscope: [{name}]")
        (project / ".loops" / f"{name}.yaml").write_text(text)
        (project / name).mkdir()
        start(name)
    assert llc("stop").returncode == 2
    rows = json.loads(llc("stop", "--all", "--json").stdout)
    assert [row["how"] for row in rows] == ["stopped", "stopped"]
    assert json.loads(llc("stop", "--all", "--json").stdout) == []
    assert llc("stop", "--all").stdout == "nothing is running\n"


def test_only_active_runs_can_be_stopped(project: Path) -> None:
    """For an interrupted or finished run the exit code is 1; an unknown run is a usage error."""
    report = start()
    llc("stop", "waits")
    done = llc("stop", "waits")
    assert (done.returncode, f"llc resume {report['run']}" in done.stderr) == (1, True)
    (project / "go").touch()
    llc("resume", "waits", "-q")
    done = llc("stop", "waits")
    assert (done.returncode, "has ended: success" in done.stderr) == (1, True)
    assert llc("stop", "wait").returncode == 2


def test_a_reused_pid_is_not_signalled(project: Path) -> None:
    """The holder is identified by pid and start time, so another process is not signalled."""
    run = RunFolder.create("", "x") if os.path.isdir(RUNNING) else None
    runs.make_running_folder("")
    run = run or RunFolder.create("", "x")
    other_process = subprocess.Popen(["sleep", "60"])
    try:
        started_at = processes.start_time(other_process.pid)
        boot, _, tick = started_at.partition(":")
        Path(run.lock).write_text(
            json.dumps({"pid": other_process.pid, "start_time": f"{boot}:{int(tick) - 1}"})
        )
        with open(run.lock) as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            with pytest.raises(UserError, match="cannot be found here"):
                stop.Holder.find(run)
        assert other_process.poll() is None
    finally:
        other_process.kill()
        other_process.wait()


def test_a_queued_background_run_can_be_inspected_and_stopped(project: Path) -> None:
    """It has an id and a status; stopped, it leaves nothing to resume."""
    first = start()
    second = json.loads(llc("run", "waits", "--background", "--queue", "--json").stdout)
    status = json.loads(llc("status", second["run"], "--json").stdout)
    assert (status["status"], status["waits_for"]) == ("queued", [first["run"]])
    (row,) = json.loads(llc("stop", second["run"], "--json").stdout)
    assert row["how"] == "left"
    assert [run.id for run in runs.runs_in("")] == [first["run"]]


def test_a_queued_background_run_starts_in_turn(project: Path) -> None:
    """It starts by itself after the run before it ends."""
    start()
    llc("run", "waits", "--background", "--queue")
    (project / "go").touch()
    wait_for(lambda: len([run for run in runs.runs_in("", HISTORY) if run.end()]) == 2)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_standard_streams_are_allowed(project: Path, closed: str) -> None:
    """A background run started without standard streams still has its log."""
    command = f"{sys.executable} -m llc run waits --background {closed}"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    run = find_unfinished(done.stdout.strip())
    wait_for(lambda: "│ started" in Path(run.log).read_text())


# --- signals ------------------------------------------------------------------------------------


def foreground(*words: str) -> Any:
    child = terminals.spawn(*words)
    wait_for(lambda: os.path.exists("pid") and Path("pid").read_text().endswith("\n"))
    return child


def test_two_interrupts_leave_a_resumable_run(project: Path) -> None:
    """The second Ctrl-C does not wait for the action."""
    child = foreground("run", "stubborn")
    child.sendintr()
    time.sleep(0.2)
    child.sendintr()
    child.expect("Resume with: llc resume stubborn-")
    assert terminals.exit_code(child) == 130
    (project / "go").touch()
    assert llc("resume", "stubborn", "-q").returncode == 0


def test_a_third_interrupt_exits_at_once(project: Path) -> None:
    """Three signals end the process at any point; the run is resumable."""
    child = foreground("run", "stubborn")
    pid = only_run().about()["pid"]
    for _ in range(3):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.01)
    child.expect(pexpect.EOF)
    child.close()
    # The last signal may arrive after Python has restored its own signal handlers at exit.
    assert child.exitstatus == 130 or child.signalstatus == signal.SIGTERM
    (project / "go").touch()
    assert llc("resume", "stubborn", "-q").returncode == 0


def test_a_suspended_foreground_run_continues(project: Path) -> None:
    """Ctrl-Z and fg do not affect the result."""
    child = foreground("run", "waits")
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(child.pid, signal.SIGCONT)
    (project / "go").touch()
    child.expect("Loop completed: done")
    assert terminals.exit_code(child) == 0
