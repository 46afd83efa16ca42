"""A stop request before a run starts has the same output and exit code as a later one; no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.host.errors import EXIT_HANGUP
from llc.runtime.journal.outcome import Outcome
from llc.runtime.launch import early_signals

LOOP = """
name: job
initial: a
states:
  a: {action: 'echo a >> log; sleep 0.3', next: z}
  z: {terminal: true}
"""
STOP_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    return project_dir


# A process that sends itself the signal when it imports the named module, before the run starts.
SIGNALLED_PROCESS = """
import os, sys
number, name = int(sys.argv.pop(1)), sys.argv.pop(1)
class Signalling:
    def find_spec(self, module, path, target=None):
        if module == name:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Signalling())
from llc.runtime.cli.entry import main
raise SystemExit(main())
"""


def run_signalled(number: int, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SIGNALLED_PROCESS, str(int(number)), module, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("number", STOP_SIGNALS)
@pytest.mark.parametrize(
    "module",
    ["llc.runtime.project.options", "llc.runtime.launch.command", "llc.frontend.compile", "llc.vm.code.emit"],
)
def test_signal_before_the_run_starts_is_reported(project: Path, number: int, module: str) -> None:
    """While modules are imported, and while the loop is read and compiled."""
    completed = run_signalled(number, module, "run", "job")
    assert (completed.returncode, completed.stdout, completed.stderr) == (
        130,
        "",
        early_signals.MESSAGE + "\n",
    )
    assert not (project / "log").exists()
    assert not list(project.glob(".loops/.running/*/"))


@pytest.mark.parametrize("words", [["run", "job"], ["status"], ["create", "x"]])
@pytest.mark.parametrize("module", ["llc.runtime", "llc.runtime.cli.entry", "llc.runtime.host.errors"])
def test_signal_before_llc_is_loaded_gives_no_message(project: Path, module: str, words: list[str]) -> None:
    """Ctrl-C right after the start gives no traceback of an import."""
    text = SIGNALLED_PROCESS.replace("llc.runtime.cli.entry", "llc.__main__")
    command = [sys.executable, "-c", text, str(int(signal.SIGINT)), module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_signal_during_a_command_without_run_gives_exit_code_130(project: Path) -> None:
    """The exit code is 130, without a traceback."""
    text = SIGNALLED_PROCESS.replace("llc.runtime.cli.entry", "llc.__main__")
    words = [str(int(signal.SIGINT)), "llc.runtime.inspection.listing", "list"]
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


def test_signal_at_interpreter_exit_gives_no_message(project: Path) -> None:
    """Ctrl-C while Python exits shows no "Exception ignored" message."""
    register = "import os, threading; threading._register_atexit(os.kill, os.getpid(), 2)"
    text = f"{register}\nfrom llc.__main__ import main\nraise SystemExit(main())"
    done = subprocess.run([sys.executable, "-c", text, "list"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert done.stdout.split()[-4:-2] == ["job", "fsm"]


@pytest.mark.parametrize("words", [["run", "job"], ["resume", "job"], ["fork", "job", "--at", "1"]])
@pytest.mark.parametrize(
    "module", ["llc.runtime.project.options", "llc.runtime.launch.command", "llc.ir.diagnostics"]
)
def test_json_is_printed_after_an_early_signal(project: Path, words: list[str], module: str) -> None:
    """The object has the fields of any other outcome."""
    if module == "llc.ir.diagnostics":
        words = [*words, "--jobs=0"]  # a usage error
    completed = run_signalled(signal.SIGTERM, module, *words, "--json")
    assert completed.returncode == 130
    expected = Outcome(None, None, "loop", "interrupted")
    expected.terminated_by = "interrupt"
    expected.error = {"kind": "interrupt", "message": "interrupted", "span": None, "help": None}
    assert json.loads(completed.stdout) == expected.to_json()


def test_ignored_signal_stays_ignored(project: Path) -> None:
    """`nohup llc run` continues."""
    words = "1 llc.runtime.project.options run job -q"
    command = f"trap '' HUP; exec {sys.executable} -c '{SIGNALLED_PROCESS}' {words}"
    assert subprocess.run(["sh", "-c", command], timeout=60).returncode == 0
    assert (project / "log").read_text() == "a\n"


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_at_any_time_leaves_a_resumable_run(project: Path, number: int) -> None:
    """At any moment there is no traceback, and a started run can be resumed."""
    allowed = [(130, "interrupted"), (0, "success")]
    if number == signal.SIGHUP:
        allowed.append((EXIT_HANGUP, "interrupted"))
    for delay in range(15, 300, 15 if os.environ.get("LLC_CRASH") else 45):
        process = subprocess.Popen(
            [sys.executable, "-m", "llc", "run", "job", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay / 1000)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        if process.returncode == -number or "interpreter" in errors or "KeyboardInterrupt" in errors:
            continue  # Python itself had not started
        assert "Traceback" not in errors, delay
        outcome: dict[str, Any] = json.loads(output)
        assert (process.returncode, outcome["status"]) in allowed, delay
        remaining = list(project.glob(".loops/.running/*/"))
        assert len(remaining) == (outcome["run"] is not None and outcome["status"] == "interrupted"), delay
        for folder in remaining:
            done = subprocess.run([sys.executable, "-m", "llc", "resume", folder.name, "-q"], timeout=60)
            assert done.returncode == 0, delay


def test_background_start_forwards_the_signal(project: Path) -> None:
    """The starting process forwards the signal to the run and reports its outcome."""
    # The run's process signals the starting process and waits, so that the signal can be forwarded.
    text = SIGNALLED_PROCESS.replace(
        "os.getpid(), number)", "os.getppid(), number); __import__('time').sleep(60)"
    )
    words = [str(int(signal.SIGTERM)), "llc.frontend.compile", "run", "job", "--background"]
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", early_signals.MESSAGE + "\n")
    assert not list(project.glob(".loops/.running/*/"))


# A process that gets a stop request during `to-string`; the timeout for primitives is short.
COMPUTING = """
import os, signal
from llc.runtime.launch import stop_signals
from llc.vm.values import text_form
stop_signals.PRIMITIVE_TIMEOUT_S = 0.05
add, calls = text_form._Out.add, iter(range(10**9))
def counted(out, text):
    if next(calls) == 1000:
        os.kill(os.getpid(), signal.SIGTERM)
    add(out, text)
text_form._Out.add = counted
from llc.runtime.cli.entry import main
raise SystemExit(main())
"""


def test_long_primitive_does_not_delay_a_stop(project: Path) -> None:
    """A primitive cannot be interrupted, so the process exits; resuming computes it again."""
    program = '(begin (log-message "before") (string-length (to-string (range 300000))))'
    (project / "long.sexp").write_text(program)
    command = [sys.executable, "-c", COMPUTING, "run", "long.sexp", "--json"]
    interrupted = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in interrupted.stderr
    assert interrupted.returncode == 130, interrupted.stdout
    outcome = json.loads(interrupted.stdout)
    assert (outcome["status"], outcome["terminated_by"], outcome["value"]) == (
        "interrupted",
        "interrupt",
        None,
    )
    command = [sys.executable, "-m", "llc", "resume", outcome["run"], "--json"]
    resumed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert json.loads(resumed.stdout)["value"] == 1_988_891
    assert (interrupted.stderr + resumed.stderr).count("before\n") == 1
