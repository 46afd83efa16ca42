"""`spec/profile.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

from spec.blocks import Shell, take

BLOCKS = take("profile.md", "yaml", "console")


def stable(text: str) -> str:
    """Without what differs from run to run, and the width of columns."""
    return re.sub(r" +", " ", re.sub(r"-\d{8}-\d{6}-[0-9a-f]{4}\b", "-RUN", text)).strip("\n")


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    Shell(tmp_path).follow(BLOCKS, stable)
