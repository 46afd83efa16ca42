"""`spec/agents.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spec.blocks import take
from spec.test_operating_spec import stable

BLOCKS = take("agents.md", "yaml", "sh helper", "console")


def test_the_commands_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    project = tmp_path / "project"
    (project / ".loops").mkdir(parents=True)
    script = tmp_path / "bin" / "llc"
    script.parent.mkdir()
    code = "import sys\nfrom llc.runtime.entry import main\nsys.exit(main())\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "LLC_AGENT")
    }
    env |= {"PATH": f"{script.parent}:{env['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in BLOCKS:
        if block.language == "sh":
            (project / "helper").write_text(f"#!/bin/sh\n{block.text}")
            (project / "helper").chmod(0o755)
        elif block.language == "yaml":
            (project / ("world.yaml" if block.info == "world" else block.info)).write_text(block.text)
        else:
            command, _, expected = block.text.removeprefix("$ ").partition("\n")
            done = subprocess.run(
                ["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, check=False
            )
            assert stable(done.stdout + done.stderr) == stable(expected), command
