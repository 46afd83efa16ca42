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
    """What the program prints with these arguments, and its exit code; its streams are files.

    folder: to run it in. What it sets for its process (secrets to mask, ledgers) is as before afterwards.
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
        shown = []
        for stream in (out, err):
            stream.flush()
            stream.seek(0)
            shown.append(stream.read())
    return subprocess.CompletedProcess(words, code, *shown)
