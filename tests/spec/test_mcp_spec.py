"""`spec/mcp.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spec.blocks import take

BLOCKS = take("mcp.md", "yaml", "python", "sexp", "console")


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    project, programs = tmp_path / "project", tmp_path / "bin"
    (project / ".loops").mkdir(parents=True)
    programs.mkdir()
    code = "import sys\nfrom llc.runtime.entry import main\nsys.exit(main())\n"
    (programs / "llc").write_text(f"#!{sys.executable}\n{code}")
    (programs / "llc").chmod(0o755)
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"PATH": f"{programs}:{env['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in BLOCKS:
        if block.language != "console":
            (project / block.info).write_text(block.text)
            continue
        command, _, expected = block.text.removeprefix("$ ").partition("\n")
        done = subprocess.run(
            ["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert (done.stderr + done.stdout).strip() == expected.strip(), command
