"""`spec/memory.md`: its commands, programs, words and tables match the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from flow_texts import findings, marks
from spec.blocks import Block, Shell, parameters, take, text_of
from spec.tables import compare

from llc.frontend.tasks.builtin_signatures import SYSTEM_TOOLS
from llc.runtime.memory.recall import WEIGHTS
from llc.runtime.memory.search import WEIGHTS as COLUMNS
from llc.runtime.memory.terms import terms

TEXT = text_of("memory.md")
FILES = take("memory.md", "py", "js", "md", "text")
CONSOLE = take("memory.md", "console")
PROGRAMS = take("memory.md", "sexp")
WORDS = take("memory.md", "words")
LLC = [sys.executable, "-m", "llc"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of the chapter."""
    folder = tmp_path_factory.mktemp("memory") / "project"
    for block in FILES:
        path = folder / block.info
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(project.parent / "cache")}
    return subprocess.run([*LLC, *words], cwd=project, env=env, capture_output=True, text=True, check=False)


def test_the_commands_print_the_shown_output(project: Path) -> None:
    """Each command, in order, prints the output below it."""
    Shell(project.parent).follow(CONSOLE)


@pytest.mark.parametrize("block", parameters(PROGRAMS))
def test_a_program_has_the_shown_value(block: Block, project: Path) -> None:
    """Each expression has the value, or the error, that its line shows."""
    found = [(item.span.line, item.severity, item.id) for item in findings(block.text) if item.span]
    data = [
        (mark.line, mark.kind, mark.text) for mark in marks(block.text) if mark.kind in ("error", "warning")
    ]
    assert sorted(found) == sorted(data)
    lines = block.text.split("\n")
    shown = [mark for mark in marks(block.text) if mark.kind == "=>"]
    if not shown:
        return
    expressions = " ".join(lines[mark.line - 1].partition("  ; =>")[0] for mark in shown)
    result = run(project, "run", "--json", "-e", f'(map (lambda (x) (format "~s" x)) (list {expressions}))')
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["value"] == [mark.text for mark in shown]


@pytest.mark.parametrize("line", WORDS[0].text.strip().splitlines())
def test_words_have_the_shown_terms(line: str) -> None:
    """A text is left of the arrow, its terms are right of it."""
    text, _, expected = line.rpartition(" -> ")
    assert terms(text) == expected.split()


def test_the_table_has_every_field(update: bool) -> None:
    """The table has the arguments of the tool in its order, with their descriptions and weights."""
    rows = ["| argument | meaning | weight |", "|---|---|---|"]
    for parameter in SYSTEM_TOOLS["system:get_context"].order:
        counts = f"{WEIGHTS[parameter.name]:g}" if parameter.name in WEIGHTS else ""
        rows.append(f"| `{parameter.name}` | {parameter.doc} | {counts} |".replace("|  |", "| |"))
    compare("memory.md", lambda name: rows, update)


def test_the_weights_match_the_code() -> None:
    """The table has the weight of a term in each column."""
    for table, strategy in (("contents", "content"), ("metadata", "metadata")):
        shown = ", ".join(f"{weight:g}" for weight in COLUMNS[table])
        assert re.search(rf"^\| `{strategy}` \| .* \| {shown} \|$", TEXT, re.MULTILINE)
