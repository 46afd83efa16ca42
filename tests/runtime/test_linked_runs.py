"""Programs of several files in real runs: journal, status, cache, resume, and snapshots at any point."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import run_llc
from keepers import kill_with_keeper
from linked_programs import FIX, World, drive, program_of, write

from llc.runtime.host.effect_context import Interrupt
from llc.runtime.terminal.session import Session
from llc.vm.values.faults import Fault

INNER = """\
name: inner
initial: count
context: {file: nothing}
states:
  count:
    action: "echo x >>${context.file}; wc -l <${context.file}; while [ -e hold ]; do sleep 0.05; done"
    capture: lines
    next: look
  look:
    call: lib.sexp#enough
    args: ["${captured.lines.output}"]
    on_success: done
    on_failure: count
  done: {terminal: true}
max_iterations: 9
scope: [data]
"""
LIB = "(define (enough text) (sleep 0.001) (>= (parse-number (trim text)) 3))\n"
FLOW = """\
(define (grow file) (get (run-loop "inner" (context (file file))) "iterations"))
(list (grow "a.txt") (grow (string-append "b" ".txt")))
"""
OUTER = """\
name: outer
initial: go
states:
  go: {call: work.sexp#work, args: [c.txt], capture: got, next: say}
  say: {action: "echo ${captured.got.output}", capture: said, next: done}
  done: {terminal: true}
timeout: 60
"""
DIRECT = """\
name: direct
initial: go
states:
  go: {loop: inner, with: {file: "${env.FILE:default=d}.txt"}, on_success: say, on_failure: failed}
  say: {action: "echo ${captured.go.lines.output}", capture: said, next: done}
  done: {terminal: true}
  failed: {terminal: true, status: failure}
timeout: 60
"""
WORK = '(define (work file) (dict (rounds (get (run-loop "inner" (context (file file))) "iterations"))))\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path, inner__yaml=INNER, outer__yaml=OUTER, direct__yaml=DIRECT, flow__sexp=FLOW)
    (tmp_path / ".loops" / "lib.sexp").write_text(LIB)
    (tmp_path / ".loops" / "work.sexp").write_text(WORK)
    return tmp_path


llc = run_llc


def events(project: Path, name: str) -> list[dict[str, Any]]:
    (journal,) = (project / ".loops").glob(f".*/{name}-*/{name}.events.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()]


# --- the journal --------------------------------------------------------------------------------


def test_journal_names_the_loop(project: Path) -> None:
    """Notes of an inner loop have its name; its states are shown with that name."""
    done = llc("run", "outer", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["final_state"], outcome["iterations"], outcome["steps"]) == ("done", 1, 3)
    recorded = events(project, "outer")
    notes = [
        (e["event"], e.get("loop"), e.get("state"))
        for e in recorded
        if e["event"].startswith(("loop", "state"))
    ]
    assert notes[:4] == [
        ("loop_start", "outer", None),
        ("state_enter", None, "go"),
        ("loop_start", "inner", None),
        ("state_enter", "inner", "count"),
    ]
    assert [e["iteration"] for e in recorded if e.get("loop") == "inner" and e["event"] == "state_enter"] == [
        1, 1, 2, 2, 3, 3, 3,
    ]  # fmt: skip
    assert [(e.get("loop"), e["status"]) for e in recorded if e["event"] == "loop_complete"] == [
        ("inner", "success"),
        (None, "success"),
    ]
    assert [e["state"] for e in recorded if e["event"] == "action_start"] == ["inner/count"] * 3 + ["say"]
    (echo_event,) = [e for e in recorded if e["event"] == "action_start" and e["state"] == "say"]
    assert echo_event["action"] == """echo '{"rounds": 3}'"""


def test_fault_in_a_function_ends_the_loop(project: Path) -> None:
    """A fault in a function ends the loop with an error; a limit of an inner loop is a value."""
    (project / ".loops" / "work.sexp").write_text('(define (work file) (error "no work today"))')
    done = llc("run", "outer", "--quiet")
    assert done.returncode == 1
    assert "error[user]: no work today" in done.stderr
    assert ".loops/work.sexp:1:" in done.stderr
    (project / ".loops" / "work.sexp").write_text(
        '(define (work file) (run-loop "inner" (max-iterations 1)))'
    )
    assert llc("run", "outer", "--quiet").returncode == 0


def test_scope_includes_the_scopes_of_inner_loops(project: Path) -> None:
    """A run claims the union of the scopes."""
    done = llc("run", "flow.sexp", "--dry-run", "--json")
    assert json.loads(done.stdout)["scope"] == ["data"]


def test_dry_run_shows_loops_and_calls(project: Path) -> None:
    """The plan has the states of every loop of the program, and their calls."""
    plan = json.loads(llc("run", "flow.sexp", "--dry-run", "--json").stdout)
    (first,) = plan["loops"]
    assert (first["loop"], first["initial"]) == ("inner", "count")
    assert first["limits"] == {"max_iterations": 9}
    by_name = {state["state"]: state for state in first["states"]}
    assert by_name["look"]["calls"] == ["enough"]
    assert by_name["look"]["routes"] == {"success": "done", "failure": "count"}
    outer = json.loads(llc("run", "outer", "--dry-run", "--json").stdout)
    assert outer["states"][0]["calls"] == ["work"]
    text = llc("run", "outer", "--dry-run").stdout
    assert "  call: work\n" in text
    assert "loop inner" in text


@pytest.mark.parametrize("function", ["one", "many"])
def test_timeout_ends_the_commands_of_a_function(project: Path, function: str) -> None:
    """Its processes are ended, also inside `try` and when concurrent; the exit code is that of a limit."""
    (project / ".loops" / "wait.sexp").write_text(
        '(define (wait n) (try (system:execute_shell_command (string-append "sleep 60; echo " (to-string n)))'
        ' (catch fault "woken")))\n'
        "(define (one) (wait 1) (wait 2))\n"
        "(define (many) (parallel-map wait (list 1 2 3)))\n"
    )
    write(
        project,
        late__yaml=f"name: late\ninitial: a\nstates:\n  a: {{call: wait.sexp#{function}, next: b}}\n"
        "  b: {terminal: true}\ntimeout: 0.5\n",
    )
    done = llc("run", "late", "--json", "--quiet")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["status"], outcome["terminated_by"]) == (3, "limit", "timeout")
    assert outcome["duration_ms"] < 30_000


# --- the cache ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".loops/inner.yaml", ".loops/lib.sexp", "flow.sexp"])
def test_change_of_any_file_invalidates_the_cache(project: Path, name: str) -> None:
    """A cached image is used only while all its files are unchanged."""
    cache = project / ".loops" / ".cache"
    assert llc("run", "flow.sexp", "--quiet").returncode == 0
    (entry,) = cache.glob("*.cached")
    modified_at = entry.stat().st_mtime_ns
    for file in ("a.txt", "b.txt"):
        (project / file).unlink()
    assert llc("run", "flow.sexp", "--quiet").returncode == 0
    assert [item.stat().st_mtime_ns for item in cache.glob("*.cached")] == [modified_at]
    path = project / name
    path.write_text(path.read_text() + "\n")
    assert llc("run", "flow.sexp", "--quiet").returncode == 0
    assert max(item.stat().st_mtime_ns for item in cache.glob("*.cached")) > modified_at


def test_removed_file_is_an_error(project: Path) -> None:
    """The error is the same as without a cache."""
    assert llc("run", "flow.sexp", "--quiet").returncode == 0
    (project / ".loops" / "lib.sexp").unlink()
    done = llc("run", "flow.sexp", "--quiet")
    assert done.returncode == 2
    assert "there is no file `.loops/lib.sexp`" in done.stderr


# --- resuming -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["flow.sexp", "outer", "direct"])
def test_run_killed_in_an_inner_loop_resumes_there(project: Path, target: str) -> None:
    """After `kill -9` in a loop in a function in a loop, no finished action is repeated."""
    (project / "hold").touch()
    name = target.removesuffix(".sexp")
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", target, "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    file = project / {"flow.sexp": "a.txt", "outer": "c.txt", "direct": "d.txt"}[target]
    while not file.exists():
        time.sleep(0.01)
    status = json.loads(llc("status", "--json").stdout)
    assert "inner/count" in json.dumps(status)
    kill_with_keeper(process)
    process.wait()
    (project / "hold").unlink()
    done = llc("resume", name, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    # The interrupted action ran twice, so the file was long enough one round earlier.
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "success"
    assert len(file.read_text().splitlines()) == 3
    resumed = next(e for e in events(project, name) if e["event"] == "run_resume")
    assert (resumed["state"], resumed["iteration"]) == ("inner/count", 1)


def test_resumed_run_uses_its_recorded_program(project: Path) -> None:
    """Later changes of the files do not apply."""
    (project / "hold").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "outer", "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (project / "c.txt").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait() == 130
    (project / "hold").unlink()
    for file in ("lib.sexp", "work.sexp", "inner.yaml", "outer.yaml"):
        (project / ".loops" / file).write_text("(broken")
    assert llc("resume", "outer", "--quiet").returncode == 0


# --- snapshots ----------------------------------------------------------------------------------

PROGRAMS = {
    "a flow and its loop": {"f__sexp": FLOW},
    "a loop, a function, a loop": {"f__sexp": '(get-field (run-loop "outer") "captured.said")'},
    "a loop with a timeout": {
        "f__sexp": '(define (slow n) (get (run-loop "slow" (context (n n))) "terminated_by"))'
        "(map slow (list 1 (+ 1 1)))",
        "slow__yaml": "name: slow\ninitial: a\ntimeout: 1.5\nstates:\n"
        "  a: {call: nap.sexp#nap, args: ['${context.n}'], next: b}\n  b: {terminal: true}\n",
    },
    "concurrent calls": {
        "f__sexp": '(define (grow f) (get (run-loop "inner" (context (file f))) "steps"))'
        '(parallel-map grow (list "p" "q"))',
    },
    "a fault in an inner loop": {
        "f__sexp": '(try (run-loop "bad") (catch e (list (get e "kind") (get e "message"))))',
        "bad__yaml": "name: bad\ninitial: a\nstates:\n  a: {call: lib.sexp#enough, args: [[]], next: b}\n"
        "  b: {terminal: true}\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_snapshots_and_fuel_slices_do_not_change_the_result(project: Path, name: str) -> None:
    """Uninterrupted, restored at every effect, and in slices of fuel: the same effects, notes and value."""
    write(project, **PROGRAMS[name])
    (project / ".loops" / "nap.sexp").write_text("(define (nap n) (sleep n) n)")
    program = program_of("f.sexp")
    runs = []
    for options in ({}, {"restoring": True}, {"fuel": 3}, {"restoring": True, "fuel": 7}):
        for file in project.glob("*"):
            if file.suffix == ".txt" or file.name in "pq":
                file.unlink()
        world = World()
        value = drive(program, world, **options)  # type: ignore[arg-type]
        assert not isinstance(value, Fault), value
        runs.append((value, world.asked, world.notes))
    assert all(run == runs[0] for run in runs)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_snapshots_of_generated_programs(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Chains of flows and loops that call each other, some with timeouts, `try` or a jump back."""
    folder = tmp_path_factory.mktemp("made")
    (folder / ".loops").mkdir()
    depth = data.draw(st.integers(1, 4))
    for level in range(depth):
        inner_call = f'(get (run-loop "./l{level + 1}.yaml" (context (n (- n 1)))) "status")'
        is_deepest = level == depth - 1
        body = "(begin (sleep 0.3) (list n))" if is_deepest else inner_call
        wrap = data.draw(
            st.sampled_from(["{}", "(try {} (catch e 'woken))", "(first (map (lambda (x) {}) '(1)))"])
        )
        (folder / f"f{level}.sexp").write_text(f"(define (go n) {wrap.format(body)})")
        limit = data.draw(st.sampled_from(["", "timeout: 0.2\n", "timeout: 5\n", "max_steps: 3\n"]))
        state_timeout = data.draw(st.sampled_from(["", "    timeout: 0.1\n"]))
        (folder / f"l{level}.yaml").write_text(
            f"name: l{level}\ninitial: a\ncontext: {{n: 0}}\nstates:\n"
            f"  a:\n    call: f{level}.sexp#go\n    args: ['${{context.n}}']\n    capture: c\n{state_timeout}"
            f"    on_success: b\n    on_failure: b\n    on_error: {data.draw(st.sampled_from(['a', 'b']))}\n"
            f"  b: {{terminal: true}}\nmax_iterations: 3\n{limit}"
        )
    (folder / "main.sexp").write_text(f'(run-loop "./l0.yaml" (context (n (+ {depth} 0))))')
    program = program_of(str(folder / "main.sexp"))
    runs = []
    for options in ({}, {"restoring": True}, {"fuel": 5}):
        world = World()
        value = drive(program, world, **options)  # type: ignore[arg-type]
        runs.append((value if not isinstance(value, Fault) else value.message, world.asked, world.notes))
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]


def test_plain_loop_does_not_load_the_language(project: Path) -> None:
    """A loop without calls compiles without loading the language."""
    write(project, fix__yaml=FIX)
    code = "import sys, llc.frontend.compile as c; c.compile_file('.loops/fix.yaml')\n"
    code += "print('llc.frontend.expand.program' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_timeout_of_a_loop_in_a_session(project: Path) -> None:
    """Also if the called function was used in the session before, without a timeout."""
    (project / ".loops" / "wait.sexp").write_text("(define (wait) (sleep 60))\n")
    write(
        project,
        late__yaml="name: late\ninitial: a\nstates:\n  a: {call: wait.sexp#wait, next: b}\n"
        "  b: {terminal: true}\ntimeout: 0.3\n",
    )
    session, interrupt = Session(), Interrupt()
    try:
        text = '(sleep 0) (define (go) (get (run-loop "late") "terminated_by")) (go) (sleep 0) (go)'
        answers = list(session.run(session.source(text), interrupt))
    finally:
        session.close()
        interrupt.close()
    assert [answer.value for answer in answers if answer.value is not None][-1] == '"timeout"'
    assert all(answer.is_good for answer in answers)
