"""`spec/testing.md`: its commands run in a project with its files and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from spec.blocks import take, text_of

from llc.runtime.commands import records  # noqa: F401 - declares its verbs
from llc.runtime.commands.plumbing import app
from llc.runtime.records import cases

TEXT = text_of("testing.md")
BLOCKS = take("testing.md", "yaml", "console")
# What differs from run to run.
VOLATILE = ((re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-RUN"),)


def stable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip("\n")


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, run in order in a project with the files above it, prints what stands there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "llc"
    code = "import sys\nfrom llc.runtime.entry import main\nsys.exit(main())\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    jq = programs / "jq"
    code = (
        "import json, sys, jq\n"
        "program = jq.compile(sys.argv[2])\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps(program.input_text(line).first(), separators=(',', ':')))\n"
    )
    jq.write_text(f"#!{sys.executable}\n{code}")
    jq.chmod(0o755)
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
        for shown in block.text.removeprefix("$ ").split("\n$ "):
            command, _, expected = shown.partition("\n")
            done = subprocess.run(
                ["bash", "-c", command], cwd=project, env=env, capture_output=True, text=True, check=False
            )
            assert stable(done.stderr + done.stdout) == stable(expected), command


def test_every_key_of_a_case_is_in_the_chapter() -> None:
    """Nothing that a case may hold is left out."""
    for key in (*cases.KEYS, *cases.LIMITS, *cases.NORMALIZED):
        assert f"`{key}`" in TEXT, key


def test_the_verbs_show_examples() -> None:
    """`--help` of each verb for what is on record ends with command lines."""
    for command in app.registered_commands:
        if command.name in ("replay", "record", "test", "fork", "trace"):
            assert command.epilog is not None
            assert f"llc {command.name}" in command.epilog
