"""What an agent did in one effect: its events, folded."""

from __future__ import annotations

from ...ir.light_records import LightRecord, field
from .events import AgentActed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Entries of a list, and characters of an answer, that are kept.
_MANY = 100
_LONGEST = 4096
# What shows that a model has answered.
WORK = ("text", "tool", "tool-end", "files", "refusal", "usage", "final")


class AgentHistory(LightRecord):
    """running: tools that have started and not ended, by id. answer: the final one, else the last text.

    has_worked: whether it has done more than to open a session. waits: the account and the time in seconds
    since 1970 while it is not started because the quota is used up, else None.
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
        """The effect is performed, again if it was before."""
        self._is_again = True
        self.waits = None

    def add(self, event: AgentActed) -> None:
        """The next event of the effect."""
        if event.what in WORK:
            if self._is_again:
                self.running.clear()  # the agent knows by now what was interrupted
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
                if len(self.running) > _MANY:
                    del self.running[next(iter(self.running))]
            case "tool-end":
                self.running.pop(event.id, None)
            case "files":
                for file in event.files:
                    if len(self.files) < _MANY and isinstance(file, str):
                        self.files[file] = None
            case "refusal":
                if len(self.refusals) < _MANY:
                    self.refusals.append(f"{event.name_} {event.target}".strip())
            case "text" | "final":
                self.answer = event.wire.get("text", "")

    def finish(self, result: dict[str, Any]) -> None:
        """The effect has its result."""
        self.waits = None
        self.running.clear()
        self.session = self.session or result.get("session")
        self.answer = result.get("output") or self.answer

    def to_json(self) -> dict[str, Any]:
        """Its facts as on the lines; long texts and secrets as references."""
        return {
            "effect": self.seq,
            "session": self.session,
            "model": self.model,
            "tools": self.tools,
            "running": list(self.running.values()),
            "files": list(self.files),
            "refusals": self.refusals,
            "answer": self.answer,
            **(
                {}
                if self.waits is None
                else {"waits": dict(zip(("account", "until"), self.waits, strict=True))}
            ),
        }


def shortened(answer: str) -> str:
    """The end of an answer, as far as displays show it."""
    return answer if len(answer) <= _LONGEST else "…" + answer[-_LONGEST:]
