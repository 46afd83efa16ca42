"""mypy in strict mode accepts the package and typical code of its users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("ir", "frontend", "vm", "runtime")
USER = """
import llc

image: llc.Image = llc.compile("name: x", context={"a": 1}, max_iterations=3)
machine = llc.Machine(image)
stop = machine.resume()
if isinstance(stop, llc.Effect):
    kind: str = stop.kind
outcome: llc.Outcome = llc.run("x", script="world.yaml")
reveal_type(outcome.exit_code)
"""


def mypy(folder: Path, *arguments: str) -> str:
    """Output of mypy, run in a folder in which the repository is named `llc`, as mypy requires."""
    (folder / "llc").symlink_to(ROOT)
    given = ("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"))
    command = [sys.executable, "-m", "mypy", *given, *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    return run.stdout + run.stderr


def test_the_package_is_typed(tmp_path: Path) -> None:
    """Strict mypy reports nothing for llc, and a user's script sees its types."""
    (tmp_path / "user.py").write_text(USER, "utf-8")
    packages = [word for folder in FOLDERS for word in ("-p", f"llc.{folder}")]
    output = mypy(tmp_path, *packages, "-m", "user")
    lines = [line for line in output.splitlines() if "Success" not in line]
    assert lines == ['user.py:10: note: Revealed type is "int"'], output
