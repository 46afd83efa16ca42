"""`spec/task.md`: its commands run in a folder with its files and print what it shows."""

from __future__ import annotations

from pathlib import Path

from spec.blocks import Shell, take
from spec.test_operating_spec import stable

BLOCKS = take("task.md", "xml", "yaml world", "console")


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, standard output first, then standard error."""
    Shell(tmp_path).follow(BLOCKS, stable, lambda done: done.stdout + done.stderr)
