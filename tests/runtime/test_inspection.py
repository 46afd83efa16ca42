"""Inspection of runs: status, attach, logs, list --running; with real processes and terminals."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import terminals
from hypothesis import example, given
from hypothesis import strategies as st
from in_process import run_llc
from keepers import kill_with_keeper
from terminals import exit_code
from waiting import wait_for

from llc.runtime.execution.observer import Display, ForwardingDisplay
from llc.runtime.host.paths import HISTORY
from llc.runtime.inspection import history, logs, status, stop
from llc.runtime.journal import journal
from llc.runtime.journal.events import KINDS, read_event
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.journal.run_history import RunHistory
from llc.runtime.runs import locks, runs
from llc.runtime.runs.follower import Follower
from llc.runtime.runs.lookup import find_unfinished
from llc.runtime.terminal import live_tail, redaction

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """
name: talks
initial: count
budget: {usd: 5, tokens: 1000}
timeout: 3600
states:
  count:
    action: "echo 4"
    capture: errors
    evaluate: {type: output_numeric, operator: eq, target: 0}
    on_success: done
    on_failure: fix
  fix:
    action: "echo fixing; printf part; while [ ! -e go ]; do sleep 0.05; done; echo ial; exit 3"
    next: done
  done: {terminal: true}
max_iterations: 20
"""


@pytest.fixture
def project(project_dir: Path) -> Iterator[Path]:
    (project_dir / ".loops" / "talks.yaml").write_text(LOOP)
    yield project_dir
    stop.stop(stop.live_runs(None), 0.5)


@pytest.fixture
def llc(project: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Runs llc with files as its streams."""

    return run_llc


