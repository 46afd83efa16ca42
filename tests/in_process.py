"""`llc` in the process of the tests: the entry of the program, without the time that a process takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llc.runtime.cli import entry


def run_llc(
    patch: pytest.MonkeyPatch, folder: Path, *words: str, program: str = "llc", **env: str
) -> subprocess.CompletedProcess[str]:
    """What the program prints with these arguments, and its exit code; its streams are files in `folder`."""
    streams = [folder / "stdout", folder / "stderr"]
    with patch.context() as own, streams[0].open("w") as out, streams[1].open("w") as err:
        own.setattr(sys, "argv", [program, *words])
        own.setattr(sys, "stdout", out)
        own.setattr(sys, "stderr", err)
        for name, value in env.items():
            own.setenv(name, value)
        code = entry.main() if program == "llc" else entry.main_ll_loop()
    shown = [path.read_text() for path in streams]
    for path in streams:
        path.unlink()
    return subprocess.CompletedProcess(words, code, *shown)
