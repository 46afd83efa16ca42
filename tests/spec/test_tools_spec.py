"""`spec/tools.md`: its programs run in a project with its files and have the values below them."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from spec.blocks import SPEC, Block, take, text_of

import llc
from llc.frontend.tasks.builtin_signatures import ROWS
from llc.ir.results import CLASSES

CHAPTER = SPEC / "tools.md"
BLOCKS = take("tools.md", "sexp run", "json value", "yaml", "xml", "python")
FILES = [block for block in BLOCKS if block.info.startswith(".loops/")]


def programs() -> list[Any]:
    """Each program with the value below it."""
    found = []
    for block, after in itertools.pairwise(BLOCKS):
        if block.kind == "sexp run":
            assert after.kind == "json value", f"line {block.line}: a program is followed by its value"
            found.append(pytest.param(block, after, id=f"line {block.line}"))
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the files of the chapter."""
    for block in FILES:
        path = tmp_path / block.info
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    # There is no API key, so no task can be performed.
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(("program", "claimed"), programs())
def test_a_program_has_the_value_below_it(project: Path, program: Block, claimed: Block) -> None:
    """With real effects."""
    assert llc.evaluate(program.text) == json.loads(claimed.text)


def test_every_built_in_tool_is_in_its_table() -> None:
    """The table has every built-in tool with its parameters."""
    for row in ROWS:
        (line,) = [line for line in text_of("tools.md").splitlines() if line.startswith(f"| `{row.name}`")]
        if row.effect != "context" and "the same" not in line:
            assert all(f"`{parameter.name}`" in line for parameter in row.order), row.name


def test_the_table_of_results_is_generated_from_the_classes(update: bool) -> None:
    """Fields are declared once, in `ir/results.py`."""
    rows = ["| class | field | meaning |", "|---|---|---|"]
    for cls in CLASSES.values():
        rows.append(f"| **{cls.__name__}** | | {(cls.__doc__ or '').partition(chr(10))[0]} |")
        for field in attrs.fields(cls):
            name = field.metadata["name"] or field.name
            mark = "" if field.default is attrs.NOTHING else "?"
            rows.append(f"| | `{name}{mark}` | {field.metadata['doc']} |")
    place = re.compile(r"(<!-- table: results -->\n).*?(<!-- end -->)", re.DOTALL)
    printed = place.sub(
        lambda match: match[1] + "".join(f"{row}\n" for row in rows) + match[2], text_of("tools.md")
    )
    if update:
        CHAPTER.write_text(printed, "utf-8")
    assert printed == CHAPTER.read_text("utf-8"), "to accept: pytest --update tests/spec"
