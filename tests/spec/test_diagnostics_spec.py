"""Diagnostic ids: the table, the source and `spec/diagnostics.md` agree, and each example yields its id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from spec.blocks import take

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError, DiagnosticId
from llc.ir.text import parse_program
from llc.ir.verify import verify

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "spec" / "diagnostics.md"
INTRODUCTION = """\
# Diagnostics

Every finding about a program and every user error has an id, shown as `error[unknown-state]` or
`warning[unused-key]`. An id is stable: scripts that read `--json` can rely on it. Where an example is shown,
compiling it yields the id, maybe with others. The remaining ids depend on a project, a recorded run, a code
image or a command line; for most of them the page names a file that tests them.

The page is generated from `DiagnosticId` in `ir/diagnostics.py`, which has the meanings. The examples are
edited here and are kept: `pytest --update tests/spec/test_diagnostics_spec.py`.
"""
NO_EXAMPLE = "No example: it depends on a project, a run or a command line."


def meanings() -> dict[str, str]:
    """The ids, each with the comment that follows it in the source."""
    rows = (ROOT / "ir" / "diagnostics.py").read_text("utf-8")
    return dict(re.findall(r'(?m)^    "([a-z0-9-]+)",  # (.+)$', rows))


def texts_of(page: str) -> dict[str, str]:
    """What follows the meaning of each id in the page: its example, or where it is tested."""
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
take("diagnostics.md", "yaml", "sexp", "llc-ir")
EXAMPLES = {id: text for id, text in TEXTS.items() if text.startswith("```")}


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
    """A loop, a program or an IR text that has the finding."""
    monkeypatch.chdir(tmp_path)
    match = re.fullmatch(r"(`{3,})(yaml|sexp|llc-ir)\n(.*)\1", EXAMPLES[id], re.DOTALL)
    assert match is not None
    language, text = match[2], match[3]
    try:
        if language == "llc-ir":
            found = list(verify(parse_program(text, "example.ir")))
        else:
            found = list(compile_text(text, f"example.{language}").diagnostics)
    except CompileError as error:
        found = list(error.diagnostics)
    assert id in {finding.id for finding in found}


@pytest.mark.parametrize("id", [id for id in TEXTS if id not in EXAMPLES])
def test_an_id_without_an_example_is_tested_elsewhere(id: str) -> None:
    """The page names a test file that mentions the id."""
    if TEXTS[id] == NO_EXAMPLE:
        return
    match = re.fullmatch(r"Tested in `(tests/.*\.(?:py|txt))`\.", TEXTS[id])
    assert match is not None
    assert id in (ROOT / match[1]).read_text("utf-8")
