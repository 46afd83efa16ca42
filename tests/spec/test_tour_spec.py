"""`spec/tour.md`: its blocks succeed, in order, in a project with an error to repair."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spec.blocks import take

SHELL, PYTHON = take("tour.md", "sh"), take("tour.md", "python")


def test_the_tour_runs_block_by_block(tmp_path: Path) -> None:
    """All commands succeed, the loop repairs the file, and the Python code prints its outcome."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / "app.py").write_text("import os\n\n\ndef f(x):\n    return x\n", "utf-8")
    # The programs of a virtual environment are in the folder of its interpreter.
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for block in SHELL:
        run = subprocess.run(
            ["bash", "-ec", block.text], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, block.text + run.stdout[-2000:] + run.stderr[-2000:]
    assert "import os" not in (tmp_path / "app.py").read_text("utf-8")
    (snippet,) = PYTHON
    run = subprocess.run(
        [sys.executable, "-c", snippet.text],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout == "success 2\n", run.stdout + run.stderr
