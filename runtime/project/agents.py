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
    from typing import Any

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
# Options that a loop sets for an agent, and the arguments of Claude Code for each permission mode.
OPTIONS = ("permissions", "model", "allowed_tools")
SKIP = "--dangerously-skip-permissions"
MODES = {
    "skip": (SKIP,),
    "edit": ("--permission-mode", "acceptEdits"),
    "plan": ("--permission-mode", "plan"),
    "ask": ("--permission-mode", "default"),
}
# What it may use where it refuses to have every permission, as it does for root.
ROOT_TOOLS = ("Bash", "Edit", "Write", "NotebookEdit", "WebFetch", "WebSearch", "Skill", "SlashCommand")
_PLACES = re.compile(r"\{(?:prompt|session)\}")


class Agent:
    """An agent program.

    argv: its words, one of which may hold `{prompt}`. resume: its words to continue `{session}`, () if it
    cannot continue a session. output: one of `OUTPUTS`. fields: paths in a JSON report that differ from
    `FIELDS`. permissions, model, allowed_tools: what a loop asks of it, None where it asks nothing.
    """

    __slots__ = ("allowed_tools", "argv", "fields", "model", "output", "permissions", "resume")

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
        self.permissions: str | None = None
        self.model: str | None = None
        self.allowed_tools: tuple[str, ...] | None = None

    @property
    def is_claude(self) -> bool:
        """Whether it is Claude Code, whose options llc knows."""
        return os.path.basename(self.argv[0]) == "claude"

    @property
    def reads_prompt(self) -> bool:
        """Whether the prompt is its standard input, which has no limit of length, not an argument."""
        return self.is_claude and not any(PROMPT in word for word in (*self.argv, *self.resume))

    def asked(self, args: Mapping[str, Any]) -> Agent:
        """The same agent with what an effect asks of it."""
        agent = Agent(self.argv, self.resume, self.output, self.fields)
        agent.permissions, agent.model = args.get("permissions"), args.get("model")
        tools = args.get("allowed_tools")
        agent.allowed_tools = tuple(tools) if tools else None
        return agent

    @property
    def unknown_options(self) -> list[str]:
        """What a loop asks of it that llc cannot tell it."""
        return [] if self.is_claude else [name for name in OPTIONS if getattr(self, name)]

    @property
    def resuming(self) -> tuple[str, ...]:
        """The words with which it continues a session; () if it cannot."""
        options = RESUME_OPTIONS.get(os.path.basename(self.argv[0]))
        return self.resume or ((self.argv[0], *options, *self.argv[1:]) if options else ())

    def words(self, prompt: str, session: str | None = None, is_root: bool = False) -> list[str]:
        """The words of the command, with the prompt in its place, else at the end.

        is_root: whether the agent will refuse to be given every permission.
        """
        given = {PROMPT: prompt}
        name, *rest = self.argv
        if session and self.resuming:
            given[SESSION] = session
            name, *rest = self.resuming
        if self.is_claude:
            rest = self._options(rest, is_root)
        if not self.reads_prompt and not any(PROMPT in word for word in rest):
            rest = [*rest, PROMPT]
        # In one pass: a prompt may contain `{session}`.
        return [name, *(_PLACES.sub(lambda found: given.get(found[0], found[0]), word) for word in rest)]

    def skips_permissions(self) -> bool:
        """Whether it is to have every permission: asked for, or not said otherwise."""
        if self.permissions is not None:
            return self.permissions == "skip"
        return SKIP in self.argv

    def _options(self, rest: list[str], is_root: bool) -> list[str]:
        """The words of Claude Code with what the loop asks of it."""
        mode = self.permissions
        if is_root and self.skips_permissions():
            mode = "edit"
        tools = self.allowed_tools
        if mode is not None:
            rest = [word for word in rest if word != SKIP]
            if is_root and self.skips_permissions():
                tools = tools or ROOT_TOOLS
        options = list(MODES[mode]) if mode is not None else []
        options += ["--model", self.model] if self.model else []
        options += ["--allowedTools", ",".join(tools)] if tools else []
        return [*options, *rest]

    def path(self, field: str) -> str:
        """Where a JSON report has `field`."""
        return self.fields.get(field, FIELDS[field])


# Agents that need no configuration, by name.
KNOWN = {
    "claude": Agent((*("claude", SKIP, "--output-format", "stream-json", "--verbose", "-p"),)),
}
DEFAULT = "claude"
# Options with which a program continues a session, whatever its other words are.
RESUME_OPTIONS = {"claude": ("--resume", SESSION)}
