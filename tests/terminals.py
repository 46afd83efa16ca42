"""Run llc on a pseudo-terminal: start it, read the screen, send keys."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pexpect

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What would change what llc shows, wherever the tests run.
_UNWANTED = ("NO_COLOR", "FORCE_COLOR")


def spawn(
    *words: str, width: int = 100, height: int = 40, folder: str | Path | None = None, **env: str
) -> Any:
    """`llc WORDS` on a terminal of that size; what it says is waited for with `expect`."""
    around = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    around |= {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONIOENCODING": "utf-8", **env}
    return pexpect.spawn(
        sys.executable,
        ["-m", "llc", *words],
        cwd=None if folder is None else str(folder),
        env=around,
        dimensions=(height, width),
        encoding="utf-8",
        timeout=30,
    )


def exit_code(child: Any) -> int:
    """Wait until it has ended; what it still said is in `child.before`."""
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus is not None, child.signalstatus
    return int(child.exitstatus)


def plain(text: str) -> str:
    """What a terminal got, without colours and movements."""
    return _ESCAPE.sub("", text).replace("\r", "")


def screen_of(text: str) -> list[str]:
    """What is left on the screen: lines as the last carriage return and erasure left them."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        left = re.split(r"\r|\x1b\[K", line)
        lines.append(_ESCAPE.sub("", next((part for part in reversed(left) if part), "")))
    return lines


class Dialogue:
    """A command that asks: `answer` waits for a question and types; `seen` is all that it said."""

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
