"""Agent activity: one record for each fact in the event stream of an agent.

The rule engine of `effects.agents` yields these records, `Context.on_agent` receives them, and the journal
and the displays use them. A light record instead of an attrs class, because starting a cached run imports
this package.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kinds of activity, with the fields of each in addition to `kind`.
ACTIVITY_KINDS = {
    "session": "id: the session; known before the program starts where the agent accepts an id",
    "model": "name: the model that answers",
    "text": "text: what the agent says",
    "tool": "id, name, target: a tool starts; target: its file, command, pattern or address",
    "tool-end": "id, name, target, text, is_error: a tool has ended; text: the end of its output",
    "files": "files: paths that the agent wrote, as the agent names them",
    "usage": "usage: {usd, input_tokens, output_tokens, cached_tokens, tokens} of the process so far",
    "rate-limit": "name: the state of the limit; resets_at: seconds since 1970, None if unknown",
    "quota-wait": "name, text, resets_at: the agent is not started before this time: its account, why",
    "quota-over": "name, delay_s: the wait for the quota of this account has ended after these seconds",
    "retry": "attempt, delay_s, status, text: the agent repeats a model request",
    "refusal": "name, target: a tool that the agent was not permitted to use",
    "question": "id, name, target: a tool that a person should permit; id: where the answer is put",
    "answer": "id, text: what the person has answered",
    "error": "name: the kind of error; status, text: the HTTP status and the agent's words",
    "final": "text: the final answer",
}

# Answers to a `question`.
PERMIT, REJECT = "allow", "reject"


class AgentActivity(LightRecord):
    """One activity of an agent; `ACTIVITY_KINDS` lists the kinds and their fields."""

    kind: str
    id: str = ""
    name: str = ""
    target: str = ""
    text: str = ""
    files: tuple[str, ...] = ()
    is_error: bool = False
    status: int | None = None
    resets_at: float | None = None
    attempt: int | None = None
    delay_s: float | None = None
    usage: dict[str, Any] | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the fields that are set, as plain data."""
        fields = {name: getattr(self, name) for name in self.field_names}
        return {
            name: list(value) if name == "files" else value
            for name, value in fields.items()
            if value not in (None, "", (), False)
        }

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.as_data().items())
        return f"AgentActivity({fields})"
