"""`examples/cluster` does what it says: a worker is killed, and another one continues."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

SHOW = Path(__file__).parents[2] / "examples/cluster/show.py"


def test_the_example_shows_a_takeover(tmp_path: Path) -> None:
    """One action is performed twice, the others once; nothing is left behind."""
    done = subprocess.run(
        [sys.executable, str(SHOW)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    begun = Counter(line for line in done.stdout.splitlines() if line.endswith(" begins"))
    ended = Counter(line for line in done.stdout.splitlines() if line.endswith(" ends"))
    assert len(ended) >= 3
    # The action in progress is performed again; the first one may end although its worker was killed.
    assert sum(begun.values()) <= len(begun) + 1
    assert sum(ended.values()) <= len(ended) + 1
    assert "is dead; its runs continue" in done.stdout
    assert not list(tmp_path.iterdir())
