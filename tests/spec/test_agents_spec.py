"""`spec/agents.md`: its commands run in a directory with its files and print what it shows."""

from __future__ import annotations

from pathlib import Path

from spec.blocks import Shell, take, text_of
from spec.test_operating_spec import stable

from llc.runtime.project import agents

TEXT = text_of("agents.md")
BLOCKS = take("agents.md", "yaml", "sh helper", "sh writer", "console")


def test_every_known_agent_is_in_the_chapter() -> None:
    """An agent that needs no configuration can be found there by its name."""
    for name in agents.known_names():
        assert f"`{name}`" in TEXT, f"spec/agents.md does not mention the agent {name}"


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    """Each console block, run in order in a directory with the files above it, prints what stands there."""
    shell = Shell(tmp_path, without=("LLC_AGENT",))
    for block in BLOCKS:
        if block.language == "sh":
            program = shell.project / block.kind.partition(" ")[2]
            program.write_text(f"#!/bin/sh\n{block.text}")
            program.chmod(0o755)
    others = [block for block in BLOCKS if block.language != "sh"]
    shell.follow(others, stable, lambda done: done.stdout + done.stderr)
