"""`spec/mcp.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from spec.blocks import Shell, take

BLOCKS = take("mcp.md", "yaml", "python", "sexp", "console")


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    shell = Shell(tmp_path)
    shell.add("python3", f'exec {sys.executable} "$@"\n', "/bin/sh")
    shell.follow(BLOCKS)
