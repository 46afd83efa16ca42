"""`spec/people.md`: its commands run in a directory with its files and print what it shows."""

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


def test_the_commands_print_what_is_shown(project: Path, tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    Shell(tmp_path).follow(BLOCKS, stable)


def test_the_program_of_the_chapter_compiles(project: Path) -> None:
    """Without a finding."""
    (block,) = (block for block in BLOCKS if block.language == "sexp")
    path = project / block.info
    path.write_text(block.text)
    assert compile_file(str(path)).diagnostics == ()
