"""`spec/repl.md`: its dialogues and its command produce the shown output, its table lists the commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from spec.blocks import Block, parameters, take, text_of

from llc.runtime.host.screen import Screen
from llc.runtime.terminal.console import COMMANDS, Console
from llc.runtime.terminal.session import Session

DIALOGUES = take("repl.md", "repl")
COMMAND = take("repl.md", "console")[0]
PROMPT = "llc> "


@pytest.mark.parametrize("block", parameters(DIALOGUES))
def test_a_dialogue_has_the_shown_output(block: Block, tmp_path: Path) -> None:
    """Each dialogue, in its own session, has the shown output."""
    shown = ""
    with open(tmp_path / "terminal", "w+", encoding="utf-8") as terminal:
        screen = Screen(terminal)
        session = Session(longest=1000)
        console = Console(session, screen, screen, is_terminal=True)
        try:
            for text in re.findall(rf"^{PROMPT}(.*)$", block.text, re.MULTILINE):
                screen.write(f"{PROMPT}{text}\n")
                console.enter(text)
        finally:
            session.close()
        shown = Path(terminal.name).read_text("utf-8")
    assert shown == block.text


def test_a_stream_is_evaluated(tmp_path: Path) -> None:
    """The command of the chapter prints the shown output."""
    command, _, expected = COMMAND.text.removeprefix("$ ").partition("\n")
    command = command.replace("llc repl", f"{sys.executable} -m llc repl")
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == (expected, "")


def test_the_table_has_every_command() -> None:
    """The table has the rows of `repl.COMMANDS`."""
    rows = [
        "| `{}` | {} |".format(command.usage.replace("|", r"\|"), command.doc)
        for command in COMMANDS.values()
    ]
    assert "\n".join(rows) in text_of("repl.md")
