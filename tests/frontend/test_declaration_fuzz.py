"""Damaged declarations in tools.yaml, a task file or a `defatom` never crash the compiler."""

from __future__ import annotations

from typing import Any

from flow_texts import findings
from hypothesis import given, settings
from hypothesis import strategies as st

from llc.frontend.source.files import text_source
from llc.frontend.tasks.task_file import read_task
from llc.frontend.tasks.tools_file import read_tools

TOOLS = """tools:
  - name: my:grep
    description: Finds.
    parameters: {pattern: string, files: {type: list, default: []}}
    command: 'grep "${pattern}" ${files} # $HOME'
    timeout: 2.5
    output: result
  - {name: py, python: "module:function", parameters: [a, {name: b, required: false}]}
"""
TASK = """<?xml version="1.0"?>
<task type="atomic" name="user:review">
  <instructions>Review {{diff}} &amp; <![CDATA[<b>]]></instructions>
  <inputs><input name="diff" type="string" default="x">Text.</input></inputs>
  <output_format type="json">{"type": "object"}</output_format>
  <file_paths source="literal"><path>a.py</path></file_paths>
  <context_management fresh_context="disabled"><inherit_context>full</inherit_context></context_management>
</task>
"""
DEFATOM = """(defatom user:look
  (params (result string) (run) (depth integer 3))
  (instructions "Look at {{result}} and {{ run.stdout }}.")
  (output_format ((type "json") (schema "object")))
  (history_config ((use_session_history false) (history_turns_to_include 2))))
(user:look "done" (run 1) (files (list "a")) (context '((inherit_context none))))
"""
PIECES = [*"{}[]()<>&\"':\n\0ä", "", "  ", "- ", "${", "{{x}}"]


@st.composite
def damaged(draw: Any, text: str) -> str:
    """A text with pieces removed, duplicated or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        text = text[:start] + draw(st.sampled_from([*PIECES, text[start:end] * 2])) + text[end:]
    return text


@settings(deadline=None)
@given(text=st.one_of(st.text(), damaged(TOOLS)))
def test_damaged_tools_file_does_not_crash(text: str) -> None:
    """Diagnostics have positions inside the text."""
    _, diagnostics = read_tools(text_source(text, "tools.yaml"))
    assert all(item.span is None or item.span.line <= text.count("\n") + 1 for item in diagnostics)


@settings(deadline=None)
@given(text=st.one_of(st.text(), damaged(TASK)))
def test_damaged_task_file_does_not_crash(text: str) -> None:
    """The result is a task or a diagnostic."""
    task, diagnostics = read_task(text_source(text, "task.xml"))
    assert task is not None or any(item.is_error for item in diagnostics)
    assert all(item.span is not None and item.span.line <= text.count("\n") + 1 for item in diagnostics)


@settings(deadline=None)
@given(text=damaged(DEFATOM))
def test_damaged_defatom_does_not_crash(text: str) -> None:
    """Expansion ends, with or without diagnostics."""
    findings(text)
