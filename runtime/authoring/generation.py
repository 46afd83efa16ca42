"""Generation of a loop from a description: a model writes it, and repairs its errors.

Owns the request and the repairs (`spec/create.md`). The model passes the loop to a tool, as data in the
schema that `llc schema` prints. The loop is checked like any other.
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

MAX_REPAIRS = 2
MAX_TOKENS = 8192
TIMEOUT_S = 120.0
MAX_DESCRIPTION_CHARS = 20_000
# Limit of the errors, and of the faulty loop, that are sent back to the model.
_MAX_REPAIR_CHARS = 6_000
_FENCED = re.compile(r"```[\w+-]*[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)
_REPAIR = "That loop cannot be used:\n\n{problem}\n\nGive the whole loop again, with nothing wrong in it."


class GenerationFailed(Exception):
    """The model wrote no valid loop. text: its last loop. problem: the errors in it, as text."""

    def __init__(self, text: str, problem: str, usage: dict[str, Any] | None) -> None:
        self.text = text
        self.problem = problem
        self.usage = usage
        super().__init__(problem)


class GeneratedLoop(LightRecord):
    """A loop that a model wrote. usage: consumption of all attempts."""

    draft: Draft
    model: str
    usage: dict[str, Any] | None


def model_name(name: str | None = None) -> str:
    """The model to use: the given name, else the project's for tasks, the environment's, the default."""
    configured = configuration.load(ROOT).tasks.model
    return name or configured or models.default_model()


def generate(
    client: ModelClient,
    words: str,
    *,
    name: str | None = None,
    tools: Sequence[str] = (),
    model: str | None = None,
    settings: dict[str, Any] | None = None,
    interrupt: Interrupt,
    on_attempt: Callable[[int], None] = lambda number: None,
) -> GeneratedLoop:
    """Have a model write a loop. Raises UserError, GenerationFailed, CompileError, Interrupted.

    Args:
        client: client for the requests.
        words: the description.
        name: name of the loop; None: the model chooses it.
        tools: actions that the loop should use.
        model: name of the model; None for the project's.
        settings: keys of the loop that are fixed.
        interrupt: requests to stop.
        on_attempt: called before each attempt, with its number from 0.
    """
    if len(words) > MAX_DESCRIPTION_CHARS:
        message = f"the description has {len(words):,} characters; the limit is {MAX_DESCRIPTION_CHARS:,}"
        raise UserError("too-long", message, "describe the goal of the loop in a few sentences")
    dialogue = _Dialogue(client, model_name(model), interrupt)
    return dialogue.run(_question(words, name, tools), name, settings or {}, on_attempt)


def schema() -> dict[str, Any]:
    """Schema of a reply: an object with a loop in any paradigm except `natural`."""
    full = json_schema()
    definitions = {key: value for key, value in full["definitions"].items() if key != "paradigm-natural"}
    loop = {key: value for key, value in full.items() if key not in ("$schema", "definitions", "title")}
    natural = {"$ref": "#/definitions/paradigm-natural"}
    loop["allOf"] = [part for part in full["allOf"] if part["then"] != natural]
    paradigms = [name for name in full["properties"]["paradigm"]["enum"] if name != "natural"]
    loop["properties"] = {"paradigm": {**full["properties"]["paradigm"], "enum": paradigms}}
    loop["required"] = ["paradigm"]
    return {"type": "object", "properties": {"loop": loop}, "required": ["loop"], "definitions": definitions}


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


class _Dialogue:
    """The requests to a model for one loop."""

    def __init__(self, client: ModelClient, name: str, interrupt: Interrupt) -> None:
        self.settings = configuration.load(ROOT)
        self.model = models.choose(name, self.settings.models)
        self.interrupt = interrupt
        self.client = client
        self.usage: dict[str, Any] | None = None
        self.started_at = clock.monotonic()

    def run(
        self, question: str, name: str | None, settings: dict[str, Any], on_attempt: Callable[[int], None]
    ) -> GeneratedLoop:
        messages = [message("user", (question, False))]
        text = problem = ""
        for number in range(MAX_REPAIRS + 1):
            on_attempt(number)
            reply = self.request(messages)
            text, problem, draft = self.check(reply, name, settings)
            if draft is not None:
                return GeneratedLoop(draft, self.model.name, self.usage)
            repair = _REPAIR.format(problem=clean(problem, _MAX_REPAIR_CHARS).replace("�", "?"))
            messages = [
                messages[0],
                message("assistant", (clean(text, _MAX_REPAIR_CHARS) or "(nothing)", False)),
                message("user", (repair, False)),
            ]
        raise GenerationFailed(text, problem, self.usage)

    def request(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The reply to a request. Raises UserError if there is none."""
        request = {
            "system": read_text("create-loop.txt"),
            "messages": messages,
            "max_tokens": MAX_TOKENS,
            "output": json_output(schema(), "its limit of tokens"),
        }
        limits = {"timeout_s": TIMEOUT_S}
        reply = self.client.complete(self.model, request, self.context(), limits)
        self.usage = add_usage(self.usage, reply.get("usage"))
        error = reply.get("error")
        if error is not None:
            help = "answer questions instead: llc create"
            raise Failure(error["kind"], f"{self.model.name}: {error['message']}", help)
        if reply["stop"] == "refusal":
            raise Failure("refusal", f"{self.model.name} refused the request", None)
        return reply

    def context(self) -> Context:
        def elapsed_ms() -> int:
            return round((clock.monotonic() - self.started_at) * 1000)

        return Context.outside_run(f"create-{processes.getpid()}", 1, self.interrupt, elapsed_ms)

    def check(
        self, reply: dict[str, Any], name: str | None, settings: dict[str, Any]
    ) -> tuple[str, str, Draft | None]:
        """Text of the loop in a reply, its errors ('' if it is valid), and its draft (None if it is not)."""
        data = _loop_of(reply)
        if data is None:
            cut = " (it reached its limit of tokens)" if reply["stop"] == "length" else ""
            return reply.get("text", ""), f"the reply contains no loop{cut}", None
        if data.get("paradigm") == "natural":
            return drafts.yaml_of(data), "the paradigm `natural` is not allowed here; use another one", None
        data = {"paradigm": "fsm" if "states" in data else None, **data, **settings}
        proposed = name or str(data.get("name") or data.get("goal") or "")
        is_valid = drafts.problem_of_name(proposed) is None
        data["name"] = proposed if is_valid else drafts.fit_name(proposed) or "loop"
        text = drafts.yaml_of(data)
        try:
            return text, "", drafts.draft(data)
        except CompileError as error:
            return text, _errors_of(error), None


def _loop_of(reply: dict[str, Any]) -> dict[str, Any] | None:
    """The loop in a reply: from the tool call, or JSON or YAML in the text. None if there is none."""
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


def _errors_of(error: CompileError) -> str:
    """The errors, without warnings, as text with their source lines."""
    errors: list[Diagnostic] = [diagnostic for diagnostic in error.diagnostics if diagnostic.is_error]
    return render_all(in_order(errors), error.sources, False)
