"""`.loops/tasks/*.xml`: valid templates, and diagnostics for invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from llc.frontend.source.files import text_source
from llc.frontend.tasks.signature import Signature
from llc.frontend.tasks.task_file import read_task
from llc.ir.diagnostics import Diagnostic, render_all
from llc.ir.results import StructuredAnalysisResult, json_schema

FULL = """<?xml version="1.0" encoding="utf-8"?>
<!-- A template with everything. -->
<task type="atomic" name="user:review" subtype="associative_matching">
  <description>Review ä change.</description>
  <model>claude-haiku-4-5</model>
  <system>You review {{language}}.</system>
  <instructions>
    Review this:
      {{ diff }}
    In {{language.name}} &amp; <![CDATA[<b>{{diff}}</b>]]>, not {{ "json": 1 }}.
  </instructions>
  <inputs>
    <input name="diff" type="string">What changed.</input>
    <input name="language" from="lang" required="false"/>
    <input name="depth" type="integer" default="3"/>
  </inputs>
  <output_format type="json" schema="StructuredAnalysisResult"/>
  <file_paths source="literal"><path>a.py</path><path>{{language}}.md</path></file_paths>
  <context_management fresh_context="disabled">
    <inherit_context>full</inherit_context>
    <accumulate_data>true</accumulate_data>
    <accumulation_format>notes_only</accumulation_format>
  </context_management>
  <context_relevance>
    <input name="diff" include="true"/>
    <input name="depth" include="false"/>
  </context_relevance>
  <history_config use_session_history="false" history_turns_to_include="4"/>
  <criteria>Short.</criteria>
</task>
"""


def read(text: str) -> tuple[Signature | None, list[Diagnostic]]:
    return read_task(text_source(text, "task.xml"))


def task(inside: str, attributes: str = 'type="atomic" name="t"') -> str:
    """A template on one line."""
    return f"<task {attributes}><instructions>do</instructions>{inside}</task>"


def test_a_template_becomes_a_signature() -> None:
    """Inputs in order, and the definition for the model runner."""
    signature, diagnostics = read(FULL)
    assert diagnostics == []
    assert signature is not None
    assert (signature.name, signature.kind, signature.doc) == ("user:review", "task", "Review ä change.")
    assert [(p.name, p.type, p.is_required, p.default, p.variable, p.doc) for p in signature.order] == [
        ("diff", "string", True, None, "", "What changed."),
        ("language", "any", False, None, "lang", ""),
        ("depth", "integer", False, 3, "", ""),
    ]
    assert signature.definition == {
        "type": "atomic",
        "subtype": "associative_matching",
        "description": "Review ä change.",
        "model": "claude-haiku-4-5",
        "system": "You review {{language}}.",
        "instructions": (
            'Review this:\n  {{ diff }}\nIn {{language.name}} & <b>{{diff}}</b>, not {{ "json": 1 }}.'
        ),
        "inputs": [parameter.as_data() for parameter in signature.order],
        "output_format": {"type": "json", "schema": json_schema(StructuredAnalysisResult)},
        "file_paths": {"source": "literal", "paths": ["a.py", "{{language}}.md"]},
        "context_management": {
            "fresh_context": "disabled",
            "inherit_context": "full",
            "accumulate_data": True,
            "accumulation_format": "notes_only",
        },
        "context_relevance": {"diff": True, "depth": False},
        "history_config": {"use_session_history": False, "history_turns_to_include": 4},
        "criteria": "Short.",
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("object", {"type": "object"}),
        ("string[]", {"type": "array", "items": {"type": "string"}}),
        ('{"type": "integer"}', {"type": "integer"}),
    ],
)
def test_a_schema_is_a_type_or_json(schema: str, expected: Any) -> None:
    """As an attribute or as the element's text."""
    for element in (
        f"<output_format type='json' schema='{schema}'/>",
        f"<output_format type='json'>{schema}</output_format>",
    ):
        signature, diagnostics = read(task(element))
        assert diagnostics == []
        assert signature is not None
        assert signature.definition["output_format"] == {"type": "json", "schema": expected}


@pytest.mark.parametrize(
    ("source", "inside", "expected"),
    [
        ("command", "<command>git ls-files</command>", {"source": "command", "text": "git ls-files"}),
        (
            "description",
            "<description>the parser</description>",
            {"source": "description", "text": "the parser"},
        ),
        (
            "context_description",
            "<context_query>parsing</context_query>",
            {"source": "context_description", "text": "parsing"},
        ),
    ],
)
def test_files_come_from_four_sources(source: str, inside: str, expected: Any) -> None:
    """Literal paths (above), a command, a description, a memory query."""
    signature, diagnostics = read(task(f'<file_paths source="{source}">{inside}</file_paths>'))
    assert diagnostics == []
    assert signature is not None
    assert signature.definition["file_paths"] == expected


