"""Text of an action: its call, its output as lines, its failure."""

from __future__ import annotations

from ...ir.effects import EFFECTS
from ...vm.primitives.verdicts import judge_crash
from ..host.screen import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Marks before lines, for Unicode screens (True) and for ASCII screens (False).
MARKS = {
    True: {"ok": "✓", "bad": "✗", "other": "•", "to": "→", "bar": "│", "more": "…", "spin": "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"},
    False: {"ok": "+", "bad": "x", "other": "*", "to": "->", "bar": "|", "more": "...", "spin": "|/-\\"},
}
# Lines of an action's output that are shown live; of the further lines only the last ones are shown, at its
# end.
MAX_LIVE_LINES = 2_000
LAST_LINES = 10
MAX_LINE_CHARACTERS = 2_000
_MAX_FAILURE_CHARACTERS = 300


def tone(verdict: str) -> tuple[str, str]:
    """The mark and the style of a verdict; `other` for verdicts whose meaning only the loop defines."""
    if verdict in ("success", "target"):
        return "ok", "green"
    return ("bad", "red") if verdict in ("failure", "error") else ("other", "yellow")


def call_text(kind: str, args: dict[str, Any]) -> str:
    """The call of an action: the command, or the tool or task with its inputs."""
    row = EFFECTS[kind]
    inputs = args.get(row.inputs)
    shown = (
        [f"({name} {_brief(value)})" for name, value in inputs.items()] if isinstance(inputs, dict) else []
    )
    return " ".join([str(args.get(row.subject, "")), *shown])


def _brief(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def task_failure_text(result: dict[str, Any]) -> str:
    """The failure of a tool or task on one line; "" if it succeeded."""
    if result.get("error"):
        return str(result["error"].get("message"))
    task = result.get("result")
    if not isinstance(task, dict) or task.get("status") != "FAILED":
        return ""
    notes = task.get("notes")
    error = notes.get("error") if isinstance(notes, dict) else None
    why = error.get("message") if isinstance(error, dict) else None
    return (
        f"FAILED: {' '.join(why.split())[:_MAX_FAILURE_CHARACTERS]}"
        if isinstance(why, str) and why
        else "FAILED"
    )


def failure_text(result: dict[str, Any]) -> str:
    """The failure of an action in a few words; "" if its exit code is 0."""
    crash = judge_crash(result)
    if crash is not None and (result.get("error") or crash["details"]["reason"] in ("timeout", "signal")):
        return str(crash["details"]["message"])
    return f"exit {result['exit_code']}" if result.get("exit_code") else ""


class ActionOutput:
    """Splits the output of one action into printable lines, limited in number and length."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        self._partial = {"output": "", "stderr": ""}
        self._shown = 0
        self._hidden = 0
        self._last: list[str] = []

    def feed(self, stream: str, text: str) -> list[str]:
        """Add text of a stream; returns the complete lines that can be shown now."""
        text = self._partial.get(stream, "") + text
        if "\n" not in text:
            # For a progress bar or a very long line, only the end matters.
            self._partial[stream] = (
                text if len(text) <= 4 * MAX_LINE_CHARACTERS else text[-MAX_LINE_CHARACTERS:]
            )
            return []
        remaining = self._limit - self._shown
        if remaining > 0:
            lines = text.split("\n", remaining)
            self._partial[stream] = lines.pop()
            self._shown += len(lines)
            shown = [_shown_line(line) for line in lines]
            if "\n" in self._partial[stream]:
                shown += self.feed(stream, "")
            return shown
        complete, _, self._partial[stream] = text.rpartition("\n")
        self._hidden += complete.count("\n") + 1
        latest = complete[-LAST_LINES * MAX_LINE_CHARACTERS :].split("\n")[-LAST_LINES:]
        self._last = (self._last + latest)[-LAST_LINES:]
        return []

    def partial(self) -> str:
        """The incomplete last line."""
        return _shown_line(self._partial["output"] or self._partial["stderr"])

    def finish(self) -> tuple[list[str], int, list[str]]:
        """End the output: incomplete lines, the number of hidden lines, and the lines to show after them."""
        lines: list[str] = []
        for stream, text in self._partial.items():
            if text:
                self._partial[stream] = ""
                lines += self.feed(stream, text + "\n")
        last = [_shown_line(line) for line in self._last]
        result = (lines, self._hidden - len(last), last)
        self.reset()
        return result


def _shown_line(line: str) -> str:
    """The visible part of a line: the text after its last carriage return, without control characters."""
    line = line.rstrip("\r")
    line = printable(line[line.rfind("\r") + 1 :])
    return line if len(line) <= MAX_LINE_CHARACTERS else line[:MAX_LINE_CHARACTERS] + " …"
