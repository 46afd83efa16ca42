"""`spec/report.md`: its command writes a page."""

from __future__ import annotations

from pathlib import Path

from spec.blocks import Shell, take

BLOCKS = take("report.md", "console")


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    """The report of a run of commands."""
    loops = tmp_path / "project" / ".loops"
    loops.mkdir(parents=True)
    (loops / "tests.yaml").write_text(
        "name: tests\ninitial: check\nstates:\n"
        "  check: {action: 'true', next: done}\n  done: {terminal: true}\n"
    )
    Shell(tmp_path).follow(BLOCKS, lambda text: "" if "Loop completed" in text else text.strip())
    assert (tmp_path / "project" / "tests.html").read_bytes().startswith(b"<!doctype html>")
