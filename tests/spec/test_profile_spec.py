"""`spec/profile.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from spec.blocks import take

BLOCKS = take("profile.md", "yaml", "console")


def stable(text: str) -> str:
    """Without what differs from run to run, and the width of columns."""
    return re.sub(r" +", " ", re.sub(r"-\d{8}-\d{6}-[0-9a-f]{4}\b", "-RUN", text)).strip("\n")


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "llc"
    code = "import sys\nfrom llc.runtime.entry import main\nsys.exit(main())\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"PATH": f"{programs}:{env['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in BLOCKS:
        if block.language == "yaml":
            path = project / block.info
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
            continue
        command, _, expected = block.text.removeprefix("$ ").partition("\n")
        done = subprocess.run(
            ["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert stable(done.stderr + done.stdout) == stable(expected), command
