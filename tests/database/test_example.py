"""`examples/cluster`: a worker is killed, and another one continues."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

SHOW = Path(__file__).parents[2] / "examples/cluster/show.py"


def test_the_example_shows_a_takeover(tmp_path: Path) -> None:
    """One action is performed twice, the others once; nothing remains afterwards."""
    result = subprocess.run(
        [sys.executable, str(SHOW)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    starts = Counter(line for line in result.stdout.splitlines() if line.endswith(" begins"))
    ends = Counter(line for line in result.stdout.splitlines() if line.endswith(" ends"))
    assert len(ends) >= 3
    # The action in progress is performed again; the first one may end although its worker was killed.
    assert sum(starts.values()) <= len(starts) + 1
    assert sum(ends.values()) <= len(ends) + 1
    assert "is dead; its runs continue" in result.stdout
    assert not list(tmp_path.iterdir())
