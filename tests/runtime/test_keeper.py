"""Actions survive the process that runs their loop: real runs, killed during real actions."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fork_server
import pytest
from keepers import keeper_of, kill_with_keeper, wait_suspended
from waiting import is_running, wait_for

from llc.runtime.host import keeper_messages

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
LLC = sys.executable, "-m", "llc"
LOOP = """\
name: job
initial: work
states:
  work:
    action: |
      echo started >> log
      COMMAND
      echo done >> log
    capture: output
    OPTIONS
    on_success: after
    on_failure: failed
    on_error: failed
  after: {action: 'printf %s ${captured.output.output} > output', on_success: done, on_failure: failed}
  done: {terminal: true}
  failed: {terminal: true}
"""
WAITING_COMMAND = "echo one; echo two >&2; until test -e go; do sleep 0.02; done; echo three; echo four >&2"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / ".loops").mkdir()
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    (tmp_path / "go").touch()
    llc("stop", "--all", "--wait", "0")


def write_loop(
    project: Path, command: str = WAITING_COMMAND, options: str = "on_unknown: fail", scope: str = ""
) -> None:
    text = LOOP.replace("COMMAND", command.replace("\n", "\n      ")).replace("OPTIONS", options)
    (project / ".loops" / "job.yaml").write_text(text + scope)


def llc(*words: str) -> subprocess.CompletedProcess[str]:
    """llc in a process of its own."""
    return fork_server.programs().run(*words)


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*LLC, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def contains(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


def kill_driver(project: Path, *words: str) -> int:
    """Kill the driver during its action; return the pid of the keeper."""
    run = start("run", "job", "-q", *words)
    wait_for(lambda: contains(project / "log", "started") and running_folder(project).glob("*.events.jsonl"))
    wait_for(lambda: b'"event":"process"' in journal(project))
    keeper = keeper_of(run.pid)
    assert keeper is not None
    run.kill()
    run.communicate()
    return keeper


def test_output_not_read_by_the_dead_driver_is_kept(project: Path) -> None:
    """The action ends, and its driver dies before it reads the output.

    On a busy machine, the time for reading the rest of the output is over at once.
    """
    (project / "start.py").write_text(
        "from llc.runtime.host import keeper_process; keeper_process._LINGER = -1\n"
        "from llc.runtime.cli import entry; entry.main()"
    )
    write_loop(project, "until test -e go; do sleep 0.02; done; printf %s one")
    run = subprocess.Popen([sys.executable, "start.py", "run", "job", "-q"])
    wait_for(lambda: contains(project / "log", "started") and b'"event":"process"' in journal(project))
    run.send_signal(signal.SIGSTOP)
    wait_suspended(run.pid)
    (project / "go").touch()
    (pid,) = re.findall(rb'"event":"process","seq":1,"pid":(\d+)', journal(project))
    wait_for(lambda: not is_running(int(pid)))
    run.kill()
    run.wait()
    wait_for(lambda: list(running_folder(project).glob("kept/*.json")))
    assert llc("resume", "job").returncode == 0
    assert (project / "output").read_text() == "one"


def test_output_read_by_the_dead_driver_is_kept(project: Path) -> None:
    """The keeper gets the position of the output, and learns of the driver's death before the action ends."""
    (project / "start.py").write_text(
        "import os, time\n"
        "from llc.runtime.host import keeper_process\n"
        "keeper = keeper_process._Keeper\n"
        "exited = keeper.exited\n"
        "def exited_early(self, action):\n"
        "    exited(self, action)\n"
        "    while os.getppid() == self.driver:\n"
        "        time.sleep(0.01)\n"
        "keeper.exited = exited_early\n"
        "from llc.runtime.cli import entry; entry.main()"
    )
    write_loop(project, "until test -e go; do sleep 0.02; done; printf %s one")
    run = subprocess.Popen([sys.executable, "start.py", "run", "job", "-q"])
    wait_for(lambda: contains(project / "log", "started") and b'"event":"process"' in journal(project))
    keeper = keeper_of(run.pid)
    assert keeper is not None
    os.kill(keeper, signal.SIGSTOP)
    (project / "go").touch()
    wait_for(lambda: "one" in unnamed_files(run.pid))
    (pid,) = re.findall(rb'"event":"process","seq":1,"pid":(\d+)', journal(project))
    wait_for(lambda: not is_running(int(pid)))
    run.send_signal(signal.SIGSTOP)
    wait_suspended(run.pid)
    os.kill(keeper, signal.SIGCONT)
    wait_for(lambda: not Path(f"/proc/{int(pid)}").exists())
    run.kill()
    run.wait()
    wait_for(lambda: list(running_folder(project).glob("kept/*.json")))
    assert llc("resume", "job").returncode == 0
    assert (project / "output").read_text() == "one"


