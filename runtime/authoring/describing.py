"""A loop from a description: a model writes it, and repairs it if it has errors.

Owns the request and the repairs, two at most. The reply is data in the schema that `llc schema` prints. The
model has to pass it to a tool, and it is checked like any loop. `spec/create.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...frontend.loop.json_schema import json_schema
from ...frontend.source.files import text_source
from ...frontend.source.yaml_tree import read_document
from ...ir.diagnostics import CompileError, Diagnostic, clean, in_order, render_all
from ...ir.light_records import LightRecord
from ...stdlib import read_text
from ..host import clock, files, processes
from ..host.effect_context import Context, Interrupt
from ..host.errors import Failure, UserError
from ..host.paths import ROOT
from ..models.client import ModelClient, add_usage
from ..models.prompt import json_output, message
from ..project import configuration, models
from . import drafts
from .drafts import Draft

REPAIRS = 2
MAX_TOKENS = 8192
TIMEOUT = 120.0
# Limits in characters: of a description, and of the errors that a model gets back.
LONGEST_DESCRIPTION = 20_000
_LONGEST_FINDINGS = 6_000
_FENCED = re.compile(r"```[\w+-]*[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)
_REPAIR = "That loop cannot be used:\n\n{problem}\n\nGive the whole loop again, with nothing wrong in it."


class Hopeless(Exception):
    """No loop came of it. text: the last that was given. problem: what is wrong with it, for people."""

    def __init__(self, text: str, problem: str, usage: dict[str, Any] | None) -> None:
        self.text = text
        self.problem = problem
        self.usage = usage
        super().__init__(problem)


class Described(LightRecord):
    """What a model made. usage: what all its attempts took."""

    draft: Draft
    model: str
    usage: dict[str, Any] | None


def model_name(given: str | None = None) -> str:
    """The model to ask: the one named, the project's for tasks, the environment's, the default."""
    told = configuration.load(ROOT).tasks.model
    return given or told or models.default_model()


def describe(
    client: ModelClient,
    words: str,
    *,
    name: str | None = None,
    tools: Sequence[str] = (),
    model: str | None = None,
    settings: dict[str, Any] | None = None,
    interrupt: Interrupt,
    on_try: Callable[[int], None] = lambda number: None,
) -> Described:
    """The loop that a model makes of words. Raises UserError, Hopeless, CompileError, Interrupted.

    name, settings: what the author has decided. tools: actions that it may use.
    """
    if len(words) > LONGEST_DESCRIPTION:
        message = f"the description has {len(words):,} characters; it may have {LONGEST_DESCRIPTION:,}"
        raise UserError("too-long", message, "say what the loop should reach, in a few sentences")
    asked = _Asking(client, model_name(model), interrupt)
    return asked.run(_question(words, name, tools), name, settings or {}, on_try)


def schema() -> dict[str, Any]:
    """The schema of a reply: a loop in any paradigm but words, held by an object."""
    whole = json_schema()
    definitions = {key: value for key, value in whole["definitions"].items() if key != "paradigm-natural"}
    loop = {key: value for key, value in whole.items() if key not in ("$schema", "definitions", "title")}
    natural = {"$ref": "#/definitions/paradigm-natural"}
    loop["allOf"] = [part for part in whole["allOf"] if part["then"] != natural]
    known = [name for name in whole["properties"]["paradigm"]["enum"] if name != "natural"]
    loop["properties"] = {"paradigm": {**whole["properties"]["paradigm"], "enum": known}}
    loop["required"] = ["paradigm"]
    return {
        "type": "object",
        "properties": {"loop": loop},
        "required": ["loop"],
        "definitions": definitions,
    }


def _question(words: str, name: str | None, tools: Sequence[str]) -> str:
    parts = [f"<description>\n{words.strip()}\n</description>"]
    if tools:
        listed = "\n".join(f"- {tool}" for tool in tools)
        parts.append(f"Use these actions, and others only where these cannot do it:\n{listed}")
    if name:
        parts.append(f"Call the loop `{name}`.")
    names = sorted(entry for entry in files.listdir(".") if not entry.startswith("."))[:60]
    parts.append(f"The project's folder holds: {', '.join(names) or 'nothing'}")
    return "\n\n".join(parts)


class _Asking:
    def __init__(self, client: ModelClient, name: str, interrupt: Interrupt) -> None:
        self.settings = configuration.load(ROOT)
        self.model = models.choose(name, self.settings.models)
        self.interrupt = interrupt
        self.client = client
        self.usage: dict[str, Any] | None = None
        self.begun = clock.monotonic()

    def run(
        self, question: str, name: str | None, settings: dict[str, Any], on_try: Callable[[int], None]
    ) -> Described:
        messages = [message("user", (question, False))]
        text = problem = ""
        for number in range(REPAIRS + 1):
            on_try(number)
            reply = self.ask(messages)
            text, problem, made = self.look(reply, name, settings)
            if made is not None:
                return Described(made, self.model.name, self.usage)
            told = _REPAIR.format(problem=clean(problem, _LONGEST_FINDINGS).replace("�", "?"))
            messages = [
                messages[0],
                message("assistant", (clean(text, _LONGEST_FINDINGS) or "(nothing)", False)),
                message("user", (told, False)),
            ]
        raise Hopeless(text, problem, self.usage)

    def ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """One reply. UserError where none came."""
        request = {
            "system": read_text("create-loop.txt"),
            "messages": messages,
            "max_tokens": MAX_TOKENS,
            "output": json_output(schema(), "its limit of tokens"),
        }
        limits = {"timeout_s": TIMEOUT}
        reply = self.client.complete(self.model, request, self.context(), limits)
        self.usage = add_usage(self.usage, reply.get("usage"))
        error = reply.get("error")
        if error is not None:
            help = "write the loop by answering questions instead: llc create"
            raise Failure(error["kind"], f"{self.model.name}: {error['message']}", help)
        if reply["stop"] == "refusal":
            raise Failure("refusal", f"{self.model.name} refused to do it", None)
        return reply

    def context(self) -> Context:
        return Context(
            run_id=f"create-{processes.getpid()}",
            effect_id=f"create-{processes.getpid()}/1",
            loop=None,
            state=None,
            iteration=None,
            elapsed_ms=lambda: round((clock.monotonic() - self.begun) * 1000),
            interrupt=self.interrupt,
        )

    def look(
        self, reply: dict[str, Any], name: str | None, settings: dict[str, Any]
    ) -> tuple[str, str, Draft | None]:
        """The text of what a reply gives, and the draft of it or what is wrong with it."""
        data = loop_in(reply)
        if data is None:
            cut = " (it reached its limit of tokens)" if reply["stop"] == "length" else ""
            return reply.get("text", ""), f"the reply holds no loop{cut}", None
        if data.get("paradigm") == "natural":
            return drafts.yaml_of(data), "a loop is made of states, not of words again", None
        data = {"paradigm": "fsm" if "states" in data else None, **data, **settings}
        wanted = name or str(data.get("name") or data.get("goal") or "")
        data["name"] = wanted if drafts.problem_of_name(wanted) is None else drafts.fit_name(wanted) or "loop"
        text = drafts.yaml_of(data)
        try:
            return text, "", drafts.draft(data)
        except CompileError as error:
            return text, _findings(error), None


def loop_in(reply: dict[str, Any]) -> dict[str, Any] | None:
    """The loop that a reply gives: by the tool, or as JSON or YAML in its text."""
    data = reply.get("data")
    if data is None:
        text = reply.get("text") or ""
        fenced = _FENCED.search(text)
        data = _data_of(fenced[1] if fenced else text)
    if isinstance(data, dict) and isinstance(data.get("loop"), str):
        data = _data_of(data["loop"])
    if isinstance(data, dict) and isinstance(data.get("loop"), dict):
        data = data["loop"]
    if not isinstance(data, dict) or not ({"paradigm", "states"} & data.keys()):
        return None
    return data


def _data_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    document = read_document(text_source(text))
    return None if document.root is None or document.diagnostics else document.plain(document.root)


def _findings(error: CompileError) -> str:
    """What is wrong, errors only, with the lines that it is in."""
    wrong: list[Diagnostic] = [found for found in error.diagnostics if found.is_error]
    return render_all(in_order(wrong), error.sources, False)
