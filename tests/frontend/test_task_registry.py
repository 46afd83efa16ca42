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


def error_ids(project: Path, text: str) -> list[str]:
    """Ids of the errors of a flow in the project."""
    try:
        compile_text(text, "flow.sexp", CompileOptions(folder=str(project)))
    except CompileError as error:
        return [diagnostic.id for diagnostic in error.diagnostics if diagnostic.is_error]
    return []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<task",
        b'<task type="atomic" name="bad"><nonsense/></task>',
        b'<?xml version="1.0"?><!DOCTYPE x><x/>',
        b"\xff\xfe\x00",
        b'<task type="atomic" name="x"/>',
    ],
)
def test_invalid_task_does_not_affect_other_calls(project: Path, content: bytes) -> None:
    """Flows with tools and tasks from other files compile; a name that the file may declare reports its
    error.
    """
    (project / "tasks" / "bad.xml").write_bytes(content)
    for call in ("(my:tool)", "(system:list_directory)", "(user:evaluate-result)"):
        assert "missing-element" not in error_ids(project, call), call
    assert error_ids(project, "(my:tool)") == []
    errors = error_ids(project, "(unknown:name (x 1))")
    assert errors != []
    assert errors != ["unknown-task"]


def test_invalid_file_is_reported_if_it_may_declare_the_name(project: Path) -> None:
    """A file may redeclare a built-in name."""
    text = '<task type="atomic" name="user:evaluate-result"><nonsense/></task>'
    (project / "tasks" / "bad.xml").write_text(text)
    assert error_ids(project, "(my:tool)") == []
    assert "unknown-element" in error_ids(project, '(user:evaluate-result (x "1"))')
