"""An action as text: how it was called, what it writes line by line, why it failed."""

from __future__ import annotations

from ...ir.effects import EFFECTS
from ...vm.primitives.verdicts import judge_crash
from ..host.screen import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What stands before what, on a screen that shows all characters or only ASCII.
MARKS = {
    True: {"ok": "✓", "bad": "✗", "other": "•", "to": "→", "bar": "│", "more": "…", "spin": "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"},
    False: {"ok": "+", "bad": "x", "other": "*", "to": "->", "bar": "|", "more": "...", "spin": "|/-\\"},
}
# Lines of one action that are shown as they come; of what follows only the last few are.
MOST_LINES = 2_000
LAST_LINES = 10
LONGEST_LINE = 2_000
# Characters of why a task failed.
_LONGEST_REFUSAL = 300


def tone(verdict: str) -> tuple[str, str]:
    """How a verdict looks: `ok`, `bad`, or `other` where the loop alone knows which it is; and its colour."""
    if verdict in ("success", "target"):
        return "ok", "green"
    return ("bad", "red") if verdict in ("failure", "error") else ("other", "yellow")


def called(kind: str, args: dict[str, Any]) -> str:
    """An action as it is shown: the command, or the tool or task with what it is given."""
    row = EFFECTS[kind]
    given = args.get(row.inputs)
    shown = [f"({name} {_brief(value)})" for name, value in given.items()] if isinstance(given, dict) else []
    return " ".join([str(args.get(row.subject, "")), *shown])


def _brief(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def refusal(result: dict[str, Any]) -> str:
    """Why a tool or task gave nothing, "" where it did."""
    if result.get("error"):
        return str(result["error"].get("message"))
    task = result.get("result")
    if not isinstance(task, dict) or task.get("status") != "FAILED":
        return ""
    notes = task.get("notes")
    error = notes.get("error") if isinstance(notes, dict) else None
    why = error.get("message") if isinstance(error, dict) else None
    return f"FAILED: {' '.join(why.split())[:_LONGEST_REFUSAL]}" if isinstance(why, str) and why else "FAILED"


def failure_text(result: dict[str, Any]) -> str:
    """Why an action did not end with 0, in a few words; "" where it did."""
    crash = judge_crash(result)
    if crash is not None and (result.get("error") or crash["details"]["reason"] in ("timeout", "signal")):
        return str(crash["details"]["message"])
    return f"exit {result['exit_code']}" if result.get("exit_code") else ""


class ActionOutput:
    """The output of one action taken apart in lines fit to show, bounded in number and length."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        self._partial = {"output": "", "stderr": ""}
        self._shown = 0
        self._hidden = 0
        self._last: list[str] = []

    def feed(self, stream: str, text: str) -> list[str]:
        """The whole lines that can be shown now."""
        text = self._partial.get(stream, "") + text
        if "\n" not in text:
            # A progress bar or an endless line: its end is what counts.
            self._partial[stream] = text if len(text) <= 4 * LONGEST_LINE else text[-LONGEST_LINE:]
            return []
        room = self._limit - self._shown
        if room > 0:
            lines = text.split("\n", room)
            self._partial[stream] = lines.pop()
            self._shown += len(lines)
            shown = [_shown_line(line) for line in lines]
            if "\n" in self._partial[stream]:
                shown += self.feed(stream, "")
            return shown
        whole, _, self._partial[stream] = text.rpartition("\n")
        self._hidden += whole.count("\n") + 1
        self._last = (self._last + whole[-LAST_LINES * LONGEST_LINE :].split("\n")[-LAST_LINES:])[
            -LAST_LINES:
        ]
        return []

    def partial(self) -> str:
        """The line that is being written."""
        return _shown_line(self._partial["output"] or self._partial["stderr"])

    def finish(self) -> tuple[list[str], int, list[str]]:
        """Unended lines, how many lines were not shown, and the last of those."""
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
    """A line as a terminal would have left it: after its last carriage return, without controls."""
    line = line.rstrip("\r")
    line = printable(line[line.rfind("\r") + 1 :])
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + " …"
