"""README.md: its commands succeed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_its_commands_run(tmp_path: Path) -> None:
    """All commands of all blocks succeed, in order, in a project."""
    # The programs of a virtual environment are in the folder of its interpreter.
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for block in blocks("sh"):
        run = subprocess.run(
            ["bash", "-ec", block], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, block + run.stdout[-2000:] + run.stderr[-2000:]


def test_it_is_short() -> None:
    """The README has at most 80 lines; the chapters in `spec/` have the details."""
    assert README.count("\n") <= 80
