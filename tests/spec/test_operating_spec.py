"""`spec/operating.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from spec.blocks import take, text_of

from llc.runtime.inspection import stopping, telling
from llc.runtime.store import masking, runs

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
    stopping.stop(stopping.live_runs(None), 1.0)


def test_the_commands_print_what_is_shown(project: Path, tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there.

    What goes on beside it is looked at until it has come so far.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "llc"
    code = "import sys\nfrom llc.runtime.entry import main\nsys.exit(main())\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"PATH": f"{programs}:{env['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in BLOCKS:
        if block.language == "yaml":
            path = project / block.info
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
            continue
        command, _, expected = block.text.removeprefix("$ ").partition("\n")
        end = time.monotonic() + (30 if block.info == "eventually" else 0)
        while True:
            done = subprocess.run(
                ["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, check=False
            )
            shown = stable(done.stderr + done.stdout)
            if shown == stable(expected) or time.monotonic() >= end:
                break
            time.sleep(0.1)
        assert shown == stable(expected), command


def test_the_figures_are_those_of_the_program() -> None:
    """Limits and names that the chapter tells are the ones in force."""
    for fact in (
        f"beyond the last {runs.KEPT};",
        f"the last {telling.MOST_LINES} lines are shown",
        *(f"`{suffix}`" for suffix in masking.SUFFIXES),
    ):
        assert fact in TEXT
    assert (masking.SHORTEST, masking.SHORTEST_NAMED) == (8, 4)
