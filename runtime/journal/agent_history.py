"""Agent history: fold of the events of an agent in one effect."""

from __future__ import annotations

from ...ir.light_records import LightRecord, field
from .events import AgentActed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Maximum number of entries of a list, and maximum length of a displayed answer in characters.
_MAX_ENTRIES = 100
_MAX_ANSWER_CHARS = 4096
# Activities which show that a model has answered.
WORK = ("text", "tool", "tool-end", "files", "refusal", "usage", "final")


class AgentHistory(LightRecord):
    """Activity of an agent in one effect.

    has_worked: whether it has done more than open a session. running: tools in progress, by id. answer: the
    final answer, otherwise the last text. waits: account and end time (seconds since 1970) of a wait for
    quota; else None.
    """

    seq: int
    has_worked: bool = False
    _is_again: bool = False
    session: str | None = None
    model: str | None = None
    tools: int = 0
    running: dict[str, str] = field(factory=dict)
    files: dict[str, None] = field(factory=dict)
    refusals: list[str] = field(factory=list)
    answer: Any = ""
    waits: tuple[str, float] | None = None

    def begin(self) -> None:
        """Record that the effect is performed, possibly again."""
        self._is_again = True
        self.waits = None

    def add(self, event: AgentActed) -> None:
        """Add the next event of the effect."""
        if event.what in WORK:
            if self._is_again:
                self.running.clear()  # the repeated agent has continued, so earlier tools are over
                self._is_again = False
            self.has_worked = True
        self.waits = None
        match event.what:
            case "quota-wait":
                self.waits = event.name_, event.resets_at or 0.0
            case "session":
                self.session = event.id
            case "model":
                self.model = event.name_
            case "tool":
                self.tools += 1
                self.running[event.id or f"#{self.tools}"] = f"{event.name_} {event.target}".strip()
                if len(self.running) > _MAX_ENTRIES:
                    del self.running[next(iter(self.running))]
            case "tool-end":
                self.running.pop(event.id, None)
            case "files":
                for file in event.files:
                    if len(self.files) < _MAX_ENTRIES and isinstance(file, str):
                        self.files[file] = None
            case "refusal":
                if len(self.refusals) < _MAX_ENTRIES:
                    self.refusals.append(f"{event.name_} {event.target}".strip())
            case "text" | "final":
                self.answer = event.wire.get("text", "")

    def finish(self, result: dict[str, Any]) -> None:
        """Add the result of the effect."""
        self.waits = None
        self.running.clear()
        self.session = self.session or result.get("session")
        self.answer = result.get("output") or self.answer

    def to_json(self) -> dict[str, Any]:
        """Return the history as JSON; long texts and secrets are references."""
        data = {
            "effect": self.seq,
            "session": self.session,
            "model": self.model,
            "tools": self.tools,
            "running": list(self.running.values()),
            "files": list(self.files),
            "refusals": self.refusals,
            "answer": self.answer,
        }
        if self.waits is not None:
            data["waits"] = dict(zip(("account", "until"), self.waits, strict=True))
        return data


def shortened(answer: str) -> str:
    """Return the end of an answer, for display."""
    return answer if len(answer) <= _MAX_ANSWER_CHARS else "…" + answer[-_MAX_ANSWER_CHARS:]