def start_run() -> RunFolder:
    """A background run whose action has printed output and waits."""
    command = [sys.executable, "-m", "llc", "run", "talks", "--background", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    run = find_unfinished(done.stdout.strip())
    wait_for(lambda: "part" in "".join(tail.text for tail in live_tail.read(run.live)))
    return run


def has_ended() -> bool:
    return not list(runs.runs_in(""))


# --- status -------------------------------------------------------------------------------------


def test_status_shows_where_a_run_is(project: Path, llc: Llc) -> None:
    """State, iteration, the running action with its output, captures, verdict, budget and log."""
    run = start_run()
    lines = llc("status", "talks").stdout.splitlines()
    assert lines[0] == f"{run.id}: running (pid {run.about()['pid']}, in the background)"
    facts = {line[2:13].strip(): line[13:] for line in lines[1:]}
    assert facts["state"] == "fix"
    assert facts["iteration"] == "1 of 20"
    assert re.fullmatch(r"\d+\.\ds of 1h( 0m)?( 0s)?", facts["elapsed"])
    assert facts["action"].startswith("echo fixing; printf part;")
    assert facts["verdict"] == "failure (in count, value 4)"
    assert facts["captured"] == "errors = 4"
    assert facts["spent"] == "0 of 5 USD, 0 of 1,000 tokens"
    assert facts["log"] == run.log
    assert [line.strip() for line in lines if "│" in line] == ["│ fixing", "│ part"]


def test_status_as_json_has_the_same_facts(project: Path, llc: Llc) -> None:
    """The JSON form is one object for one run, and a list without a name."""
    run = start_run()
    facts = json.loads(llc("status", run.id, "--json").stdout)
    assert (facts["status"], facts["state"], facts["iteration"], facts["max_iterations"]) == (
        "running",
        "fix",
        1,
        20,
    )
    assert facts["captured"]["errors"]["output"] == "4\n"
    assert facts["last_verdict"]["verdict"] == "failure"
    assert facts["budget"] == {
        "usd": {"used": 0, "limit": 5},
        "tokens": {"used": 0, "limit": 1000},
        "calls": {"used": 0, "limit": None},
        "seconds": {"used": 0, "limit": None},
    }
    ((action,), seq) = (facts["actions"], facts["actions"][0]["seq"])
    assert (action["kind"], action["state"], action["tail"], seq) == ("shell", "fix", "fixing\npart", 2)
    assert [row["run"] for row in json.loads(llc("status", "--json").stdout)] == [run.id]


def test_status_of_a_finished_run_shows_its_outcome(project: Path, llc: Llc) -> None:
    """The name of a loop selects its last run if none is unfinished."""
    run = start_run()
    (project / "go").touch()
    wait_for(has_ended)
    text = llc("status", "talks").stdout
    assert text.startswith(f"{run.id}: success\n")
    assert "state      done\n" in text
    assert "no run is unfinished" in llc("status").stdout


def test_status_reports_a_crashed_run(project: Path, llc: Llc) -> None:
    """A run whose process is gone is shown with the next step; its position is that of the journal."""
    run = start_run()
    kill_with_keeper(run.about()["pid"])
    wait_for(lambda: not locks.is_live(run))
    Path("go").touch()
    facts = json.loads(llc("status", "talks", "--json").stdout)
    assert (facts["status"], facts["state"], facts["pid"], facts["actions"]) == ("crashed", "fix", None, [])
    assert f"Resume with: llc resume {run.id}" in llc("status", "talks").stdout
    llc("resume", "talks", "-q")
    assert json.loads(llc("status", run.id, "--json").stdout)["resumed"] == 1


def test_watch_redraws_in_place_and_ends_with_the_run(project: Path) -> None:
    """On a terminal the same lines are redrawn; the command ends when the run ends."""
    start_run()
    child = terminals.spawn("status", "talks", "--watch", width=60)
    child.expect("running")
    child.expect(r"\x1b\[\d+F")
    Path("go").touch()
    child.expect("success")
    assert exit_code(child) == 0


def test_watch_in_a_pipe_prints_changes(project: Path) -> None:
    """Each new position is printed once, without escape sequences; as JSON, one line each."""
    start_run()
    command = [sys.executable, "-m", "llc", "status", "talks", "--watch"]
    plain = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
    assert plain.stdout is not None
    assert lines.stdout is not None
    first, first_json = plain.stdout.readline(), lines.stdout.readline()
    Path("go").touch()
    shown = first + plain.communicate(timeout=30)[0]
    assert "\x1b" not in shown
    assert shown.count(": running") == 1
    assert shown.count(": success") == 1
    printed = first_json + lines.communicate(timeout=30)[0]
    statuses = [json.loads(line)["status"] for line in printed.splitlines()]
    assert statuses[0] == "running"
    assert statuses[-1] == "success"


def test_status_fits_a_narrow_terminal() -> None:
    """No line of a status exceeds the width, whatever the values."""
    empty_fields = (
        "terminated_by",
        "pid",
        "driven_by",
        "ended_at",
        "timeout_ms",
        "last_verdict",
        "evidence",
        "value",
        "error",
        "log",
    )
    facts: dict[str, Any] = dict.fromkeys(empty_fields)
    facts |= {
        "run": "r" * 100,
        "program": "p" * 300,
        "path": "",
        "status": "interrupted",
        "background": False,
        "kept": True,
        "kept_results": [1],
    }
    facts |= {"state": "s" * 300, "iteration": 1, "max_iterations": 2, "steps": 1, "resumed": 0}
    facts |= {"journal": "", "waits_for": [], "forked_from": {"run": "f" * 100, "at": 3}, "elapsed_ms": 1}
    agent_facts = {
        "effect": 1,
        "session": "s" * 200,
        "model": None,
        "tools": 3,
        "running": ["Edit " + "x" * 300],
    }
    facts["agent"] = {**agent_facts, "files": ["f" * 300], "refusals": ["r" * 300], "answer": "a\n" * 300}
    facts["files"] = [["M", "p" * 300]] * 9
    facts["captured"] = {"x": {"output": "é" * 500, "exit_code": 0}}
    facts["actions"] = [
        {"kind": "shell", "action": "a" * 300, "pid": 2**22, "elapsed_ms": 1, "tail": "t" * 500 + "\x1b[2J\n"}
    ]
    facts["budget"] = {unit: {"used": 0, "limit": None} for unit in ("usd", "tokens", "calls", "seconds")}
    text = status.as_text(facts, status.Screen(None), 50)
    assert max(map(len, text.splitlines())) <= 50
    assert "\x1b" not in text


# --- the live tail ------------------------------------------------------------------------------


def test_the_live_file_is_bounded_and_removed(tmp_path: Path) -> None:
    """It contains the end of the output, counts the bytes before it, and is removed at the end."""
    path = str(tmp_path / "x.live")
    display = live_tail.LiveDisplay(Display(), live_tail.LiveFile(path))
    display.effect_start("shell", {})
    for number in range(10_000):
        display.output("output", f"line {number}\n")
    assert not os.path.exists(path)  # an action shorter than a tick writes nothing
    display.tick()
    (tail,) = live_tail.read(path)
    assert tail.text.endswith("line 9999\n")
    assert len(tail.text) <= live_tail.KEPT
    assert tail.skipped["output"] + len(tail.text) == sum(len(f"line {n}\n") for n in range(10_000))
    display.effect_end("shell", {})
    assert not os.path.exists(path)


def test_wrapping_displays_forward_every_call() -> None:
    """A wrapping display forwards every call, and wraps the displays of concurrent effects itself."""
    methods = {name for name in vars(Display) if not name.startswith("_")}
    for display in (live_tail.LiveDisplay, redaction.MaskedDisplay):
        assert issubclass(display, ForwardingDisplay)
        assert methods <= vars(ForwardingDisplay).keys() | vars(display).keys()


def test_an_invalid_live_file_is_ignored(tmp_path: Path) -> None:
    """A torn or foreign file shows nothing and causes no error."""
    path = tmp_path / "x.live"
    assert live_tail.read(str(path)) == []
    for text in (b"", b"{", b"[]", b'{"actions": 3}', b'{"actions": [{"seq": "x"}]}', b"\xff"):
        path.write_bytes(text)
        assert live_tail.read(str(path)) == []


# --- attach -------------------------------------------------------------------------------------


def spawn_attach(*words: str) -> Any:
    return terminals.spawn("attach", "talks", *words, width=200, height=24, NO_COLOR="1")


def test_attach_shows_the_same_as_the_foreground(project: Path) -> None:
    """The state line, past and new output, and the outcome; the exit code is that of the run."""
    run = start_run()
    child = spawn_attach()
    child.expect_exact(f"Attached to {run.id}")
    child.expect_exact("[1/20] fix → echo fixing;")
    child.expect_exact("       fixing")
    child.expect(r"\d\.\ds part")
    (project / "go").touch()
    child.expect_exact("       partial\r\n")
    child.expect_exact("✗ exit 3")
    child.expect_exact("→ done")
    child.expect_exact("Loop completed: done (1 iteration")
    assert exit_code(child) == 0


def test_ctrl_c_detaches_and_the_run_continues(project: Path) -> None:
    """Detaching does not affect the run."""
    run = start_run()
    child = spawn_attach()
    child.expect(r"\ds part")
    child.sendintr()
    child.expect_exact(f"Detached; {run.id} is still running")
    assert exit_code(child) == 0
    (project / "go").touch()
    wait_for(has_ended)


def test_with_stop_ctrl_c_stops_the_run(project: Path) -> None:
    """With `--stop`, Ctrl-C acts as in the foreground: exit code 130 and a resumable run."""
    run = start_run()
    child = spawn_attach("--stop")
    child.expect(r"\ds part")
    child.sendintr()
    child.expect_exact("Loop interrupted: fix")
    child.expect_exact(f"Resume with: llc resume {run.id}")
    assert exit_code(child) == 130


def test_attach_reports_a_crash(project: Path) -> None:
    """The exit code is 1."""
    run = start_run()
    child = spawn_attach()
    child.expect(r"\ds part")
    kill_with_keeper(run.about()["pid"])
    child.expect_exact(" crashed")
    assert exit_code(child) == 1
    (project / "go").touch()


def test_attach_needs_an_active_run(project: Path, llc: Llc) -> None:
    """For a finished run the error names its log."""
    run = start_run()
    (project / "go").touch()
    wait_for(has_ended)
    done = llc("attach", "talks")
    assert (done.returncode, f"llc logs {run.id}" in done.stderr) == (1, True)


# --- logs ---------------------------------------------------------------------------------------


def test_logs_show_each_event_in_order(project: Path, llc: Llc) -> None:
    """Readable lines with times: states, commands, output, verdicts, routes and the outcome."""
    (project / "go").touch()
    llc("run", "talks", "-q")
    shown = re.sub(r"exit 0 \(\d+\.\ds\)", "exit 0 (…s)", llc("logs", "talks").stdout)
    lines = [line[14:] for line in shown.splitlines()[1:]]
    assert lines[0].endswith(" of talks (.loops/talks.yaml) starts")
    assert lines[1:10] == [
        "loop talks",
        "[1] count",
        "  #1 $ echo 4",
        "     │ 4",
        "  #1 exit 0 (…s)",
        "  ✗ failure (4 = 0)",
        "  → fix",
        "[1] fix",
        lines[9],
    ]
    assert lines[-1].startswith("run ends: success (1 iteration,")


def test_logs_mark_a_verdict_like_progress(project: Path, llc: Llc) -> None:
    """Verdicts of people and models are neither good nor bad: only the loop decides."""
    (project / "words.yaml").write_text(
        "name: words\ninitial: a\nstates:\n"
        "  a: {action: 'Go?', action_type: ask, choices: [yes, no], default: yes, timeout: 1,"
        " on_yes: b, on_no: b}\n"
        "  b: {terminal: true}\n"
    )
    shown = llc("run", "words.yaml").stdout
    assert "• yes" in shown
    assert "• yes" in llc("logs", "words").stdout


def test_logs_as_json_are_the_events(project: Path, llc: Llc) -> None:
    """One object per event, as in the journal without the checksum; `-n` selects the last events."""
    (project / "go").touch()
    llc("run", "talks", "-q")
    (run,) = runs.runs_in("", HISTORY)
    shown = [json.loads(line) for line in llc("logs", run.id, "--json").stdout.splitlines()]
    written = [json.loads(line) for line in Path(run.journal).read_text().splitlines()]
    assert shown == [{name: value for name, value in event.items() if name != "crc"} for event in written]
    (last,) = llc("logs", run.id, "--json", "-n", "1").stdout.splitlines()
    assert json.loads(last)["event"] == "run_end"


def test_logs_follow_a_run_to_its_end(project: Path) -> None:
    """`-f` shows new events, follows the run into the history and ends with it."""
    start_run()
    command = [sys.executable, "-m", "llc", "logs", "talks", "-f"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert follower.stdout is not None
    shown = ""
    while not shown:  # `logs -f` follows the run now
        assert select.select([follower.stdout], [], [], 60)[0]
        shown = os.read(follower.stdout.fileno(), 100_000).decode()
    (project / "go").touch()
    shown += follower.communicate(timeout=60)[0].decode()
    assert "partial" in shown
    assert shown.splitlines()[-1].endswith("s)")
    assert "run ends: success" in shown.splitlines()[-1]


def test_logs_of_a_run_without_a_journal_are_one_error(project: Path, llc: Llc) -> None:
    """An unreadable journal is an error message, not an exception."""
    (project / "go").touch()
    llc("run", "talks", "-q")
    (run,) = runs.runs_in("", HISTORY)
    os.unlink(run.journal)
    done = llc("logs", run.id)
    assert (done.returncode, "error[no-record]" in done.stderr) == (1, True)


def test_runs_are_completed(project: Path, llc: Llc) -> None:
    """Shell completion offers active runs and their loops; for `logs` also finished runs."""
    (project / "go").touch()
    llc("run", "talks", "-q")
    (run,) = runs.runs_in("", HISTORY)

    def completed(*words: str) -> list[str]:
        env = {"_LLC_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": "2"}
        command = [sys.executable, "-m", "llc"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, check=False)
        return done.stdout.split()

    for name in ("logs", "status", "history", "clean"):
        assert completed("llc", name, "tal") == ["talks", run.id]
    for name in ("stop", "attach"):
        assert completed("llc", name, "tal") == []


def test_every_subcommand_shows_examples(llc: Llc) -> None:
    """The help of each inspection subcommand ends with commands to copy."""
    for name in ("status", "stop", "attach", "logs", "history", "clean"):
        shown = llc(name, "--help").stdout
        assert f"Examples:\n    llc {name}" in shown


def test_attach_names_the_effect_of_each_line(project: Path) -> None:
    """Each output line of concurrent actions names its action."""
    (project / "par.sexp").write_text(
        '(parallel-map (system:execute_shell_command (command (string-append "echo item-" '
        '(number->string item) "; until [ -e go ]; do sleep 0.1; done"))) (list 1 2))'
    )
    command = [sys.executable, "-m", "llc"]
    subprocess.run([*command, "run", "par.sexp", "--background", "-q"], check=True, timeout=60)
    wait_for(lambda: [run for run in runs.runs_in("") if len(live_tail.read(run.live)) == 2])
    follower = subprocess.Popen([*command, "attach", "par.sexp"], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    lines: list[str] = []
    while not {"#1 │ item-1", "#2 │ item-2"} <= set(lines):
        lines.append(follower.stdout.readline().rstrip("\n"))
        assert lines[-1], lines
    (project / "go").touch()
    lines += follower.communicate(timeout=60)[0].splitlines()
    assert sum("item-1;" in line for line in lines) == 1


def test_a_long_output_is_shown_completely(project: Path, llc: Llc) -> None:
    """A blob is read from the current location of the run folder."""
    (project / "go").touch()
    (project / ".loops" / "long.yaml").write_text(
        "name: long\ninitial: a\nstates:\n  a: {action: 'seq 20000', next: z}\n  z: {terminal: true}\n"
    )
    llc("run", "long", "-q")
    assert "│ 20000\n" in llc("logs", "long").stdout
    (run,) = runs.runs_in("", HISTORY)
    for name in os.listdir(run.outputs):
        os.unlink(os.path.join(run.outputs, name))
    assert "│ [108894 bytes, lost]\n" in llc("logs", "long").stdout


# --- summaries ----------------------------------------------------------------------------------


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FIELDS = sorted({field for kind in KINDS.values() for field in kind.fields} | {"usage"})
events = st.builds(
    lambda kind, fields, second: {**fields, "event": kind, "ts": second},
    st.sampled_from(list(KINDS)) | st.text(max_size=5),
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6),
    st.sampled_from(["2024-01-15T10:00:00.000Z", "2024-02-30T10:00:00.000Z", "now", "", None, 3]),
)


@given(st.lists(events, max_size=8))
@example([{"event": "run_end", "evidence": {"": None}, "ts": "2024-01-15T10:00:00.000Z"}])
def test_any_journal_content_can_be_inspected(recorded: list[dict[str, Any]]) -> None:
    """Events not written by llc, as in a folder from a repository, cause no error."""
    with TemporaryDirectory() as root:
        runs.make_running_folder(root)
        run = RunFolder.create(root, "x")
        Path(run.journal).write_bytes(b"".join(map(journal.seal, recorded)))
        screen = status.Screen(None)
        view = status.RunView(run)
        text = status.as_text(view.status(), screen, 80)
        follower = Follower(run)
        formatter = logs.LogFormatter(run, follower, screen, is_verbose=True)
        text += "".join(line for event in follower.events() for line in formatter.lines(event))
        view.close()
        follower.close()
        run.finish()
        facts = history.facts(run)
        assert facts is not None
        assert facts == history.facts(run)
        text += history.as_text({"runs": [facts], "total": 1, **history.totals([facts])}, None, screen)
        assert "\x1b" not in text


def test_a_summary_adds_up_over_a_resume() -> None:
    """Time between interruption and resume is not active time; verdicts and costs of a state are added."""
    run_history = RunHistory()

    def event(second: int, event: str, **fields: Any) -> None:
        run_history.add(read_event({"event": event, "ts": f"2024-01-15T10:00:{second:02}.000Z", **fields}))

    event(0, "run_start", program="x")
    event(0, "state_enter", state="a", iteration=1)
    event(1, "action_start", seq=1, kind="agent", state="a", action="/x")
    event(5, "action_complete", seq=1, result={"usage": {"usd": 0.5, "tokens": 10}})
    event(5, "run_interrupted", state="a")
    event(30, "run_resume", state="a", iteration=1)
    event(30, "effect_start", seq=2, kind="evaluate")
    event(31, "effect_complete", seq=2, result={"usage": {"usd": None, "tokens": 5}})
    event(31, "evaluate", state="a", verdict="failure")
    event(32, "state_enter", state="b", iteration=1)
    assert run_history.active_ms() == 7000
    assert (run_history.used.usd, run_history.used.tokens, run_history.used.unpriced, run_history.state) == (
        0.5,
        15,
        1,
        "b",
    )
    state_facts = run_history.states["a"].to_json()
    assert state_facts == {
        "entered": 1,
        "duration_ms": 7000,
        "verdicts": {"failure": 1},
        "usd": 0.5,
        "tokens": 15,
        "effects": 2,
        "effect_ms": 0,
        "errors": 0,
    }


@pytest.mark.parametrize("name", ["lock", "odd.events.jsonl", "odd.state.json", "active", "odd.live"])
@pytest.mark.parametrize("line", ["list --running", "status", "stop --wait 1", "run fix"])
def test_a_pipe_in_a_run_folder_does_not_block(project: Path, name: str, line: str) -> None:
    """Reading does not wait for a named pipe in place of a store file; other runs are not affected."""
    (project / ".loops").mkdir(exist_ok=True)
    (project / ".loops/fix.yaml").write_text(
        "name: fix\ninitial: a\nstates: {a: {action: 'true', next: b}, b: {terminal: true}}\n"
    )
    folder = project / ".loops/.running/odd-20240101-000000-0000"
    folder.mkdir(parents=True)
    (folder / "odd.events.jsonl").write_text("{}\n")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    command = [sys.executable, "-m", "llc", *line.split()]
    done = subprocess.run(command, cwd=project, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert b"internal" not in done.stderr
    assert done.returncode == 0 or line != "run fix"
