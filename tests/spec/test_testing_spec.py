"""`spec/testing.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

import re
from pathlib import Path

from spec.blocks import Shell, take, text_of

from llc.frontend.source.schema import fields_of
from llc.runtime.cli import subcommands
from llc.runtime.recordings import case_reader, cases

TEXT = text_of("testing.md")
BLOCKS = take("testing.md", "yaml", "console")
# Parts of the output that differ between runs.
VOLATILE = ((re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-RUN"),)

JQ = """
import json, sys, jq
program = jq.compile(sys.argv[2])
for line in sys.stdin:
    print(json.dumps(program.input_text(line).first(), separators=(",", ":")))
"""


def stable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip("\n")


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, prints the shown output."""
    shell = Shell(tmp_path)
    shell.add("jq", JQ)
    shell.follow(BLOCKS, stable)


def test_every_key_of_a_case_is_in_the_chapter() -> None:
    """The chapter names every key of a test case."""
    for key in (*fields_of(case_reader.CaseFile), *cases.LIMITS, *cases.NORMALIZED):
        assert f"`{key}`" in TEXT, key


def test_the_verbs_show_examples() -> None:
    """`--help` of each subcommand for recorded runs shows examples."""
    for name in ("replay", "record", "test", "fork", "trace"):
        examples = subcommands.find(name).examples
        assert examples
        assert all(f"llc {name}" in example for example in examples)
