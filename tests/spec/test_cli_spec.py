"""`spec/cli.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spec.blocks import take, text_of

from llc.runtime import options
from llc.runtime.verbs import VERBS

TEXT = text_of("cli.md")
BLOCKS = take("cli.md", "yaml", "console")
# What differs from run to run.
VOLATILE = (
    (re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-RUN"),
    (re.compile(r'"duration_ms": \d+'), '"duration_ms": N'),
    (re.compile(r"\d+\.\ds\)"), "TIME)"),
)


def stable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip("\n")


def test_the_commands_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("llc", "ll-loop"):
        entry = "main" if name == "llc" else "main_ll_loop"
        script = programs / name
        code = f"import sys\nfrom llc.runtime.entry import {entry}\nsys.exit({entry}())\n"
        script.write_text(f"#!{sys.executable}\n{code}")
        script.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"PATH": f"{programs}:{env['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in BLOCKS:
        if block.language == "yaml":
            path = project / block.info
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
            continue
        command, _, expected = block.text.removeprefix("$ ").partition("\n")
        done = subprocess.run(
            ["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert stable(done.stderr + done.stdout) == stable(expected), command


def test_every_verb_and_option_is_in_the_chapter() -> None:
    """Nothing of the command line is left out of its chapter."""
    for verb in VERBS:
        assert f"| `{verb}" in TEXT
    for option in (*options.RUN, *options.RESUME):
        assert option.names[0] in TEXT
