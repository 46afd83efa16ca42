"""A run on a terminal: live output, spinner, Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
import terminals
from keepers import kill_with_keeper
from terminals import exit_code, screen_of
from waiting import is_running, wait_for

Spawn = Callable[..., Any]

SLOW = """
name: slow
initial: a
states:
  a:
    action: "echo first line; printf partial; echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo end"
    next: done
  done: {terminal: true}
"""
STUBBORN = SLOW.replace("echo first line", "trap '' TERM; echo first line")


@pytest.fixture
def spawn(project_dir: Path) -> Spawn:
    """Starts llc on a terminal of a given width, in a project with a slow loop."""
    (project_dir / ".loops" / "slow.yaml").write_text(SLOW)
    (project_dir / ".loops" / "stubborn.yaml").write_text(STUBBORN.replace("name: slow", "name: stubborn"))

    def on_terminal(*words: str, width: int = 60, **env: str) -> Any:
        return terminals.spawn(*words, width=width, height=24, **env)

    return on_terminal


def action_pid() -> int:
    wait_for(lambda: os.path.exists("pid") and Path("pid").read_text().endswith("\n"))
    return int(Path("pid").read_text())


def test_the_running_action_shows_live_output_and_a_spinner(spawn: Spawn) -> None:
    """Lines are shown as they are written; the partial line and the elapsed time are below."""
    child = spawn("run", "slow")
    child.expect_exact("first line")
    child.expect(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] 0\.\ds partial")
    child.expect(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] [1-9]\.\ds partial")
    Path("go").touch()
    child.expect_exact("partialend")
    assert exit_code(child) == 0


def test_the_spinner_is_removed_at_the_end(spawn: Spawn) -> None:
    """The screen has headers, output, routes and the last line."""
    child = spawn("run", "slow", width=200)
    child.expect(r"0\.\ds partial")
    shown = child.before + child.after
    Path("go").touch()
    child.expect(pexpect.EOF)
    shown += child.before
    screen = screen_of(shown)
    assert screen[0].startswith("[1/50] a → echo first line;")
    assert screen[1:5] == ["       first line", "       partialend", "       → done", ""]
    assert re.fullmatch(r"Loop completed: done \(1 iteration, \d+\.\ds\)", screen[5])


def test_live_output_is_dim_unless_no_color_is_set(spawn: Spawn) -> None:
    """With NO_COLOR there is still a spinner."""
    child = spawn("run", "slow")
    child.expect_exact("\x1b[2m       first line\x1b[0m")
    child.sendintr()
    assert exit_code(child) == 130
    Path("pid").unlink(missing_ok=True)
    child = spawn("run", "slow", NO_COLOR="1")
    child.expect(r"0\.\ds partial")
    assert "\x1b[2m" not in child.before
    Path("go").touch()
    assert exit_code(child) == 0


def test_a_dumb_terminal_gets_plain_lines(spawn: Spawn) -> None:
    """With TERM=dumb there is neither a spinner nor an escape sequence."""
    child = spawn("run", "slow", TERM="dumb", width=200)
    child.expect_exact("│ first line")
    Path("go").touch()
    child.expect(pexpect.EOF)
    assert "\x1b" not in child.before
    assert "⠋" not in child.before


@pytest.mark.parametrize("width", [8, 30])
def test_lines_are_shortened_to_a_narrow_terminal(spawn: Spawn, width: int) -> None:
    """A rewritten line must not wrap."""
    child = spawn("run", "slow", width=width)
    child.expect_exact("⠙")
    Path("go").touch()
    shown = child.before + child.after
    child.expect(pexpect.EOF)
    shown += child.before
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", shown)
    spun = [part for part in re.split(r"[\r\n]+", plain) if re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", part) or "→ ec" in part]
    assert spun
    assert all(len(part) < width for part in spun), spun


def test_ctrl_c_ends_the_action_and_leaves_a_resumable_run(spawn: Spawn) -> None:
    """Exit code 130, the action's process group ends, and the printed resume command works."""
    child = spawn("run", "slow")
    pid = action_pid()
    child.sendintr()
    child.expect_exact("Loop interrupted: a")
    child.expect(r"Resume with: llc resume (slow-[0-9a-f-]+)")
    run = child.match[1]
    assert exit_code(child) == 130
    assert not is_running(pid)
    Path("go").touch()
    child = spawn("resume", run)
    child.expect_exact(f"Resuming {run} in a")
    child.expect_exact("Loop completed: done")
    assert exit_code(child) == 0


def test_a_second_ctrl_c_kills_an_action_that_ignores_sigterm(spawn: Spawn) -> None:
    child = spawn("run", "stubborn")
    pid = action_pid()
    child.sendintr()
    child.sendintr()
    assert exit_code(child) == 130
    assert not is_running(pid)


def test_sigterm_is_handled_like_ctrl_c(spawn: Spawn) -> None:
    """It ends the action and leaves a resumable run."""
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "slow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = action_pid()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Loop interrupted: a" in out
    assert "Resume with: llc resume slow-" in err
    assert not is_running(pid)


def test_an_interrupted_run_with_json_prints_its_result(spawn: Spawn) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "slow", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    action_pid()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert '"status": "interrupted"' in out
    assert out.count("\n") == 1


def test_resume_asks_about_an_action_in_doubt(spawn: Spawn) -> None:
    """With `on_unknown: ask` in a terminal, the user decides."""
    text = SLOW.replace("    next: done\n", "    next: done\n    on_unknown: ask\n")
    Path(".loops/slow.yaml").write_text(text)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "slow", "-q"])
    action_pid()
    kill_with_keeper(process)
    process.wait()
    Path("go").touch()
    child = spawn("resume", "slow", width=200)
    child.expect_exact("[r/f/s]")
    child.sendline("s")
    child.expect_exact("error[stopped]")
    child.expect_exact("not resumed")
    assert exit_code(child) == 1
    child = spawn("resume", "slow", width=200)
    child.expect_exact("The outcome of this action is unknown: echo first line")
    child.sendline("what?")
    child.expect_exact("[r/f/s]")
    child.sendline("r")
    child.expect_exact("Loop completed: done")
    assert exit_code(child) == 0
