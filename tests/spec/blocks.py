"""Fenced blocks of the chapters in `spec/`: reader, runner of commands, record of tested blocks.

A test module takes the blocks that it executes when it is imported. `test_spec_yaml` fails if no test module
takes a block, so every block in `spec/` is checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SPEC = Path(__file__).parents[2] / "spec"
CHAPTERS = sorted(path.name for path in SPEC.glob("*.md"))
_FENCE = re.compile(r"^(`{3,}|~{3,})([^\n`]*)\n(.*?)^\1 *$", re.DOTALL | re.MULTILINE)
_TAKEN: set[tuple[str, int]] = set()


class Block(NamedTuple):
    """A fenced block. line: of its fence. language, info: the first word after the fence, and the rest."""

    chapter: str
    line: int
    language: str
    info: str
    text: str

    @property
    def kind(self) -> str:
        """Language and info, as written after the fence."""
        return f"{self.language} {self.info}".strip()


def text_of(chapter: str) -> str:
    return (SPEC / chapter).read_text("utf-8")


def blocks(chapter: str) -> list[Block]:
    """All fenced blocks of a chapter, in order."""
    text = text_of(chapter)
    result = []
    for fence in _FENCE.finditer(text):
        language, _, info = fence[2].strip().partition(" ")
        line = text.count("\n", 0, fence.start()) + 1
        result.append(Block(chapter, line, language, info.strip(), fence[3]))
    return result


def take(chapter: str, *kinds: str) -> list[Block]:
    """Blocks whose language, or language and info, is one of `kinds`. The caller must run them."""
    taken = [block for block in blocks(chapter) if block.language in kinds or block.kind in kinds]
    _TAKEN.update((block.chapter, block.line) for block in taken)
    return taken


def is_taken(block: Block) -> bool:
    return (block.chapter, block.line) in _TAKEN


def parameters(found: list[Block]) -> list[object]:
    """Blocks as test parameters, named after their chapter and line."""
    return [pytest.param(block, id=f"{block.chapter}:{block.line}") for block in found]


# --- commands -------------------------------------------------------------------------------------

# A `jq` command that uses the jq library, for machines without the command.
_JQ = """
import json, sys, jq
flags, program = set("".join(sys.argv[1:-1])), sys.argv[-1]
for value in jq.compile(program).input_text(sys.stdin.read()):
    text = json.dumps(value, separators=(",", ":"), indent=None if "c" in flags else 2, ensure_ascii=False)
    print(value if "r" in flags and isinstance(value, str) else text)
"""
_LLC = "import sys\nfrom llc.runtime.cli.entry import main\nsys.exit(main())\n"


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Output of a command as the chapters show it: standard error, then standard output."""
    return done.stderr + done.stdout


class Shell:
    """A project in which the commands of a chapter run, with `llc` and other programs on their PATH.

    around: the folder for the project. without: environment variables to remove.
    """

    def __init__(self, around: Path, without: tuple[str, ...] = ()) -> None:
        self.project = around / "project"
        self.project.mkdir(exist_ok=True)
        self.programs = around / "bin"
        self.programs.mkdir()
        self.add("llc", _LLC)
        if shutil.which("jq") is None:
            self.add("jq", _JQ)
        unwanted = ("NO_COLOR", "FORCE_COLOR", *without)
        self.env = {name: value for name, value in os.environ.items() if name not in unwanted}
        self.env |= {
            "PATH": f"{self.programs}:{self.env['PATH']}",
            "XDG_CACHE_HOME": str(around / "cache"),
        }

    def add(self, name: str, code: str, interpreter: str = sys.executable) -> None:
        """Add a program that commands can call."""
        path = self.programs / name
        path.write_text(f"#!{interpreter}\n{code}")
        path.chmod(0o755)

    def write(self, block: Block) -> None:
        """Write a block to the file that its info names."""
        path = self.project / ("world.yaml" if block.info == "world" else block.info)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def follow(
        self,
        found: list[Block],
        stable: Callable[[str], str] = str.strip,
        output: Callable[[subprocess.CompletedProcess[str]], str] = output_of,
    ) -> None:
        """Write the files and run the commands in order; each command prints the output shown below it.

        stable: removes the parts of an output that differ between runs. A command in a block with the info
        `eventually` is repeated for up to 30 seconds until it prints the shown output.
        """
        for block in found:
            if block.language != "console":
                self.write(block)
                continue
            for command, expected in commands(block):
                end = time.monotonic() + (30 if block.info == "eventually" else 0)
                while (shown := stable(output(self.run(command)))) != stable(expected):
                    assert time.monotonic() < end, f"{command}\n{shown}\n--- is not ---\n{stable(expected)}"
                    time.sleep(0.1)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output below it; `> ` continues a command."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        while expected.startswith("> "):
            more, _, expected = expected.partition("\n")
            command += f"\n{more[2:]}"
        yield command, expected
