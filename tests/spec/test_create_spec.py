"""`spec/create.md`: its commands run with its files and print the shown output."""

from __future__ import annotations

import re
from pathlib import Path

from spec.blocks import Shell, commands, take, text_of

from llc.frontend.loop.natural import key_of
from llc.frontend.loop.paradigms import PARADIGMS, NaturalSpec
from llc.frontend.loop.reader import read_loop
from llc.runtime.authoring.creation import PARADIGM_OPTIONS

ROOT = Path(__file__).parents[2]
BLOCKS = take("create.md", "yaml", "console")
TEXT = text_of("create.md")
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "LLC_LLM_MODEL")


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block, run in order with the files above it, without a key, prints the shown output."""
    shell = Shell(tmp_path, without=_KEYS)
    for block in BLOCKS:
        if block.language == "yaml":
            shell.write(block)
            continue
        for command, expected in commands(block):
            result = shell.run(f"{{ {command}; }} 2>&1")
            shown = re.sub(r"\nwarning\[.*?\n\n|^warning\[.*?\n\n", "", result.stdout, flags=re.DOTALL)
            assert shown.strip() == expected.strip(), command


def test_the_pin_belongs_to_the_description() -> None:
    """The lock file of the chapter is valid for its loop."""
    from llc.frontend.source.files import text_source

    words = next(block.text for block in BLOCKS if block.info == ".loops/tidy.yaml")
    spec, _, _ = read_loop(text_source(words))
    assert isinstance(spec, NaturalSpec)
    assert f"  {key_of(spec)}:\n" in TEXT


def test_every_option_of_a_paradigm_is_listed() -> None:
    """The table lists all options of each paradigm."""
    for paradigm in PARADIGMS:
        row = next(line for line in TEXT.split("\n") if line.startswith(f"| `{paradigm}` | `--"))
        assert {name.replace("_", "-") for name in PARADIGM_OPTIONS[paradigm]} <= set(
            re.findall(r"--([a-z-]+)", row)
        )


def test_the_slash_command_matches_llc_create() -> None:
    """Its options are those of the verb, and its questions those of the wizard."""
    from llc.runtime.authoring.wizard import KINDS
    from llc.runtime.cli.table import PARAMETERS

    text = (ROOT / "commands" / "create_loop.md").read_text("utf-8")
    assert text.startswith("---\ndescription: ")
    for kind in KINDS[:-1]:
        assert kind.label in text
    assert all(f"`{name}`" in text for name in PARAMETERS["paradigm"][4].split("|") if name != "natural")
    known = {"--print", "--yes", "--force", "--help", "--from", "--set"} | {
        f"--{option.replace('_', '-')}" for own in PARADIGM_OPTIONS.values() for option in own
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= known | {"--name", "--max-iterations"}
