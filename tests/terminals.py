"""Run llc on a pseudo-terminal: start it, read the screen, send keys."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pexpect

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Variables that would change the output of llc.
_UNWANTED = ("NO_COLOR", "FORCE_COLOR")


def spawn(
    *words: str, width: int = 100, height: int = 40, folder: str | Path | None = None, **env: str
) -> Any:
    """Start `llc WORDS` on a terminal of this size; use `expect` to wait for its output."""
    environment = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    environment |= {
        "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "PYTHONIOENCODING": "utf-8",
        **env,
    }
    return pexpect.spawn(
        sys.executable,
        ["-m", "llc", *words],
        cwd=None if folder is None else str(folder),
        env=environment,
        dimensions=(height, width),
        encoding="utf-8",
        timeout=30,
    )


def exit_code(child: Any) -> int:
    """Wait for the end; the remaining output is in `child.before`."""
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus is not None, child.signalstatus
    return int(child.exitstatus)


def plain(text: str) -> str:
    """Output of a terminal without colours and cursor movements."""
    return _ESCAPE.sub("", text).replace("\r", "")


def screen_of(text: str) -> list[str]:
    """Visible text of the screen: lines after carriage returns and erasures."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        segments = re.split(r"\r|\x1b\[K", line)
        lines.append(_ESCAPE.sub("", next((part for part in reversed(segments) if part), "")))
    return lines


class Dialogue:
    """A command that asks questions: `answer` waits for a question and types; `seen` is the complete
    output.
    """

    def __init__(self, *words: str, **env: str) -> None:
        self.child = spawn(*words, **env)
        self.seen = ""

    def wait(self, pattern: str) -> None:
        self.child.expect(pattern)
        self.seen += (self.child.before or "") + (self.child.after or "")

    def answer(self, question: str, keys: str = "\r") -> None:
        self.wait(question)
        self.child.send(keys)

    def end(self) -> int:
        code = exit_code(self.child)
        self.seen += self.child.before or ""
        return code

    @property
    def plain(self) -> str:
        return plain(self.seen)
