"""`spec/profile.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

import re
from pathlib import Path

from spec.blocks import Shell, take

BLOCKS = take("profile.md", "yaml", "console")


def stable(text: str) -> str:
    """Remove the width of columns and the parts that differ between runs."""
    return re.sub(r" +", " ", re.sub(r"-\d{8}-\d{6}-[0-9a-f]{4}\b", "-RUN", text)).strip("\n")


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, prints the shown output."""
    Shell(tmp_path).follow(BLOCKS, stable)