def unnamed_files(keeper: int) -> list[str]:
    """Contents of the unnamed files that a process has open; it may close any of them meanwhile."""
    contents = []
    for handle in Path(f"/proc/{keeper}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(handle).endswith("(deleted)"):
                contents.append(handle.read_text())
    return contents


def running_folder(project: Path) -> Path:
    (folder,) = project.glob(".loops/.running/job-*")
    return folder


def journal(project: Path) -> bytes:
    return (running_folder(project) / "job.events.jsonl").read_bytes()


def result(project: Path) -> dict[str, Any]:
    (path,) = project.glob(".loops/.h*/job-*/job.events.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    (event,) = [event for event in events if event["event"] == "action_complete" and event["seq"] == 1]
    return dict(event["result"])


def test_resume_takes_over_an_action_that_still_runs(project: Path) -> None:
    """With its complete output and without the policy for effects in doubt; then the keeper ends."""
    write_loop(project)
    keeper = kill_driver(project)
    wait_for(lambda: (running_folder(project) / "keeper").exists())
    resumed = start("resume", "job")
    wait_for(lambda: b"take-over" in journal(project))
    (project / "go").touch()
    shown, notes = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, notes
    assert "is still running without llc" in notes
    assert [line for line in shown.splitlines() if "│" in line][:4] != []
    assert (project / "log").read_text() == "started\ndone\n"
    assert (project / "output").read_text() == "one\nthree"
    action_result = result(project)
    assert (action_result["output"], action_result["stderr"], action_result["exit_code"]) == (
        "one\nthree\n",
        "two\nfour\n",
        0,
    )
    wait_for(lambda: not is_running(keeper))


def test_resume_uses_the_result_of_an_action_that_has_ended(project: Path) -> None:
    """The keeper stores the result in the run folder and ends; `resume` removes the file."""
    write_loop(project, WAITING_COMMAND + "; exit 7", "route: {_: after}")
    keeper = kill_driver(project)
    (project / "go").touch()
    wait_for(lambda: not is_running(keeper))
    assert sorted(path.name for path in (running_folder(project) / "kept").iterdir()) == [
        "1.json",
        "1.output",
        "1.stderr",
    ]
    assert all(path.stat().st_mode & 0o77 == 0 for path in (running_folder(project) / "kept").iterdir())
    assert json.loads(llc("status", "job", "--json").stdout)["kept_results"] == [1]
    assert "an action ended after the process of the run had died" in llc("status", "job").stdout
    answer = llc("resume", "job", "-q")
    assert answer.returncode == 0, answer.stderr
    assert "has ended without llc; its result is used" in answer.stderr
    assert (project / "log").read_text() == "started\n"
    assert (result(project)["exit_code"], result(project)["output"]) == (7, "one\nthree\n")
    assert not list(project.glob(".loops/.h*/job-*/kept"))


def test_the_duration_of_an_action_is_its_running_time(project: Path) -> None:
    """Waiting for a driver does not count for the action; time without a driver counts for the run."""
    write_loop(project)
    before = time.monotonic()
    keeper = kill_driver(project)
    time.sleep(0.5)
    (project / "go").touch()
    wait_for(lambda: not is_running(keeper))
    max_ms = (time.monotonic() - before) * 1000
    time.sleep(1)
    assert llc("resume", "job", "-q").returncode == 0
    action_result = result(project)
    assert 500 <= action_result["duration_ms"] <= action_result["elapsed_ms"] <= max_ms
    (run,) = json.loads(llc("history", "job", "--json").stdout)["runs"]
    assert run["states"]["work"]["duration_ms"] >= 500


def test_an_action_survives_several_drivers(project: Path) -> None:
    """A `resume` that is killed at any time returns the action to its keeper."""
    write_loop(project)
    keeper = kill_driver(project)
    for moment in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4):
        resumed = start("resume", "job", "-q")
        time.sleep(moment)
        resumed.kill()
        resumed.communicate()
        assert is_running(keeper)
    (project / "go").touch()
    answer = llc("resume", "job", "-q")
    assert answer.returncode == 0, answer.stderr
    assert (project / "log").read_text() == "started\ndone\n"
    assert (project / "output").read_text() == "one\nthree"


def test_the_scope_stays_locked_while_an_action_continues(project: Path) -> None:
    """Another loop can use the paths of the action only after it ends."""
    write_loop(project)
    other = "name: other\ninitial: a\nstates:\n  a: {action: 'true', next: z}\n  z: {terminal: true}\n"
    (project / ".loops" / "other.yaml").write_text(other)
    kill_driver(project)
    refused = llc("run", "other", "-q")
    assert (refused.returncode, "scope-conflict" in refused.stderr) == (1, True), refused.stderr
    assert "to take it over: llc resume job-" in refused.stderr
    queued = start("run", "other", "-q", "--queue")
    wait_for(lambda: len(list(project.glob(".loops/.running/*/lock"))) == 2)
    (project / "go").touch()
    notes = queued.communicate(timeout=60)[1]
    assert queued.returncode == 0, notes
    assert llc("resume", "job", "-q").returncode == 0


@pytest.mark.parametrize("limit", ["", "\n    timeout: 100"])
def test_status_and_stop_include_surviving_actions(project: Path, limit: str) -> None:
    """`status` and `list` show the action; `stop` ends it, and `resume` starts it again."""
    write_loop(project, options=f"on_unknown: rerun{limit}")
    keeper = kill_driver(project)
    wait_for(lambda: (running_folder(project) / "keeper").exists())
    (pid,) = re.findall(rb'"event":"process","seq":1,"pid":(\d+)', journal(project))
    assert f"its action continues (pid {int(pid)})" in llc("status", "job").stdout
    answer = llc("stop", "job")
    assert (answer.returncode, answer.stdout.split()[0]) == (0, "Stopped"), answer.stderr
    wait_for(lambda: not is_running(keeper))
    assert (project / "log").read_text() == "started\n"
    (project / "go").touch()
    assert llc("resume", "job", "-q").returncode == 0
    assert (project / "log").read_text() == "started\nstarted\ndone\n"


def test_attach_reports_that_the_process_has_died(project: Path) -> None:
    """Output of the action is shown only after a process takes it over."""
    write_loop(project)
    kill_driver(project)
    wait_for(lambda: (running_folder(project) / "keeper").exists())
    attached = start("attach", "job")
    assert attached.stderr is not None
    assert attached.stderr.readline().startswith("Attached to")
    assert "the process of the run has died, and its action continues" in attached.stderr.readline()
    (project / "go").touch()
    assert attached.wait(60) == 1
    attached.communicate()


def test_stop_ends_the_actions_of_one_run(project: Path) -> None:
    """Actions of other runs of the same process continue under the same keeper."""
    loop = "name: {0}\nscope: [{0}]\ninitial: a\nstates:\n  a: {{action: '{1}', next: z}}\n"
    for name in ("one", "two"):
        command = (
            f"echo started >> {name}.log; until test -e go; do sleep 0.02; done; echo done >> {name}.log"
        )
        text = loop.format(name, command) + "  z: {terminal: true}\n"
        (project / ".loops" / f"{name}.yaml").write_text(text)
    run = start("batch", "one", "two")
    wait_for(lambda: all(contains(project / f"{name}.log", "started") for name in ("one", "two")))
    run.kill()
    run.communicate()
    wait_for(lambda: len(list(project.glob(".loops/.running/*/keeper"))) == 2)
    answer = llc("stop", "one")
    assert (answer.returncode, answer.stdout.split()[0]) == (0, "Stopped"), answer.stderr
    assert "its action continues" in llc("status", "two").stdout
    (project / "go").touch()
    assert llc("resume", "two", "-q").returncode == 0
    assert (project / "two.log").read_text() == "started\ndone\n"
    assert (project / "one.log").read_text() == "started\n"


def test_an_abandoned_action_ends_by_its_time_limit(project: Path) -> None:
    """The limit counts from the start of the action, with or without a driver."""
    write_loop(project, options="timeout: 2")
    keeper = kill_driver(project)
    wait_for(lambda: not is_running(keeper))
    llc("resume", "job", "-q")
    action_result = result(project)
    assert (action_result["timed_out"], action_result["exit_code"], action_result["output"]) == (
        "action",
        143,
        "one\n",
    )
    assert (project / "log").read_text() == "started\n"


def test_the_keeper_stores_no_secrets(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are masked like every other file of a run."""
    monkeypatch.setenv("SOME_TOKEN", "very-secret-value")
    write_loop(project, 'echo "it is $SOME_TOKEN."; until test -e go; do sleep 0.02; done')
    keeper = kill_driver(project)
    (project / "go").touch()
    wait_for(lambda: not is_running(keeper))
    for path in project.glob(".loops/**/*"):
        assert path.is_dir() or b"very-secret-value" not in path.read_bytes()
    assert llc("resume", "job", "-q").returncode == 0
    assert (project / "output").read_text() == "it is ***."


AGENT = """\
import json, os, sys, time
if "auth" in sys.argv:
    sys.exit()
sys.stdin.read()
session = "11111111-1111-8111-8111-111111111111"

def say(kind, **fields):
    print(json.dumps({"type": kind, "session_id": session, **fields}), flush=True)

def use(number):
    tool = {"type": "tool_use", "id": f"u{number}", "name": "Bash", "input": {"command": "ls"}}
    usage = {"input_tokens": 10, "output_tokens": 5}
    say("assistant", message={"role": "assistant", "id": f"m{number}", "content": [tool], "usage": usage})
    done = {"type": "tool_result", "tool_use_id": f"u{number}", "content": "x"}
    say("user", message={"role": "user", "content": [done]})

say("system", subtype="init", model="opus", tools=[])
use(1)
print("started", file=open("log", "a"))
while not os.path.exists("go"):
    time.sleep(0.02)
use(2)
usage = {"input_tokens": 300, "output_tokens": 150}
say("result", subtype="success", is_error=False, result="Done.", total_cost_usd=0.25, usage=usage)
"""
AGENT_LOOP = """\
name: job
initial: fix
states:
  fix: {action: Do it, action_type: prompt, next: done}
  done: {terminal: true}
"""


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_surviving_agent_counts_as_one_call(
    project: Path, has_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the budget of the run, the ledgers of the user, and the activity shown by `status`."""
    (project / "bin").mkdir()
    claude = project / "bin" / "claude"
    claude.write_text(f"#!{sys.executable}\n{AGENT}")
    claude.chmod(0o755)
    monkeypatch.setenv("PATH", f"{claude.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(project / "data"))
    (project / ".loops" / "job.yaml").write_text(AGENT_LOOP)
    assert llc("budget", "set", "day", "20usd").returncode == 0
    keeper = kill_driver(project, "--budget", "calls=1")
    if has_ended:
        (project / "go").touch()
        wait_for(lambda: not is_running(keeper))
        llc("budget")
        resumed = start("resume", "job", "-q")
    else:
        resumed = start("resume", "job", "-q")
        wait_for(lambda: b"take-over" in journal(project))
        (project / "go").touch()
    notes = resumed.communicate(timeout=60)[1]
    assert resumed.returncode == 0, notes
    assert (project / "log").read_text() == "started\n"
    assert json.loads(llc("status", "job", "--json").stdout)["agent"]["tools"] == 2
    assert "today: 0.2500 USD, 450 tokens, 1 call\n" in llc("budget").stdout


def test_several_concurrent_actions_survive(project: Path) -> None:
    """Each action of a concurrent program survives with its own result."""
    (project / "many.sexp").write_text(
        "(parallel-map (lambda (n) (get-field (system:execute_shell_command (string-append "
        '"echo b >> log; sleep 1; echo d >> log; echo " (to-string n))) (quote stdout))) (list 1 2 3 4))\n'
    )
    run = start("run", "many.sexp", "-q")
    wait_for(lambda: (project / "log").exists() and (project / "log").read_text().count("b") == 4)
    run.kill()
    run.communicate()
    answer = llc("resume", "many", "--json", "-q")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["value"] == ["1\n", "2\n", "3\n", "4\n"]
    assert sorted((project / "log").read_text().split()) == ["b"] * 4 + ["d"] * 4


def test_large_output_survives(project: Path) -> None:
    """Megabytes before and after the death of the driver, byte for byte."""
    write_loop(project, "seq 200000; until test -e go; do sleep 0.02; done; seq 200000 400000")
    path = project / ".loops" / "job.yaml"
    path.write_text(path.read_text().replace("on_success: after", "on_success: done"))
    kill_driver(project)
    (project / "go").touch()
    answer = llc("resume", "job", "-q")
    assert answer.returncode == 0, answer.stderr
    (path,) = project.glob(".loops/.h*/job-*/outputs/1-output.txt")
    expected = [*range(1, 200001), *range(200000, 400001)]
    assert path.read_text().split() == [str(number) for number in expected]


def test_an_invalid_result_file_means_in_doubt(project: Path) -> None:
    """Damaged or forged files count as an effect in doubt."""
    write_loop(project, options="on_unknown: rerun")
    for content in (b"", b"{", b"[]", b'{"effect": 3}', b'{"effect": "job/1", "pid": "x"}', b"\xff" * 100):
        keeper = kill_driver(project)
        (project / "go").touch()
        wait_for(lambda keeper=keeper: not is_running(keeper))
        (running_folder(project) / "kept" / "1.json").write_bytes(content)
        answer = llc("resume", "job", "-q")
        assert answer.returncode == 0, (content, answer.stderr)
        (project / "go").unlink()
        (project / "log").unlink()
        for path in project.glob(".loops/.h*"):
            subprocess.run(["rm", "-r", path], check=True)


def test_an_action_whose_keeper_is_killed_is_in_doubt(project: Path) -> None:
    """The run continues with an error result; the next action gets a new keeper."""
    write_loop(project, options="on_unknown: fail")
    run = start("run", "job", "-q", "--json")
    wait_for(lambda: contains(project / "log", "started"))
    keeper = wait_for(lambda: keeper_of(run.pid))
    os.kill(keeper, signal.SIGKILL)
    shown, _ = run.communicate(timeout=60)
    assert json.loads(shown)["final_state"] == "failed", shown
    assert result(project)["error"]["kind"] == "unknown-outcome"
    assert (project / "log").read_text() == "started\n"


def test_a_keeper_killed_while_it_starts_an_action(project: Path) -> None:
    """The action may have started, so it is not started again, and its processes are ended."""
    (project / "start.py").write_text(
        "import os, time\n"
        "from llc.runtime.host import keeper_process\n"
        "def tell(self, action, message):\n"
        "    while not os.path.exists('log'):\n"
        "        time.sleep(0.01)\n"
        "    os.kill(os.getpid(), 9)\n"
        "keeper_process._Keeper.tell = tell\n"
        "from llc.runtime.cli import entry; entry.main()"
    )
    write_loop(project, "until test -e go; do sleep 0.02; done")
    run = subprocess.run([sys.executable, "start.py", "run", "job", "-q"], check=False, timeout=60)
    assert run.returncode == 0
    assert result(project)["error"]["kind"] == "unknown-outcome"
    (project / "go").touch()
    time.sleep(0.2)
    assert (project / "log").read_text() == "started\n", "the action was started again or continued"


@pytest.mark.parametrize("kills", ["driver", "both"])
def test_killed_at_any_moment_of_actions(project: Path, kills: str) -> None:
    """Actions of 0.05 to 2 s, with kills at random moments, are performed once if the keeper survives.

    If the keeper is killed too, the policy for effects in doubt applies: the action is repeated or has
    failed.
    """
    chance = random.Random(19)
    for number in range(500 if IS_LARGE else 12):
        seconds = chance.uniform(0.05, 2.0 if IS_LARGE else 0.4)
        command = f"echo a; sleep {seconds}; seq 3000; echo b >&2; sleep 0.02; echo c"
        policy = chance.choice(("rerun", "fail")) if kills == "both" else "rerun"
        write_loop(project, command, f"on_unknown: {policy}")
        run = start("run", "job", "-q")
        wait_for(lambda: contains(project / "log", "started"))
        time.sleep(chance.uniform(0.0, seconds))
        if kills == "both":
            kill_with_keeper(run)
        else:
            run.kill()
        run.communicate()
        if list(project.glob(".loops/.running/job-*")):
            answer = llc("resume", "job", "-q")
            assert answer.returncode == 0, (number, answer.stderr)
        starts = (project / "log").read_text().count("started")
        assert starts == 1 or (kills == "both" and policy == "rerun" and starts == 2), number
        action_result = result(project)
        if policy == "fail" and "error" in action_result:
            assert action_result["error"]["kind"] == "unknown-outcome", number
        else:
            assert action_result["output"].split() == ["a", *map(str, range(1, 3001)), "c"], number
            assert action_result["stderr"] == "b\n"
        (project / "log").unlink()
        for path in project.glob(".loops/.h*"):
            subprocess.run(["rm", "-r", path], check=True)


def test_message_without_its_handles_is_refused() -> None:
    """A message without its file handles is refused."""
    import socket

    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender.send(b"list")
    with pytest.raises(ValueError, match="handles"):
        keeper_messages.receive(receiver, 1)
    receiver.close()
    sender.close()
