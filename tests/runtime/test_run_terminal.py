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
    """Start llc on a terminal of a given width, in a project with one slow loop."""
    (project_dir / ".loops" / "slow.yaml").write_text(SLOW)
    (project_dir / ".loops" / "stubborn.yaml").write_text(STUBBORN.replace("name: slow", "name: stubborn"))

    def on_terminal(*words: str, width: int = 60, **env: str) -> Any:
        return terminals.spawn(*words, width=width, height=24, **env)

    return on_terminal


def action_pid() -> int:
    wait_for(lambda: os.path.exists("pid") and Path("pid").read_text().endswith("\n"))
    return int(Path("pid").read_text())


def test_the_running_action_shows_live_output_and_a_spinner(spawn: Spawn) -> None:
    """Lines come as they are written; the unended line stands with the elapsed time below them."""
    child = spawn("run", "slow")
    child.expect_exact("first line")
    child.expect(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] 0\.\ds partial")
    child.expect(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] [1-9]\.\ds partial")
    Path("go").touch()
    child.expect_exact("partialend")
    assert exit_code(child) == 0


def test_nothing_of_the_spinner_is_left(spawn: Spawn) -> None:
    """When the run is over the screen holds headers, output, routes and the last line."""
    child = spawn("run", "slow", width=200)
    child.expect(r"0\.\ds partial")
    shown = child.before + child.after
    Path("go").touch()
    child.expect(pexpect.EOF)
    shown += child.before
    left = screen_of(shown)
    assert left[0].startswith("[1/50] a → echo first line;")
    assert left[1:5] == ["       first line", "       partialend", "       → done", ""]
    assert re.fullmatch(r"Loop completed: done \(1 iteration, \d+\.\ds\)", left[5])


def test_live_output_is_dim_unless_colour_is_unwanted(spawn: Spawn) -> None:
    """Output is dim on a terminal; with NO_COLOR there is no colour but still a spinner."""
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
def test_a_narrow_terminal_is_not_overflowed(spawn: Spawn, width: int) -> None:
    """Headers and the spinner are cut to the width, so that a rewritten line stays one line."""
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


def test_ctrl_c_ends_the_action_and_leaves_a_run_that_goes_on(spawn: Spawn) -> None:
    """Exit code 130, the action's group is gone, and the resume command that is shown works."""
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


def test_a_second_ctrl_c_kills_what_does_not_listen(spawn: Spawn) -> None:
    """An action that ignores TERM is killed by the second Ctrl-C."""
    child = spawn("run", "stubborn")
    pid = action_pid()
    child.sendintr()
    child.sendintr()
    assert exit_code(child) == 130
    assert not is_running(pid)


def test_being_asked_to_end_is_like_ctrl_c(spawn: Spawn) -> None:
    """SIGTERM ends the action and leaves a resumable run."""
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


def test_ctrl_c_while_json_is_asked_for_still_answers(spawn: Spawn) -> None:
    """An interrupted `run --json` writes its one object."""
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


def test_resume_asks_about_an_action_that_was_cut_off(spawn: Spawn) -> None:
    """on_unknown: ask. In a terminal the person decides."""
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
