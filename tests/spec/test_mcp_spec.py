"""`spec/mcp.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from spec.blocks import Shell, take

BLOCKS = take("mcp.md", "yaml", "python", "sexp", "console")


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, prints the shown output."""
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    shell = Shell(tmp_path)
    shell.add("python3", f'exec {sys.executable} "$@"\n', "/bin/sh")
    shell.follow(BLOCKS)
