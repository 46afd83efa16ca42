"""`spec/operating.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from spec.blocks import Shell, take, text_of

from llc.runtime.host import secrets
from llc.runtime.host.paths import KEPT
from llc.runtime.inspection import logs, stop

TEXT = text_of("operating.md")
BLOCKS = take("operating.md", "yaml", "console")
# What differs from run to run.
VOLATILE = (
    (re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "MOMENT"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "DAY"),
    (re.compile(r"\d\d:\d\d:\d\d\.\d{3}"), "CLOCK"),
    (re.compile(r"\b\d+\.\ds"), "TIME"),
    (re.compile(r"pid \d+"), "PID"),
    (re.compile(r" +$", re.MULTILINE), ""),
)


def stable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip("\n")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    stop.stop(stop.live_runs(None), 1.0)


def test_the_commands_print_what_is_shown(project: Path, tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there.

    What goes on beside it is looked at until it has come so far.
    """
    Shell(tmp_path).follow(BLOCKS, stable)


def test_the_figures_are_those_of_the_program() -> None:
    """Limits and names that the chapter tells are the ones in force."""
    for fact in (
        f"beyond the last {KEPT};",
        f"the last {logs.MOST_LINES} lines are shown",
        *(f"`{suffix}`" for suffix in secrets.SUFFIXES),
    ):
        assert fact in TEXT
    assert (secrets.SHORTEST, secrets.SHORTEST_NAMED) == (8, 4)
