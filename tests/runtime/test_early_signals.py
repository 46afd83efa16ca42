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
STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    return project_dir


# A process that gets the signal when it imports the module that is named, which is before it has begun.
SIGNALLED = """
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


def signalled(number: int, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SIGNALLED, str(int(number)), module, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize(
    "module",
    ["llc.runtime.project.options", "llc.runtime.launch.command", "llc.frontend.compile", "llc.vm.code.emit"],
)
def test_before_a_run_has_begun_it_ends_and_says_so(project: Path, number: int, module: str) -> None:
    """While modules are imported, the loop is read and compiled."""
    done = signalled(number, module, "run", "job")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", early_signals.MESSAGE + "\n")
    assert not (project / "log").exists()
    assert not list(project.glob(".loops/.running/*/"))


@pytest.mark.parametrize("words", [["run", "job"], ["status"], ["create", "x"]])
@pytest.mark.parametrize("module", ["llc.runtime", "llc.runtime.cli.entry", "llc.runtime.host.errors"])
def test_before_the_program_itself_is_loaded_it_ends_without_a_word(
    project: Path, module: str, words: list[str]
) -> None:
    """Ctrl-C right after the start: no traceback of an import."""
    text = SIGNALLED.replace("llc.runtime.cli.entry", "llc.__main__")
    command = [sys.executable, "-c", text, str(int(signal.SIGINT)), module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_later_a_command_that_starts_no_run_ends_with_its_code(project: Path) -> None:
    """The exit code 130, without a traceback."""
    text = SIGNALLED.replace("llc.runtime.cli.entry", "llc.__main__")
    words = [str(int(signal.SIGINT)), "llc.runtime.inspection.listing", "list"]
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


def test_when_a_command_is_over_the_process_ends_without_a_word(project: Path) -> None:
    """Ctrl-C while Python ends: no exception that is shown as ignored."""
    ending = "import os, threading; threading._register_atexit(os.kill, os.getpid(), 2)"
    text = f"{ending}\nfrom llc.__main__ import main\nraise SystemExit(main())"
    done = subprocess.run([sys.executable, "-c", text, "list"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert done.stdout.split()[-4:-2] == ["job", "fsm"]


@pytest.mark.parametrize("verb", [["run", "job"], ["resume", "job"], ["fork", "job", "--at", "1"]])
@pytest.mark.parametrize(
    "module", ["llc.runtime.project.options", "llc.runtime.launch.command", "llc.ir.diagnostics"]
)
def test_where_one_object_was_asked_for_it_is_there(project: Path, verb: list[str], module: str) -> None:
    """With the fields of any other end."""
    if module == "llc.ir.diagnostics":
        verb = [*verb, "--jobs=0"]  # which is refused
    done = signalled(signal.SIGTERM, module, *verb, "--json")
    assert done.returncode == 130
    ended = Outcome(None, None, "loop", "interrupted")
    ended.terminated_by = "interrupt"
    ended.error = {"kind": "interrupt", "message": "interrupted", "span": None, "help": None}
    assert json.loads(done.stdout) == ended.to_json()


def test_a_signal_that_is_ignored_stays_so(project: Path) -> None:
    """`nohup llc run` goes on."""
    command = f"trap '' HUP; exec {sys.executable} -c '{SIGNALLED}' 1 llc.runtime.project.options run job -q"
    assert subprocess.run(["sh", "-c", command], timeout=60).returncode == 0
    assert (project / "log").read_text() == "a\n"


@pytest.mark.parametrize("number", STOPPING)
def test_at_any_time_it_is_clean(project: Path, number: int) -> None:
    """Whenever the signal comes: no traceback, and what had begun can be resumed, or nothing had."""
    ends = [(130, "interrupted"), (0, "success")]
    if number == signal.SIGHUP:
        ends.append((EXIT_HANGUP, "interrupted"))
    for delay in range(15, 300, 15 if os.environ.get("LLC_CRASH") else 45):
        process = subprocess.Popen(
            [sys.executable, "-m", "llc", "run", "job", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay / 1000)
        process.send_signal(number)
        out, shown = process.communicate(timeout=60)
        if process.returncode == -number or "interpreter" in shown or "KeyboardInterrupt" in shown:
            continue  # Python itself was not there yet
        assert "Traceback" not in shown, delay
        answer: dict[str, Any] = json.loads(out)
        assert (process.returncode, answer["status"]) in ends, delay
        left = list(project.glob(".loops/.running/*/"))
        assert len(left) == (answer["run"] is not None and answer["status"] == "interrupted"), delay
        for folder in left:
            done = subprocess.run([sys.executable, "-m", "llc", "resume", folder.name, "-q"], timeout=60)
            assert done.returncode == 0, delay


def test_a_start_in_the_background_passes_it_on(project: Path) -> None:
    """Whoever waits for the run to begin leaves it to that what comes of it."""
    # The run's process signals the one that waits for it, and gives it the time to pass that on.
    text = SIGNALLED.replace("os.getpid(), number)", "os.getppid(), number); __import__('time').sleep(60)")
    words = [str(int(signal.SIGTERM)), "llc.frontend.compile", "run", "job", "--background"]
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", early_signals.MESSAGE + "\n")
    assert not list(project.glob(".loops/.running/*/"))


# A process that is asked to stop in the middle of `to-string`, for which nobody waits long.
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


def test_a_primitive_that_computes_for_long_is_given_up(project: Path) -> None:
    """It never comes back to be asked whether to go on; the resume computes it again."""
    program = '(begin (log-message "before") (string-length (to-string (range 300000))))'
    (project / "long.sexp").write_text(program)
    command = [sys.executable, "-c", COMPUTING, "run", "long.sexp", "--json"]
    begun = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in begun.stderr
    assert begun.returncode == 130, begun.stdout
    told = json.loads(begun.stdout)
    assert (told["status"], told["terminated_by"], told["value"]) == ("interrupted", "interrupt", None)
    command = [sys.executable, "-m", "llc", "resume", told["run"], "--json"]
    resumed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert json.loads(resumed.stdout)["value"] == 1_988_891
    assert (begun.stderr + resumed.stderr).count("before\n") == 1
