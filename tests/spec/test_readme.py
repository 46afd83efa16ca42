"""The README's tour runs as it is written, in a folder with a little to repair."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
EXAMPLES = Path(__file__).parents[2] / "examples"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_tour_runs_block_by_block(tmp_path: Path) -> None:
    """Every command of every block succeeds, the loop repairs the file, the Python snippet says so."""
    (tmp_path / "app.py").write_text("import os\n\n\ndef f(x):\n    return x\n", "utf-8")
    # A virtual environment's programs stand beside its interpreter.
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    assert len(blocks("sh")) >= 4
    for block in blocks("sh"):
        if "examples/" in block:
            shutil.copytree(EXAMPLES, tmp_path / "examples")
        run = subprocess.run(
            ["bash", "-ec", block], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, block + run.stdout[-2000:] + run.stderr[-2000:]
    assert "import os" not in (tmp_path / "app.py").read_text("utf-8")
    (snippet,) = blocks("python")
    run = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert run.stdout == "success 2\n", run.stdout + run.stderr
