"""`spec/cli.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

import re
from pathlib import Path

from spec.blocks import Shell, take, text_of

from llc.runtime.cli.subcommands import SUBCOMMANDS, find

TEXT = text_of("cli.md")
BLOCKS = take("cli.md", "yaml", "console")
# Parts of the output that differ between runs.
VOLATILE = (
    (re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-RUN"),
    (re.compile(r'"duration_ms": \d+'), '"duration_ms": N'),
    (re.compile(r"\d+\.\ds\)"), "TIME)"),
)


def stable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip("\n")


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, prints the shown output."""
    shell = Shell(tmp_path)
    shell.add(
        "ll-loop", "import sys\nfrom llc.runtime.cli.entry import main_ll_loop\nsys.exit(main_ll_loop())\n"
    )
    shell.follow(BLOCKS, stable)


def test_every_subcommand_and_option_is_in_the_chapter() -> None:
    """Each subcommand has a row with its options; further options of `create` are in `spec/create.md`."""
    shared = re.search(r"The \*\*compile options\*\*.*?\n\n", TEXT, re.DOTALL)
    assert shared is not None
    for name in SUBCOMMANDS:
        row = re.search(rf"^\| `{name}\b.*$", TEXT, re.MULTILINE)
        assert row is not None, f"spec/cli.md has no row for {name}"
        documented = row[0]
        if "compile options" in documented:
            documented += shared[0]
        if name == "create":
            documented += text_of("create.md")
        for option in find(name).options:
            assert any(f"`{spelling}" in documented for spelling in option.names), (name, option.names)
