"""Diagnostic ids: the table, the source and `spec/diagnostics.md` agree, and each example yields its id."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from spec.blocks import take
from spec.diagnostic_ids import MEANINGS

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError
from llc.ir.text import parse_program
from llc.ir.verify import verify

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "spec" / "diagnostics.md"
# Calls whose first or second argument is an id.
CALLS = {
    "Diagnostic",
    "UserError",
    "Problem",
    "Trouble",
    "error",
    "fail",
    "problem",
    "refuse",
    "report",
    "warn",
}
CALLS |= {"_cycle", "_diagnostic", "_problem", "_warning"}
# Words at such places that are not ids.
NOT_IDS = frozenset({"c-c"})
# Ids that `ir/verify.py` composes: `unknown-` or `duplicate-` and what is named.
COMPOSED = re.compile(
    "duplicate-(case|function|slot|state)|unknown-(effect|function|note|primitive|slot|state)"
)
INTRODUCTION = """\
# Diagnostics

Every finding about a program and every user error has an id, shown as `error[unknown-state]` or
`warning[unused-key]`. An id is stable: scripts that read `--json` can rely on it. Where an example is shown,
compiling it yields the id, maybe with others. The remaining ids depend on a project, a recorded run, a code
image or a command line; for most of them the page names a file that tests them.

The page is generated from `tests/spec/diagnostic_ids.py`, which has the meanings. The examples are edited
here and are kept: `pytest --update tests/spec/test_diagnostics_spec.py`.
"""
NO_EXAMPLE = "No example: it depends on a project, a run or a command line."


def constants(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)
    elif (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", node.value)
    ):
        yield node.value


def used() -> dict[str, str]:
    """The ids in calls of the source, each with a file that uses it."""
    found: dict[str, str] = {}
    for folder in ("frontend", "ir", "vm", "runtime"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                for argument in node.args[:2] if name in CALLS else ():
                    for id in constants(argument):
                        found.setdefault(id, str(path.relative_to(ROOT)))
    return {id: path for id, path in found.items() if id not in NOT_IDS}


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


TEXTS = texts_of(PAGE.read_text("utf-8"))
# Every block of the page is an example, which `texts_of` finds by its id.
take("diagnostics.md", "yaml", "sexp", "llc-ir")
EXAMPLES = {id: text for id, text in TEXTS.items() if text.startswith("```")}


def test_the_table_has_every_id_that_is_used() -> None:
    """An id that is new in a call goes into `tests/spec/diagnostic_ids.py`."""
    missing = {id: path for id, path in used().items() if id not in MEANINGS}
    assert not missing


def test_every_id_of_the_table_is_used() -> None:
    """An id is in a call, or at least is a constant of the source."""
    files = [path for top in ("frontend", "ir", "vm", "runtime") for path in (ROOT / top).rglob("*.py")]
    source = "".join(path.read_text("utf-8") for path in files)
    assert not [id for id in MEANINGS if f'"{id}"' not in source and not COMPOSED.fullmatch(id)]
    assert list(MEANINGS) == sorted(MEANINGS)


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
