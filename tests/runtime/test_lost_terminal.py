"""A terminal that closes while its command ignores the hangup signal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from llc.runtime.host.errors import EXIT_HANGUP

# Start of a prompt: enables bracketed paste.
PROMPT = b"\x1b[?2004h"


@pytest.mark.parametrize("subcommand", ["repl", "create"])
def test_command_without_its_terminal_ends_without_error(tmp_path: Path, subcommand: str) -> None:
    """As with `nohup`, no signal reports the closed terminal; the command shows no error."""
    controller, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "TMPDIR": str(tmp_path)}
    command = f"trap '' HUP; exec {sys.executable} -m llc {subcommand}"
    child = subprocess.Popen(
        ["sh", "-c", command],
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=env,
        start_new_session=True,
    )
    os.close(terminal)
    output = b""
    while PROMPT not in output:
        output += os.read(controller, 1000)
    os.close(controller)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode in (0, EXIT_HANGUP), b"error" in errors) == (True, False), errors
    assert not list(tmp_path.glob("llc-crash-*"))
