"""`spec/linking.md`: its commands run in a project of its files and print the shown output; its ids exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from spec.blocks import SPEC, Shell, output_of, take, text_of

ROOT = Path(__file__).parents[2]
CHAPTER = SPEC / "linking.md"
BLOCKS = take("linking.md", "yaml", "sexp", "console")
# Parts of the output that differ between runs.
VOLATILE = (
    (re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}\b"), "-RUN"),
    (re.compile(r"\d+\.\ds\)"), "TIME)"),
)


def stable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip("\n")


def test_commands_print_the_shown_output(tmp_path: Path, update: bool) -> None:
    """Each console block, run in order in a project of the files above it, prints its output."""
    shell = Shell(tmp_path)
    text = text_of("linking.md")
    for block in BLOCKS:
        if block.language != "console":
            shell.write(block)
            continue
        command, _, expected = block.text.removeprefix("$ ").partition("\n")
        printed = stable(output_of(shell.run(command)))
        if update:
            text = text.replace(f"```console\n{block.text}", f"```console\n$ {command}\n{printed}\n")
            CHAPTER.write_text(text, "utf-8")
        else:
            assert printed == stable(expected), f"{command}; to accept: pytest --update tests/spec"


def test_every_diagnostic_is_listed() -> None:
    """The table lists exactly the ids that linking reports."""
    rows = re.findall(r"^\|(.*?)\|", text_of("linking.md").partition("## Diagnostics")[2], re.M)
    listed = set(re.findall(r"`([a-z-]+)`", "".join(rows)))
    # Reported by the expander and by lowering, which report many other ids.
    given = {"not-a-definition", "unbounded-budget"}
    for module in (ROOT / "frontend" / "link").glob("*.py"):
        tree = ast.parse(module.read_text("utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            first = call.args[0]
            if name in ("Diagnostic", "error") and isinstance(first, ast.Constant):
                given.add(first.value)
    assert listed == given - {"unused-argument", "bad-override"}  # in `flows.md` and `ir.md`
