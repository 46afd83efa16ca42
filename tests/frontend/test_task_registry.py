"""The registry of a project's tools and tasks: errors in a file concern only the programs that use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llc.frontend.compile import compile_text
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError

GOOD = '<task type="atomic" name="good"><instructions>do</instructions></task>'
TOOLS = "tools:\n  - {name: my:tool, command: [echo]}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / ".loops"
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks" / "good.xml").write_text(GOOD)
    (folder / "tools.yaml").write_text(TOOLS)
    return folder


def ids(project: Path, text: str) -> list[str]:
    """The errors about a flow in the project."""
    try:
        compile_text(text, "flow.sexp", CompileOptions(folder=str(project)))
    except CompileError as error:
        return [diagnostic.id for diagnostic in error.diagnostics if diagnostic.is_error]
    return []


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"<task",
        b'<task type="atomic" name="bad"><nonsense/></task>',
        b'<?xml version="1.0"?><!DOCTYPE x><x/>',
        b"\xff\xfe\x00",
        b'<task type="atomic" name="x"/>',
    ],
)
def test_a_broken_task_does_not_concern_other_calls(project: Path, broken: bytes) -> None:
    """Flows with tools and tasks from other files compile; a name that may be in the file reports it."""
    (project / "tasks" / "bad.xml").write_bytes(broken)
    for call in ("(my:tool)", "(system:list_directory)", "(user:evaluate-result)"):
        assert "missing-element" not in ids(project, call), call
    assert ids(project, "(my:tool)") == []
    errors = ids(project, "(unknown:name (x 1))")
    assert errors != []
    assert errors != ["unknown-task"]


def test_a_broken_file_is_reported_to_a_program_that_may_use_it(project: Path) -> None:
    """A name that comes with llc may be declared anew in the file."""
    text = '<task type="atomic" name="user:evaluate-result"><nonsense/></task>'
    (project / "tasks" / "bad.xml").write_text(text)
    assert ids(project, "(my:tool)") == []
    assert "unknown-element" in ids(project, '(user:evaluate-result (x "1"))')
