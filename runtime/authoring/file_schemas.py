"""JSON Schemas of the files that users write for llc, for editors and checks in CI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...frontend.loop.json_schema import json_schema
from ...frontend.source.json_schema import document_schema
from ...frontend.tasks.tools_file import ToolsFile, ToolSpec
from ..effects.script_reader import RuleSpec, WorldFile
from ..launch.jobs import JobSpec
from ..project.agent_schema import AgentSpec
from ..project.configuration_schema import ConfigurationFile
from ..recordings.case_reader import CaseFile


def _or_list(schema: dict[str, Any], item: str) -> dict[str, Any]:
    """The schema of a file that contains a document, or only the list of its items."""
    definitions = schema["definitions"]
    document = {key: value for key, value in schema.items() if key not in ("$schema", "title", "definitions")}
    items = {"type": "array", "items": {"$ref": f"#/definitions/{item}"}}
    return {
        "$schema": schema["$schema"],
        "title": schema["title"],
        "anyOf": [document, items],
        "definitions": definitions,
    }


# By kind of file.
FILE_SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "loop": json_schema,
    "agent": lambda: document_schema("an agent, stdlib/agents/NAME.yaml", AgentSpec),
    "config": lambda: document_schema("llc configuration, .loops/config.yaml", ConfigurationFile),
    "tools": lambda: _or_list(document_schema("llc tools, .loops/tools.yaml", ToolsFile), ToolSpec.__name__),
    "world": lambda: _or_list(document_schema("llc scripted world", WorldFile), RuleSpec.__name__),
    "case": lambda: document_schema("llc recorded case", CaseFile),
    "job": lambda: document_schema("a job of llc batch, one line of a JSON Lines file", JobSpec),
}
