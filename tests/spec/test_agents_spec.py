"""`spec/agents.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

from pathlib import Path

from spec.blocks import Shell, take, text_of
from spec.test_operating_spec import stable

from llc.runtime.project import agents

TEXT = text_of("agents.md")
BLOCKS = take("agents.md", "yaml", "sh helper", "sh writer", "console")


def test_every_known_agent_is_in_the_chapter() -> None:
    """The chapter names every agent that llc knows."""
    for name in agents.known_names():
        assert f"`{name}`" in TEXT, f"spec/agents.md does not mention the agent {name}"


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, prints the shown output."""
    shell = Shell(tmp_path, without=("LLC_AGENT",))
    for block in BLOCKS:
        if block.language == "sh":
            program = shell.project / block.kind.partition(" ")[2]
            program.write_text(f"#!/bin/sh\n{block.text}")
            program.chmod(0o755)
    others = [block for block in BLOCKS if block.language != "sh"]
    shell.follow(others, stable, lambda done: done.stdout + done.stderr)
