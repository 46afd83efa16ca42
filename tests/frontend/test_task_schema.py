"""The XML Schema of task files: what the reader takes it takes, and mistakes of form it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llc.frontend.source.files import text_source
from llc.frontend.tasks.task_file import read_task
from llc.frontend.tasks.task_xsd import task_schema

etree = pytest.importorskip("lxml.etree", reason="nothing else here knows XML Schema")

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(ROOT.glob("stdlib/*.xml"))
FULL = """<task type="atomic" name="user:review" subtype="x" on_unknown="ask">
  <history_config use_session_history="false" history_turns_to_include="4"/>
  <context_management fresh_context="disabled">
    <accumulate_data>true</accumulate_data><inherit_context> full </inherit_context>
  </context_management>
  <context_relevance><input name="diff" include="true"/></context_relevance>
  <criteria>Short.</criteria>
  <file_paths><path>a.py</path><path>b.py</path></file_paths>
  <output_format type="json" repair="true">{"type": "object"}</output_format>
  <runner>agent</runner><model>claude-haiku-4-5</model>
  <instructions>Review <![CDATA[{{diff}} & all]]>.</instructions>
  <inputs>
    <input name="diff" type="object" from="d" description="x">What changed.</input>
    <input name="depth" type="integer" required="false" default="3"/>
  </inputs>
</task>"""


@pytest.fixture(scope="module")
def schema() -> Any:
    return etree.XMLSchema(etree.fromstring(task_schema().encode()))


def task(inside: str, attributes: str = 'type="atomic" name="t"') -> str:
    return f"<task {attributes}><instructions>do</instructions>{inside}</task>"


GOOD = [
    FULL,
    '<?xml version="1.0"?>\n<?xml-model href="task.xsd"?>\n' + task(""),
    task('<file_paths source="command"><command>ls</command></file_paths>'),
    task('<file_paths source="description"><description>x</description></file_paths>'),
    task('<file_paths source="context_description"><context_query>x</context_query></file_paths>'),
]


@pytest.mark.parametrize("text", [*(path.read_text("utf-8") for path in SHIPPED), *GOOD])
def test_what_the_reader_takes_it_takes(schema: Any, text: str) -> None:
    """The tasks that come with llc, one with everything, in any order."""
    found, wrong = read_task(text_source(text, "task.xml"))
    assert found is not None, wrong
    assert schema.validate(etree.fromstring(text.encode())), schema.error_log


@pytest.mark.parametrize(
    "text",
    [
        "<tasks/>",
        '<task type="atomic" name="t"/>',
        task("<contxt/>"),
        task("<instructions>x</instructions>"),
        task("stray"),
        task("", 'type="atomic"'),
        task("", 'type="sequence" name="t"'),
        task("", 'type="atomic" name="t" subtyp="x"'),
        task("<runner>robot</runner>"),
        task("", 'type="atomic" name="t" on_unknown="again"'),
        task('<inputs><input from="x"/></inputs>'),
        task('<inputs><input name="a" type="txt"/></inputs>'),
        task('<inputs><input name="a" required="no"/></inputs>'),
        task('<output_format type="xml"/>'),
        task('<file_paths source="web"><path>x</path></file_paths>'),
        task("<file_paths/>"),
        task('<context_management inherit_context="all"/>'),
        task("<context_management><inherit/></context_management>"),
        task("<context_management><inherit_context x='y'>full</inherit_context></context_management>"),
        task('<history_config history_turns_to_include="-1"/>'),
        task("<history_config><use_session_history>no</use_session_history></history_config>"),
    ],
)
def test_a_mistake_of_form_is_refused_by_both(schema: Any, text: str) -> None:
    """Elements, attributes and words that there are not, what is missing, what stands twice."""
    assert read_task(text_source(text, "task.xml"))[0] is None
    assert not schema.validate(etree.fromstring(text.encode()))


def test_no_task_is_without_a_file() -> None:
    """An empty list of files would pass in silence."""
    assert len(SHIPPED) >= 3
