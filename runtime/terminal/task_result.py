"""TaskResults (`spec/task.md`): made of an outcome, a value or a failure, and shown as JSON or text."""

from __future__ import annotations

import json
from typing import Any

from ...ir.diagnostics import CompileError, clean, to_json
from ..effects.task import failed
from ..host.errors import EXIT_USAGE, UserError
from ..host.screen import Screen, printable
from ..journal.codec import json_text
from ..journal.outcome import Outcome
from ..journal.quantities import usage_texts

INVALID = "input_validation_failure"
FAILURE = "subtask_failure"
_STATUSES = ("COMPLETE", "CONTINUATION", "FAILED")
# Maximum length in characters of a message; it is not the place for transcripts.
LONGEST_MESSAGE = 1000
MOST_DIAGNOSTICS = 20


def result_of(outcome: Outcome, exit_code: int) -> dict[str, Any]:
    """How a run ended, as a TaskResult: the value where it is one, else one that holds the value."""
    notes = {} if outcome.run is None else {"run": outcome.run}
    if outcome.status == "success":
        return of_value(outcome.value, notes)
    error = outcome.error or {}
    reason = INVALID if exit_code == EXIT_USAGE and error else FAILURE
    found = error.get("diagnostics") or []
    if found:
        first = next((one for one in found if one["severity"] == "error"), found[0])
        return failure(reason, first["message"], {"diagnostics": found[:MOST_DIAGNOSTICS]}, notes)
    details = {name: error[name] for name in ("kind", "span", "help") if error.get(name)}
    if error:
        return failure(reason, str(error.get("message")), details, notes)
    if outcome.terminated_by == "exit":
        return failure(reason, f"it left with exit code {exit_code}", {"exit_code": exit_code}, notes)
    what = "it was interrupted" if outcome.status == "interrupted" else f"it ended as `{outcome.status}`"
    help = f"llc resume {outcome.run}" if outcome.status == "interrupted" and outcome.run else None
    details = {"kind": outcome.terminated_by or outcome.status}
    return failure(reason, what, {**details, "help": help} if help else details, notes)


def of_refusal(error: UserError | CompileError) -> dict[str, Any]:
    """The result of what could not be understood."""
    if isinstance(error, UserError):
        return failure(INVALID, error.message, {"kind": error.id, **_help(error.help)}, {})
    first = next((one for one in error.diagnostics if one.is_error), error.diagnostics[0])
    found = [to_json(one) for one in error.diagnostics[:MOST_DIAGNOSTICS]]
    return failure(INVALID, first.message, {"diagnostics": found}, {})


def _help(text: str | None) -> dict[str, str]:
    return {} if text is None else {"help": text}


def of_value(value: Any, notes: dict[str, Any]) -> dict[str, Any]:
    """A value as a TaskResult: itself where it is one."""
    if is_result(value):
        own = value.get("notes")
        return {**value, "notes": {**(own if isinstance(own, dict) else {}), **notes}}
    if value is None or isinstance(value, str):
        return {"status": "COMPLETE", "content": value or "", "notes": notes}
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return {"status": "COMPLETE", "content": text, "parsedContent": value, "notes": notes}


def is_result(value: Any) -> bool:
    return isinstance(value, dict) and value.get("status") in _STATUSES and "content" in value


def failure(reason: str, message: str, details: dict[str, Any], notes: dict[str, Any]) -> dict[str, Any]:
    """A FAILED result, its message bounded."""
    return failed(reason, clean(message, LONGEST_MESSAGE), details, notes)


# --- how they look ----------------------------------------------------------------------------


def as_json(result: dict[str, Any]) -> str:
    return json_text(result, indent=2) + "\n"


def headline(result: dict[str, Any], screen: Screen) -> str:
    """One line: the status, why it failed, what it cost."""
    status = result["status"]
    style = {"COMPLETE": "green", "CONTINUATION": "yellow"}.get(status, "red")
    notes = result.get("notes") or {}
    facts = []
    error = notes.get("error")
    if isinstance(error, dict):
        facts.append(str(error.get("reason")))
    usage = notes.get("usage")
    if isinstance(usage, dict):
        facts += usage_texts({**usage, "tokens": usage.get("tokens") or None})
    if isinstance(notes.get("run"), str):
        facts.append(notes["run"])
    about = f" ({', '.join(facts)})" if facts else ""
    return f"{screen.paint(status, style)}{printable(about)}\n"


def content_of(result: dict[str, Any]) -> str:
    """What a result says, for people: data as JSON, else the text; of a failure the message once."""
    notes = result.get("notes") or {}
    error = notes.get("error")
    content = result.get("content")
    data = result.get("parsedContent")
    if data is not None and not (isinstance(content, str) and content.strip()):
        content = json.dumps(data, indent=2, ensure_ascii=False, default=str)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
    message = error.get("message") if isinstance(error, dict) else None
    if isinstance(message, str) and message not in text:
        text = f"{message}\n{text}" if text.strip() else message
    return text if not text or text.endswith("\n") else text + "\n"


def shown(text: str, is_terminal: bool) -> str:
    return "\n".join(map(printable, text.split("\n"))) if is_terminal else text
