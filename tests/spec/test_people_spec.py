"""`spec/people.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from spec.blocks import take
from spec.test_operating_spec import stable

from llc.frontend.compile import compile_file
from llc.runtime.inspection import stopping

BLOCKS = take("people.md", "yaml .loops/deploy.yaml", "yaml world", "sexp", "console")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "project" / ".loops").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    yield tmp_path / "project"
    stopping.stop(stopping.live_runs(None), 1.0)


def test_the_commands_print_what_is_shown(project: Path, tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    script = tmp_path / "bin" / "llc"
    script.parent.mkdir()
    code = "import sys\nfrom llc.runtime.entry import main\nsys.exit(main())\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"PATH": f"{script.parent}:{env['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in BLOCKS:
        if block.language != "console":
            name = "world.yaml" if block.info == "world" else block.info
            (project / name).write_text(block.text)
            continue
        command, _, expected = block.text.removeprefix("$ ").partition("\n")
        end = time.monotonic() + (30 if block.info == "eventually" else 0)
        while True:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=project,
                env=env,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            shown = stable(done.stderr + done.stdout)
            if shown == stable(expected) or time.monotonic() >= end:
                break
            time.sleep(0.1)
        assert shown == stable(expected), command


def test_the_program_of_the_chapter_compiles(project: Path) -> None:
    """Without a finding."""
    (block,) = (block for block in BLOCKS if block.language == "sexp")
    path = project / block.info
    path.write_text(block.text)
    assert compile_file(str(path)).diagnostics == ()