@pytest.mark.parametrize(
    ("text", "id", "marked"),
    [
        (task("<contxt/>"), "unknown-element", "<contxt/>"),
        (task("", 'type="atomic" name="t" subtyp="x"'), "unknown-attribute", 'subtyp="x"'),
        (task("", 'type="sequence" name="t"'), "unknown-choice", 'type="sequence"'),
        (task("", 'name="t"'), "unknown-choice", '<task name="t">'),
        (task("", 'type="atomic"'), "missing-attribute", '<task type="atomic">'),
        (task("", 'type="atomic" name="map"'), "bad-name", 'name="map"'),
        (task("", 'type="atomic" name="system:x"'), "bad-name", 'name="system:x"'),
        (task("<instructions>x</instructions>"), "repeated-element", "<instructions>"),
        ('<task type="atomic" name="t"/>', "missing-element", '<task type="atomic" name="t"/>'),
        (task("<system>{{x}}</system>"), "unknown-placeholder", "{{x}}"),
        (task("<system>ä&lt;{{ x.y }}</system>"), "unknown-placeholder", "{{ x.y }}"),
        (task("stray"), "stray-text", "s"),
        (task('<inputs><input from="x"/></inputs>'), "missing-attribute", '<input from="x"/>'),
        (task('<inputs><input name="1"/></inputs>'), "bad-name", 'name="1"'),
        (task('<inputs><input name="a"/><input name="a"/></inputs>'), "repeated-parameter", 'name="a"'),
        (task('<inputs><input name="a" type="txt"/></inputs>'), "unknown-type", 'type="txt"'),
        (task('<inputs><input name="a" required="no"/></inputs>'), "wrong-type", 'required="no"'),
        (task('<inputs><input name="a" type="integer" default="x"/></inputs>'), "wrong-type", 'default="x"'),
        (task('<output_format type="xml"/>'), "unknown-choice", 'type="xml"'),
        (task('<output_format schema="object"/>'), "contradictory-keys", '<output_format schema="object"/>'),
        (task('<output_format type="json" schema="objct"/>'), "bad-schema", 'schema="objct"'),
        (task("<output_format type='json' schema='{\"type\": 5}'/>"), "bad-schema", "schema='{\"type\": 5}'"),
        (task("<output_format type='json' schema='{'/>"), "bad-schema", "schema='{'"),
        (task('<file_paths source="web"/>'), "unknown-choice", 'source="web"'),
        (task("<file_paths/>"), "missing-element", "<file_paths/>"),
        (task('<context_management inherit_context="all"/>'), "unknown-setting", 'inherit_context="all"'),
        (task("<context_management><inherit/></context_management>"), "unknown-setting", "<inherit/>"),
        (task('<history_config history_turns_to_include="-1"/>'), "unknown-setting", None),
        (task('<context_relevance><input name="q"/></context_relevance>'), "unknown-placeholder", 'name="q"'),
        ("<tasks/>", "not-a-task", "<tasks/>"),
        ("<task", "xml-syntax", None),
        ("<task></tsk>", "xml-syntax", None),
        ("<task>&nbsp;</task>", "xml-syntax", None),
        ("", "xml-syntax", None),
        ("no xml", "xml-syntax", None),
        ("<task>\0</task>", "xml-syntax", None),
        ("<!DOCTYPE task><task/>", "dangerous-xml", None),
    ],
)
def test_error_is_reported_at_its_position(text: str, id: str, marked: str | None) -> None:
    """The task is not declared."""
    signature, diagnostics = read(text)
    assert signature is None
    match = next((item for item in diagnostics if item.id == id), None)
    assert match is not None, diagnostics
    assert match.span is not None
    if marked is not None:
        line = text.splitlines()[match.span.line - 1]
        assert line[match.span.column - 1 : match.span.end_column - 1] == marked


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE task [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(20))
    + ']><task type="atomic" name="t"><instructions>&u;</instructions></task>'
)
OUTSIDE = (
    '<?xml version="1.0"?><!DOCTYPE task [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    '<task type="atomic" name="t"><instructions>&x;</instructions></task>'
)


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (BOMB, "dangerous-xml"),
        (OUTSIDE, "dangerous-xml"),
        ('<!DOCTYPE task SYSTEM "http://127.0.0.1:9/x.dtd"><task/>', "dangerous-xml"),
        ("<a>" * 100_000 + "</a>" * 100_000, "too-deep"),
        ("<task>" + "<a/>" * 20_000 + "</task>", "too-many-elements"),
        (
            task("", 'type="atomic" name="t" ' + " ".join(f'a{n}="x"' for n in range(2000))),
            "unknown-attribute",
        ),
        (task("<output_format type='json'>" + "[" * 100_000 + "</output_format>"), "bad-schema"),
        (task("<output_format type='json'>" + '{"a":' * 5000 + "</output_format>"), "bad-schema"),
        (task("<system>" + "{{x}}" * 5000 + "</system>"), "unknown-placeholder"),
        (task("", 'type="atomic" name="' + "n" * 100_000 + '"'), "bad-name"),
    ],
    ids=["bomb", "xxe", "dtd", "deep", "wide", "attributes", "schema", "open-schema", "placeholders", "name"],
)
def test_hostile_template_is_an_error(text: str, id: str) -> None:
    """The error has a span, and no other file is read."""
    task, diagnostics = read(text)
    assert task is None
    assert diagnostics[0].id == id
    assert all(item.span is not None for item in diagnostics)
    assert all(len(item.message) < 500 for item in diagnostics)
    assert "root:" not in render_all(diagnostics[:5], [text_source(text, "task.xml")])
