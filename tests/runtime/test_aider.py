"""aider as a tool, with a stub on PATH; interactive aider owns the terminal until it exits."""

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

PRINT_ARGUMENTS = 'for a in "$@"; do echo "<$a>"; done'


@pytest.fixture
def aider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the script that is called as `aider`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / ".loops").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def write(script: str) -> None:
        path = tmp_path / "bin" / "aider"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    return write


def test_prompt_and_files_are_arguments(aider: Callable[[str], None]) -> None:
    """Each is one argument, whatever characters it contains."""
    aider(PRINT_ARGUMENTS)
    text = (
        """(aider:automatic (prompt "-fix it's $HOME") (file_context (list "a b.py" "-c.py")) (model "m"))"""
    )
    result = llc.evaluate(text)
    assert result["status"] == "COMPLETE"
    words = result["content"].splitlines()
    assert words[:3] == ["<--model=m>", "<--file=a b.py>", "<--file=-c.py>"]
    assert words[-1] == "<--message=-fix it's $HOME>"
    assert "<--yes-always>" in words


def test_failed_aider_is_a_failed_task(aider: Callable[[str], None]) -> None:
    """The error has the exit code and the output; exceeding the time limit is also a failure."""
    aider("echo no key >&2; exit 3")
    result = llc.evaluate('(aider_automatic (prompt "x"))')
    assert (result["status"], result["notes"]["error"]["reason"]) == ("FAILED", "subtask_failure")
    assert result["notes"]["error"]["message"] == "aider ended with exit code 3: no key"
    aider("exec sleep 30")
    result = llc.evaluate('(aider:automatic (prompt "x") (timeout 0.2))')
    assert result["notes"]["error"]["reason"] == "execution_timeout"


def test_missing_aider_is_a_fault_that_can_be_caught(
    aider: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert llc.evaluate('(try (aider:automatic (prompt "x")) (catch e (get e "kind")))') == "not-found"
    with pytest.raises(llc.FlowError, match="not on PATH"):
        llc.evaluate('(aider:interactive (query "x"))')


def test_interactive_aider_needs_a_terminal(aider: Callable[[str], None]) -> None:
    """The fault is raised before aider starts."""
    aider("touch started")
    with pytest.raises(llc.FlowError, match="needs a terminal"):
        llc.evaluate('(aider:interactive (query "x"))')
    assert not os.path.exists("started")


def spawn() -> Any:
    Path(".loops/flow.sexp").write_text(
        '(list (get (aider:interactive (query "the tests")) "status") (ask "well?"))'
    )
    return terminals.spawn("run", "flow", "--json")


def test_aider_owns_the_terminal_until_it_exits(aider: Callable[[str], None]) -> None:
    """aider reads typed lines and handles Ctrl-C; Ctrl-Z has no effect; then the run reads the terminal."""
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


def test_stopped_run_takes_the_terminal_back(aider: Callable[[str], None]) -> None:
    """SIGTERM ends aider, and the run can be resumed."""
    aider("echo ready; read line")
    child = spawn()
    child.expect("ready")
    child.kill(15)
    child.expect("Resume with")
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 130
