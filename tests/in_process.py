"""Run `llc` inside the test process, which saves the start-up time of a process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from llc.runtime.cli import entry
from llc.runtime.host import secrets
from llc.runtime.ledger import database as ledgers


def run_llc(
    *words: str, program: str = "llc", folder: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Output and exit code of the program with these arguments; its streams are files.

    folder: its working directory. Process-wide settings (secrets to mask, ledgers) are restored afterwards.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        patch.setattr(secrets, "known", secrets.known)
        patch.setattr(ledgers, "shared", ledgers.shared)
        if folder is not None:
            patch.chdir(folder)
        patch.setattr(sys, "argv", [program, *words])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        for name, value in env.items():
            patch.setenv(name, value)
        code = entry.main() if program == "llc" else entry.main_ll_loop()
        outputs = []
        for stream in (out, err):
            stream.flush()
            stream.seek(0)
            outputs.append(stream.read())
    return subprocess.CompletedProcess(words, code, *outputs)
