"""Diagnostic ids: the table, the source and `spec/diagnostics.md` agree, and each example yields its id."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from in_process import run_llc
from spec.blocks import Block, Shell, commands, take

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError, DiagnosticId
from llc.ir.text import parse_program
from llc.ir.verify import verify

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "spec" / "diagnostics.md"
INTRODUCTION = """\
# Diagnostics

Look up an id from a message such as `error[unknown-state]` or `warning[unused-key]` on this page. Every
diagnostic of a program and every user error has an id. Ids are stable, so scripts that read `--json` can rely
on them.

An example is a loop, a program or a session whose last command reports the id, possibly together with others.
If an id has no short example, the page names the file that tests it.

The page is generated from `DiagnosticId` in `ir/diagnostics.py`, which contains the meanings. The examples
are edited in this file; `pytest --update tests/spec/test_diagnostics_spec.py` keeps them.
"""


def meanings() -> dict[str, str]:
    """The ids, each with the comment that follows it in the source."""
    rows = (ROOT / "ir" / "diagnostics.py").read_text("utf-8")
    return dict(re.findall(r'(?m)^    "([a-z0-9-]+)",  # (.+)$', rows))


def texts_of(page: str) -> dict[str, str]:
    """The text after the meaning of each id in the page: its example, or the name of its test."""
    found = {}
    for section in re.split(r"(?m)^## ", page)[1:]:
        title, _, body = section.partition("\n")
        found[title.strip("`")] = body.strip().partition("\n")[2].strip()
    return found


def print_page(texts: Mapping[str, str]) -> str:
    parts = [INTRODUCTION]
    for id, meaning in MEANINGS.items():
        text = texts.get(id) or "```yaml\n```"
        parts.append(f"## `{id}`\n\n{meaning[0].upper()}{meaning[1:]}.\n\n{text}\n")
    return "\n".join(parts)


MEANINGS = meanings()
TEXTS = texts_of(PAGE.read_text("utf-8"))
# Every block of the page is an example, which `texts_of` finds by its id.
take("diagnostics.md", "yaml", "sexp", "llc-ir", "console")
SESSIONS = {id: text[11:-3] for id, text in TEXTS.items() if text.startswith("```console\n")}
EXAMPLES = {id: text for id, text in TEXTS.items() if text.startswith("```") and id not in SESSIONS}


def test_every_id_has_a_meaning_and_is_used() -> None:
    """The type checker rejects an id that is not in the list; each one is used somewhere else, too."""
    assert list(MEANINGS) == sorted(get_args(DiagnosticId))
    used: Counter[str] = Counter()
    for top in ("frontend", "ir", "vm", "runtime"):
        for path in (ROOT / top).rglob("*.py"):
            used.update(re.findall(r'"([a-z0-9-]+)"', path.read_text("utf-8")))
    assert [id for id in MEANINGS if used[id] < 2] == []


def test_the_page_is_current(update: bool) -> None:
    """Its ids and meanings are those of the table; `pytest --update` rewrites it."""
    if update:
        PAGE.write_text(print_page(TEXTS), "utf-8")
    assert PAGE.read_text("utf-8") == print_page(TEXTS), "to accept: pytest --update"


@pytest.mark.parametrize("id", EXAMPLES)
def test_an_example_yields_its_id(id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling the loop, program or IR text reports the id."""
    monkeypatch.chdir(tmp_path)
    match = re.fullmatch(r"(`{3,})(yaml|sexp|llc-ir)\n(.*)\1", EXAMPLES[id], re.DOTALL)
    assert match is not None
    language, text = match[2], match[3]
    try:
        if language == "llc-ir":
            diagnostics = list(verify(parse_program(text, "example.ir")))
        else:
            diagnostics = list(compile_text(text, f"example.{language}").diagnostics)
    except CompileError as error:
        diagnostics = list(error.diagnostics)
    assert id in {diagnostic.id for diagnostic in diagnostics}


@pytest.mark.parametrize("id", SESSIONS)
def test_a_session_yields_its_id(id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last command prints the output of the page; the page can omit its end."""
    shell = Shell(tmp_path)
    monkeypatch.chdir(shell.project)
    for name, value in shell.env.items():
        monkeypatch.setenv(name, value)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        steps = list(commands(Block("diagnostics.md", 0, "console", "", SESSIONS[id])))
        for command, _ in steps:
            is_plain = command.startswith("llc ") and not set(command) & set("|>\n")
            result = run_llc(*shlex.split(command)[1:]) if is_plain else shell.run(command)
    expected = steps[-1][1]
    assert f"error[{id}]: " in expected
    assert expected.rstrip() in result.stderr + result.stdout


@pytest.mark.parametrize("id", [id for id in TEXTS if id not in EXAMPLES and id not in SESSIONS])
def test_an_id_without_an_example_is_tested_elsewhere(id: str) -> None:
    """The page names a test file that mentions the id."""
    match = re.fullmatch(r"Tested in `(tests/.*\.(?:py|txt))`\.", TEXTS[id])
    assert match is not None, TEXTS[id]
    mention = rf"""["'/|(]{id}["'/|)(]|\[{id}\\?\]|error: {id}\b"""
    assert re.search(mention, (ROOT / match[1]).read_text("utf-8"))
