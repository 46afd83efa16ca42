"""What an agent says while it works: the events of `--output-format stream-json`, one JSON object a line.

Reads text as it comes, in whatever pieces, and keeps what the run needs: the result, the session, what
was used, what went wrong. What it does not know it passes over; a line that is no JSON is the program's
own words. Must not be in here: processes and the result of the effect (`agent`).
"""

from __future__ import annotations

import json
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# A longer line is passed over. A tool's whole result may stand in one.
LONGEST_LINE = 64 << 20
# What is kept of what was said, in characters, where there is no result in the end.
_KEPT = 1 << 20
_SHOWN = 200
# The argument of a tool that says most to a person who watches.
_TELLING = (
    *("file_path", "notebook_path", "path", "command", "pattern", "query", "url", "skill"),
    *("description", "prompt"),
)
_COUNTS = ("input_tokens", "output_tokens", "tokens")
_INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Stream:
    """One agent's output. `show(text)` receives what a person wants to see of it.

    is_stream: whether any event was seen. report: the event of type "result". session: its id.
    """

    def __init__(self, show: Callable[[str], object] | None = None) -> None:
        self._show = show
        self._parts: list[str] = []
        self._size = 0
        self._is_skipping = False
        self._said: deque[str] = deque()
        self._said_size = 0
        self._usage: dict[str, dict[str, Any]] = {}
        self.is_stream = False
        self.skipped = 0
        self.report: dict[str, Any] | None = None
        self.session: str | None = None

    def feed(self, text: str) -> None:
        """Take what was written next."""
        *lines, rest = text.split("\n")
        for line in lines:
            self._add(line)
            self.finish()
        self._add(rest)

    def _add(self, part: str) -> None:
        """Take a part of a line."""
        if self._is_skipping or not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > LONGEST_LINE:
            self._is_skipping = True
            self._parts.clear()
            self.skipped += 1

    def finish(self) -> None:
        """Take the line that has come so far as a whole one."""
        line = "".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._is_skipping = False
        if line.strip():
            self._line(line)

    def _line(self, line: str) -> None:
        event: Any = None
        if line.lstrip().startswith("{"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            self._say(line)
            return
        kind = event["type"]
        if kind in ("system", "assistant", "user", "result", "stream_event"):
            self.is_stream = True
        session = event.get("session_id")
        if isinstance(session, str) and session:
            self.session = session
        if kind == "result":
            self.report = event
        elif kind == "assistant":
            self._assistant(event.get("message"))

    def _assistant(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._usage[str(message.get("id"))] = usage  # each part of a message tells it again
        content = message.get("content")
        if isinstance(content, str):
            self._say(content)
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "text" and isinstance(block.get("text"), str):
                self._say(block["text"])
            elif block.get("type") == "tool_use":
                self._tell(f"[{_tool(block)}]\n")

    def _say(self, text: str) -> None:
        if not text.strip():
            return
        self._said.append(text)
        self._said_size += len(text)
        while self._said_size > _KEPT and len(self._said) > 1:
            self._said_size -= len(self._said.popleft())
        self._tell(text if text.endswith("\n") else text + "\n")

    def _tell(self, text: str) -> None:
        if self._show is not None:
            self._show(text)

    @property
    def said(self) -> str:
        """What it said, one thing after another."""
        text = "\n".join(part.rstrip("\n") for part in self._said)
        return text[-_KEPT:] + ("\n" if text else "")

    @property
    def usage(self) -> dict[str, Any]:
        """What was used: as the result says, else as the messages say so far, without a price."""
        if self.report is not None:
            return usage_of(self.report)
        found = [usage_of({"usage": usage}) for usage in self._usage.values()]
        told = [one for one in found if one["tokens"] is not None]
        if not told:
            return usage_of({})
        return {"usd": None, **{name: sum(one[name] for one in told) for name in _COUNTS}}


def usage_of(report: dict[str, Any]) -> dict[str, Any]:
    """{usd, input_tokens?, output_tokens?, tokens} of a report; what it does not tell is null, or not there.

    Cached input counts as input: it was read, and it is part of what was paid for.
    """
    usd = amount(report.get("total_cost_usd"))
    counts = report.get("usage")
    told = counts if isinstance(counts, dict) else {}
    read = [count for name in _INPUT_COUNTS if (count := amount(told.get(name))) is not None]
    written = amount(told.get("output_tokens"))
    if not read and written is None:
        return {"usd": usd, "tokens": None}
    counted = int(sum(read)), int(written or 0)
    return {"usd": usd, **dict(zip(_COUNTS, (*counted, sum(counted)), strict=True))}


def amount(value: Any) -> float | int | None:
    """A finite number that is not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 1e15 else None


def _tool(block: dict[str, Any]) -> str:
    """The use of a tool in a few words: `Edit src/main.py`."""
    name = str(block.get("name"))
    given = block.get("input")
    given = given if isinstance(given, dict) else {}
    about = next(
        (given[key] for key in _TELLING if isinstance(given.get(key), str) and given[key].strip()), ""
    )
    line = " ".join(f"{name} {about}".split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
