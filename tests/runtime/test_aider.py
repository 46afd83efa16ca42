"""aider as a tool, with a stub on PATH; the terminal is handed over and taken back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
import terminals

import llc

SHOWS = 'for a in "$@"; do echo "<$a>"; done'


@pytest.fixture
def aider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes `aider` a script."""
    (tmp_path / "bin").mkdir()
    (tmp_path / ".loops").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def write(script: str) -> None:
        path = tmp_path / "bin" / "aider"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    return write


def test_aider_is_given_the_prompt_and_the_files(aider: Callable[[str], None]) -> None:
    """Each as one argument, whatever is in it."""
    aider(SHOWS)
    text = (
        """(aider:automatic (prompt "-fix it's $HOME") (file_context (list "a b.py" "-c.py")) (model "m"))"""
    )
    result = llc.evaluate(text)
    assert result["status"] == "COMPLETE"
    words = result["content"].splitlines()
    assert words[:3] == ["<--model=m>", "<--file=a b.py>", "<--file=-c.py>"]
    assert words[-1] == "<--message=-fix it's $HOME>"
    assert "<--yes-always>" in words


def test_an_aider_that_fails_is_a_failed_task(aider: Callable[[str], None]) -> None:
    """With its exit code and what it said; so is one that takes too long."""
    aider("echo no key >&2; exit 3")
    result = llc.evaluate('(aider_automatic (prompt "x"))')
    assert (result["status"], result["notes"]["error"]["reason"]) == ("FAILED", "subtask_failure")
    assert result["notes"]["error"]["message"] == "aider ended with exit code 3: no key"
    aider("exec sleep 30")
    result = llc.evaluate('(aider:automatic (prompt "x") (timeout 0.2))')
    assert result["notes"]["error"]["reason"] == "execution_timeout"


def test_without_aider_there_is_a_fault_that_says_so(
    aider: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be caught."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert llc.evaluate('(try (aider:automatic (prompt "x")) (catch e (get e "kind")))') == "not-found"
    with pytest.raises(llc.FlowError, match="not on PATH"):
        llc.evaluate('(aider:interactive (query "x"))')


def test_without_a_terminal_nothing_can_be_handed_over(aider: Callable[[str], None]) -> None:
    """A fault, before it is started."""
    aider("touch started")
    with pytest.raises(llc.FlowError, match="needs a terminal"):
        llc.evaluate('(aider:interactive (query "x"))')
    assert not os.path.exists("started")


def spawn() -> Any:
    Path(".loops/flow.sexp").write_text(
        '(list (get (aider:interactive (query "the tests")) "status") (ask "well?"))'
    )
    return terminals.spawn("run", "flow", "--json")


def test_aider_has_the_terminal_until_it_is_left(aider: Callable[[str], None]) -> None:
    """It reads what is typed, Ctrl-C is its own, Ctrl-Z leads nowhere; then the run has it again."""
    aider(
        "trap 'echo caught' INT; stty -echo; echo ready; read line; echo \"got $line\"; read line; echo bye"
    )
    child = spawn()
    child.expect("the tests")
    child.expect("ready")
    child.sendintr()
    child.expect("caught")
    child.send("\x1a")
    time.sleep(0.3)
    child.sendline("one")
    child.expect("got one")
    child.sendline("two")
    child.expect("bye")
    child.expect("answer: ")
    child.sendline("fine")
    child.expect('"value": ."COMPLETE", "fine"')
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0


def test_a_run_that_is_stopped_takes_the_terminal_back(aider: Callable[[str], None]) -> None:
    """SIGTERM ends aider, and the run can be resumed."""
    aider("echo ready; read line")
    child = spawn()
    child.expect("ready")
    child.kill(15)
    child.expect("Resume with")
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 130
