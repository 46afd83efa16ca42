"""`spec/task.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

from pathlib import Path

from spec.blocks import Shell, take
from spec.test_operating_spec import stable

BLOCKS = take("task.md", "xml", "yaml world", "console")


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block prints the shown output: standard output first, then standard error."""
    Shell(tmp_path).follow(BLOCKS, stable, lambda done: done.stdout + done.stderr)
