"""`llc task`: a run of one call or expression, whose outcome is a TaskResult however it ends.

Owns that result and how it looks; the session shows its own by the same functions. The line is read
by `task_line`, the run is one like any other (`launch`). `spec/task.md`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.diagnostics import CompileError, clean, to_json
from ..effects.task import failed
from ..host import secrets
from ..host.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from ..host.screen import Screen, printable
from ..project import options
from ..project.load import load_expression
from ..project.options import Values
from ..terminal import task_line
from . import command as launch
from . import report

if TYPE_CHECKING:
    from ...vm.code.image import Image
    from ..journal.outcome import Outcome
    from ..terminal.session import Answer
    from .background import Leaving

INVALID = "input_validation_failure"
FAILURE = "subtask_failure"
_STATUSES = ("COMPLETE", "CONTINUATION", "FAILED")
# Characters of a message: what went wrong, and no transcript of it.
LONGEST_MESSAGE = 1000
MOST_DIAGNOSTICS = 20


def run(words: Sequence[str], given: dict[str, Any]) -> int:
    """`llc task`; the exit code. given: the options that stand before the task's name."""
    values = Values(options.RUN, "", **given, expression="")
    # Known before the words are read, for what is wrong with them is told as JSON too.
    reading = _TaskCommand(values, values.json or "--json" in words[1:])
    code = reading.guarded(lambda command: reading.read(words))
    call = reading.call
    if call is None:
        return code

    def made(leaving: Leaving | None) -> _TaskCommand:
        return _TaskCommand(values, values.json, call, leaving)

    return launch.start(values, _TaskCommand.run, made)


class _TaskCommand(launch.Command):
    """A run that answers with a TaskResult; all else that there is to say goes to standard error."""

    def __init__(
        self,
        values: Values,
        as_json: bool,
        call: task_line.Call | None = None,
        leaving: Leaving | None = None,
    ) -> None:
        self.call = call
        super().__init__(values, leaving=leaving)
        self.as_json = as_json

    def find_streams(self) -> None:
        super().find_streams()
        self.screen = self.errors

    def load(self) -> tuple[str, Image]:
        call = self.call
        assert call is not None
        return "", load_expression(call.text, self.values, self.warn, call.name)

    def read(self, words: Sequence[str]) -> None:
        """Find the call, and what else the words set; or show its help."""
        call = task_line.read(words, sides=self.values.declare)
        if call.wants_help:
            Screen(sys.stdout).deliver(self.errors.encode(secrets.masked(help_text(call))))
            return
        for name, value in call.given.items():
            before = getattr(self.values, name)
            setattr(self.values, name, (*before, *value) if isinstance(value, tuple) else value)
        self.call = call

    def answer(self, outcome: Outcome, exit_code: int) -> int:
        result = result_of(outcome, exit_code)
        if exit_code == EXIT_OK and result["status"] == "FAILED":
            exit_code = EXIT_FAILURE
        result = secrets.known.mask_all(result)
        out = Screen(sys.stdout)
        try:
            if self.as_json:
                out.deliver(as_json(result).encode("utf-8", "replace"))
            else:
                if not self.values.quiet:
                    self.errors.write(headline(result, self.errors))
                # What went wrong with the run itself was shown with its place.
                text = content_of(result) if outcome.error is None else ""
                if text:
                    out.deliver(out.encode(_shown(text, out.is_terminal)))
        except BrokenPipeError:
            pass  # the run's work is not its display
        except UserError as error:
            report.show_error(self, error)
            return exit_code or error.exit_code
        return exit_code


# --- results ----------------------------------------------------------------------------------


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


def of_answer(answer: Answer) -> dict[str, Any]:
    """The result of a form in a session that did not end well."""
    if answer.error is not None:
        return of_refusal(answer.error)
    if answer.fault is not None:
        return failure(FAILURE, answer.fault.message, {"kind": answer.fault.kind}, {})
    return failure(FAILURE, "it was interrupted", {"kind": "interrupt"}, {})


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
    return json.dumps(result, indent=2, ensure_ascii=False, default=str) + "\n"


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
        if usage.get("tokens"):
            facts.append(f"{usage['tokens']:,} tokens")
        if usage.get("usd") is not None:
            facts.append(f"${usage['usd']:.4f}")
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


def _shown(text: str, is_terminal: bool) -> str:
    return "\n".join(map(printable, text.split("\n"))) if is_terminal else text


def help_text(call: task_line.Call, verb: str = "llc task") -> str:
    """What `--help` behind a name says: how it is called, by `verb`, and its parameters."""
    from ..effects.tool_listing import as_text

    if call.signature is None:
        return "An expression takes no parameters; see `llc task --help`.\n"
    usage = f"Usage: {verb} {task_line.usage(call.signature)}\n\n"
    return usage + as_text([call.signature], True)
