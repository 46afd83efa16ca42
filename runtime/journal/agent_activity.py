"""What an agent does while it works: one record for each fact that its event stream states.

The rule engine of `effects.agents` yields these records, `Context.on_agent` receives them, and the journal
and the displays use them. A plain class, because the path of a cached run imports this package.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kinds of activity, and the fields of each besides `kind`.
ACTIVITY_KINDS = {
    "session": "id: the session; known before the program starts where the agent accepts an id",
    "model": "name: the model that answers",
    "text": "text: what the agent says",
    "tool": "id, name, target: a tool starts; target: its file, command, pattern or address",
    "tool-end": "id, name, target, text, is_error: a tool has ended; text: the end of its output",
    "files": "files: paths that the agent wrote, as the agent names them",
    "usage": "usage: {usd, input_tokens, output_tokens, cached_tokens, tokens} of the process so far",
    "rate-limit": "name: the state of the limit; resets_at: seconds since 1970, None if unknown",
    "retry": "attempt, delay_s, status, text: the agent repeats a model request",
    "refusal": "name, target: a tool that the agent was not permitted to use",
    "error": "name: the kind of error; status, text: the HTTP status and the agent's words",
    "final": "text: the final answer",
}


class AgentActivity:
    """One fact about an agent at work; `ACTIVITY_KINDS` lists the kinds and their fields."""

    __slots__ = (
        *("attempt", "delay_s", "files", "id", "is_error", "kind", "name", "resets_at", "status", "target"),
        *("text", "usage"),
    )

    def __init__(
        self,
        kind: str,
        *,
        id: str = "",
        name: str = "",
        target: str = "",
        text: str = "",
        files: tuple[str, ...] = (),
        is_error: bool = False,
        status: int | None = None,
        resets_at: float | None = None,
        attempt: int | None = None,
        delay_s: float | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.id = id
        self.name = name
        self.target = target
        self.text = text
        self.files = files
        self.is_error = is_error
        self.status = status
        self.resets_at = resets_at
        self.attempt = attempt
        self.delay_s = delay_s
        self.usage = usage

    def as_data(self) -> dict[str, Any]:
        """The fields that say something, as plain data."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: list(value) if name == "files" else value
            for name, value in found.items()
            if value not in (None, "", (), False)
        }

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.as_data().items())
        return f"AgentActivity({fields})"
