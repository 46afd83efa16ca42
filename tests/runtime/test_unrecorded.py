"""`parallel-map` without a journal: `llc.evaluate` and the REPL perform effects concurrently, like a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import llc
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context

# Each command ends when the others have started.
MEET = (
    "(parallel-map (lambda (name) (get (system:execute_shell_command (string-append"
    ' "touch " name "; until [ -e a ] && [ -e b ] && [ -e c ]; do sleep 0.01; done; echo " name))'
    ' "stdout"))'
    ' \'("a" "b" "c"))'
)


def test_an_expression_performs_effects_concurrently(project_dir: Path) -> None:
    """The results are in the order of the items."""
    assert llc.evaluate(MEET) == ["a\n", "b\n", "c\n"]


def test_a_run_of_the_api_performs_effects_concurrently(project_dir: Path) -> None:
    (project_dir / "meet.sexp").write_text(MEET)
    assert llc.run("meet.sexp").value == ["a\n", "b\n", "c\n"]


def test_a_session_performs_effects_concurrently(project_dir: Path) -> None:
    """The result is the value of the input."""
    command = [sys.executable, "-m", "llc", "repl"]
    done = subprocess.run(command, input=MEET, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '("a\\n" "b\\n" "c\\n")\n'


def test_effects_above_the_concurrency_limit_wait(project_dir: Path) -> None:
    """Of twenty commands at most eight run at the same time."""
    text = (
        "(parallel-map (lambda (n) (begin (sleep 0.01) (get (system:execute_shell_command"
        ' (string-append "echo " n)) "stdout"))) (range 0 20))'
    )
    assert llc.evaluate(text) == [f"{number}\n" for number in range(20)]


def test_the_end_of_a_program_stops_pending_effects(project_dir: Path) -> None:
    """By `exit`, a fault, or the end of the fuel."""
    begin = '(system:execute_shell_command "sleep 600 & echo $! >> pids; wait")'
    wait = '(system:execute_shell_command "until [ -s pids ]; do sleep 0.01; done")'
    for end, error in (("(exit 3)", llc.Exited), ('(error "bad")', llc.FlowError)):
        text = f"(parallel-map (lambda (n) (if (= n 0) {begin} (begin {wait} {end}))) '(0 1))"
        if error is llc.FlowError:
            text = f"(parallel-map (lambda (n) (if (= n 0) {begin} (begin {wait} (loop () (recur))))) '(0 1))"
        with pytest.raises(error):
            llc.evaluate(text, fuel=100_000)
        pids = [int(word) for word in (project_dir / "pids").read_text().split()]
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (project_dir / "pids").unlink()


def test_ctrl_c_in_a_session_stops_all_pending_effects(project_dir: Path) -> None:
    """The session continues."""
    text = '(parallel-map (lambda (n) (system:execute_shell_command "touch go; exec sleep 600")) \'(1 2))\n'
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "repl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(text + "(+ 1 2)\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (project_dir / "go").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode in (0, 1, 130)
    assert "Traceback" not in out


def test_a_custom_world_performs_one_effect_at_a_time(project_dir: Path) -> None:
    """In the order of the requests, as it need not be thread-safe."""

    class Counting(World):
        beside = None  # type: ignore[assignment]

        def perform(self, effect: Any, context: Context) -> dict[str, Any]:
            assert not self.busy
            self.busy = True
            result = super().perform(effect, context)
            self.busy = False
            self.seen.append(effect.seq)
            return result

    world = Counting()
    world.busy, world.seen = False, []
    text = '(parallel-map (lambda (n) (system:execute_shell_command "true")) \'(1 2 3))'
    assert len(llc.evaluate(text, world=world)) == 3
    assert world.seen == [1, 2, 3]


def test_concurrent_tasks_share_a_model_client(project_dir: Path, messages_server: Any, answers: Any) -> None:
    """Eight concurrent tasks start one client."""
    text = answers.message([{"type": "text", "text": "hi"}], stop_reason="end_turn")
    messages_server.answers[:] = [text]
    task = '(defatom user:x (params n) (instructions "{{n}}"))'
    items = "(map to-string (range 0 8))"
    seconds = {}
    for form in ("map", "parallel-map"):
        begun = time.monotonic()
        flow = f'{task} ({form} (lambda (n) (get (user:x n) "content")) {items})'
        assert llc.evaluate(flow) == ["hi"] * 8
        seconds[form] = time.monotonic() - begun
    assert seconds["parallel-map"] < 2 * seconds["map"]
