"""A terminal that closes under a command that ignores the hang-up signal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from llc.runtime.host.errors import EXIT_HANGUP

# What a prompt begins with: from now on, pasted text comes in brackets.
PROMPT = b"\x1b[?2004h"


@pytest.mark.parametrize("verb", ["repl", "create"])
def test_a_command_without_its_terminal_ends_quietly(tmp_path: Path, verb: str) -> None:
    """As with `nohup`: no signal says that the terminal is gone, and nothing of ours has failed."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "TMPDIR": str(tmp_path)}
    command = f"trap '' HUP; exec {sys.executable} -m llc {verb}"
    child = subprocess.Popen(
        ["sh", "-c", command],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=env,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    while PROMPT not in seen:
        seen += os.read(ours, 1000)
    os.close(ours)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode in (0, EXIT_HANGUP), b"error" in errors) == (True, False), errors
    assert not list(tmp_path.glob("llc-crash-*"))
