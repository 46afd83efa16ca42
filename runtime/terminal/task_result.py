"""TaskResults (`spec/task.md`): made from an outcome, a value or a failure; output as JSON and text."""

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
# A longer message is cut, because messages are not for transcripts.
MAX_MESSAGE_CHARACTERS = 1000
MAX_DIAGNOSTICS = 20


def result_of(outcome: Outcome, exit_code: int) -> dict[str, Any]:
    """Convert the outcome of a run to a TaskResult; see `of_value` for a successful run."""
    notes = {} if outcome.run is None else {"run": outcome.run}
    if outcome.status == "success":
        return of_value(outcome.value, notes)
    error = outcome.error or {}
    reason = INVALID if exit_code == EXIT_USAGE and error else FAILURE
    found = error.get("diagnostics") or []
    if found:
        first = next((diagnostic for diagnostic in found if diagnostic["severity"] == "error"), found[0])
        return failure(reason, first["message"], {"diagnostics": found[:MAX_DIAGNOSTICS]}, notes)
    details = {name: error[name] for name in ("kind", "span", "help") if error.get(name)}
    if error:
        return failure(reason, str(error.get("message")), details, notes)
    if outcome.terminated_by == "exit":
        message = f"the program exited with exit code {exit_code}"
        return failure(reason, message, {"exit_code": exit_code}, notes)
    details = {"kind": outcome.terminated_by or outcome.status}
    if outcome.status != "interrupted":
        return failure(reason, f"the run ended as `{outcome.status}`", details, notes)
    help = f"llc resume {outcome.run}" if outcome.run else None
    return failure(reason, "the run was interrupted", {**details, **_help(help)}, notes)


def of_refusal(error: UserError | CompileError) -> dict[str, Any]:
    """The TaskResult of an input that was refused."""
    if isinstance(error, UserError):
        return failure(INVALID, error.message, {"kind": error.id, **_help(error.help)}, {})
    first = next(
        (diagnostic for diagnostic in error.diagnostics if diagnostic.is_error), error.diagnostics[0]
    )
    found = [to_json(diagnostic) for diagnostic in error.diagnostics[:MAX_DIAGNOSTICS]]
    return failure(INVALID, first.message, {"diagnostics": found}, {})


def _help(text: str | None) -> dict[str, str]:
    return {} if text is None else {"help": text}


def of_value(value: Any, notes: dict[str, Any]) -> dict[str, Any]:
    """Convert a value to a TaskResult; a value that is one already gets the notes."""
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
    """A FAILED result; a long message is cut."""
    return failed(reason, clean(message, MAX_MESSAGE_CHARACTERS), details, notes)


# --- output -----------------------------------------------------------------------------------


def as_json(result: dict[str, Any]) -> str:
    return json_text(result, indent=2) + "\n"


def headline(result: dict[str, Any], screen: Screen) -> str:
    """One line with status, reason of a failure, cost and run."""
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
    """The content of a result for people: text, or data as JSON; for a failure with its message."""
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
