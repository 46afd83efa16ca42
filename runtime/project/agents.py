"""Agent programs: those that llc knows, and how a program is called and its output read.

An agent that needs no configuration is a row of `KNOWN`; a project adds others under `agents` in
`.loops/config.yaml`. See `spec/agents.md`.
"""

from __future__ import annotations

import os.path
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT, SESSION = "{prompt}", "{session}"
# How an output is read; `auto`: as events if it is events, as a report if it is one, else as text.
OUTPUTS = ("auto", "text", "json", "stream-json")
# Paths in a JSON report, unless `fields` of the agent names others.
FIELDS = {
    "result": "result",
    "session": "session_id",
    "usd": "total_cost_usd",
    "input_tokens": "usage.input_tokens",
    "output_tokens": "usage.output_tokens",
    "error": "error",
}
_PLACES = re.compile(r"\{(?:prompt|session)\}")


class Agent:
    """An agent program.

    argv: its words, one of which may hold `{prompt}`. resume: its words to continue `{session}`, () if it
    cannot continue a session. output: one of `OUTPUTS`. fields: paths in a JSON report that differ from
    `FIELDS`.
    """

    __slots__ = ("argv", "fields", "output", "resume")

    def __init__(
        self,
        argv: tuple[str, ...],
        resume: tuple[str, ...] = (),
        output: str = "auto",
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.argv = argv
        self.resume = resume
        self.output = output
        self.fields = fields or {}

    @property
    def resuming(self) -> tuple[str, ...]:
        """The words with which it continues a session; () if it cannot."""
        options = RESUME_OPTIONS.get(os.path.basename(self.argv[0]))
        return self.resume or ((self.argv[0], *options, *self.argv[1:]) if options else ())

    def words(self, prompt: str, session: str | None = None) -> list[str]:
        """The words of the command, with the prompt in its place, else at the end."""
        given = {PROMPT: prompt}
        name, *rest = self.argv
        if session and self.resuming:
            given[SESSION] = session
            name, *rest = self.resuming
        if not any(PROMPT in word for word in rest):
            rest = [*rest, PROMPT]
        # In one pass: a prompt may contain `{session}`.
        return [name, *(_PLACES.sub(lambda found: given.get(found[0], found[0]), word) for word in rest)]

    def path(self, field: str) -> str:
        """Where a JSON report has `field`."""
        return self.fields.get(field, FIELDS[field])


# Agents that need no configuration, by name.
KNOWN = {
    "claude": Agent(
        (
            *("claude", "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose"),
            *("-p", PROMPT),
        )
    ),
}
DEFAULT = "claude"
# Options with which a program continues a session, whatever its other words are.
RESUME_OPTIONS = {"claude": ("--resume", SESSION)}
