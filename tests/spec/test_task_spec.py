"""`spec/task.md`: its commands run in a folder with its files and print what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spec.blocks import take
from spec.test_operating_spec import stable

BLOCKS = take("task.md", "xml", "yaml world", "console")


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, standard output first, then standard error."""
    script = tmp_path / "bin" / "llc"
    script.parent.mkdir()
    code = "import sys\nfrom llc.runtime.entry import main\nsys.exit(main())\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    project = tmp_path / "project"
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"PATH": f"{script.parent}:{env['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in BLOCKS:
        if block.language != "console":
            path = project / ("world.yaml" if block.info == "world" else block.info)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            continue
        command, _, expected = block.text.removeprefix("$ ").partition("\n")
        done = subprocess.run(
            ["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert stable(done.stdout + done.stderr) == stable(expected), command
