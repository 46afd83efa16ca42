"""`spec/people.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spec.blocks import Shell, take
from spec.test_operating_spec import stable

from llc.frontend.compile import compile_file
from llc.runtime.inspection import stop

BLOCKS = take("people.md", "yaml .loops/deploy.yaml", "yaml world", "sexp", "console")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "project" / ".loops").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    yield tmp_path / "project"
    stop.stop(stop.live_runs(None), 1.0)


def test_the_commands_print_the_shown_output(project: Path, tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, prints the shown output."""
    Shell(tmp_path).follow(BLOCKS, stable)


def test_the_program_of_the_chapter_compiles(project: Path) -> None:
    """Without diagnostics."""
    (block,) = (block for block in BLOCKS if block.language == "sexp")
    path = project / block.info
    path.write_text(block.text)
    assert compile_file(str(path)).diagnostics == ()
