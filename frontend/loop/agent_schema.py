"""Schema of the settings for agents and models: options, settings, budgets."""

from __future__ import annotations

from typing import ClassVar

from ...ir.effects import PERMISSIONS
from ..source.schema import BOOLEAN, COUNT, DURATION, TEXT, Spec, Type, choice, fields_of, optional


class LlmSettings(Spec):
    """`llm`: settings of the model that evaluates output."""

    enabled: bool = optional(
        BOOLEAN, "Whether a model may be asked; `false` judges slash commands by exit code.", True
    )
    model: str | None = optional(TEXT, "The model; absent or `${DEFAULT_LLM_MODEL}` is the built-in default.")
    max_tokens: int = optional(COUNT, "The most tokens a judgement may take.", 256)
    timeout: float = optional(DURATION, "Seconds for one judgement.", 30)
    judge: str | None = optional(
        choice("model", "agent"), "Who judges; absent: the model, or the agent if only it can be asked."
    )
    sees: str | None = optional(
        choice("evidence", "output"),
        "What is shown of an agent's work: what it changed and the last check (`evidence`), or its answer; "
        "absent: evidence, and the answer to a slash command that changed no file.",
    )


class AgentSettings(Spec):
    """`agent`: the program that runs slash commands; the command is its last argument."""

    program: str = optional(TEXT, "The program.", "claude")
    args: tuple[str, ...] = optional(
        Type("list", TEXT),
        "Its arguments before the command, or around it: `{prompt}`.",
        ("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "-p"),
    )
    acp: tuple[str, ...] | None = optional(
        Type("list", TEXT, least=1),
        "In place of both: a command that speaks the Agent Client Protocol: `[opencode, acp]`.",
    )

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments."""
        return self.acp if self.acp is not None else (self.program, *self.args)

    @property
    def protocol(self) -> str | None:
        """The protocol of the agent; None: it takes the prompt as an argument."""
        return "acp" if self.acp is not None else None


class Budget(Spec):
    """`budget`: limits for all agent and model calls of a run together, as the agents and models report
    them.
    """

    example: ClassVar[str] = "such as `{usd: 5}`"

    usd: float | None = optional(Type("number", above=0, most=1e12), "US dollars at most.")
    tokens: int | None = optional(COUNT, "Tokens at most, in and out.")
    calls: int | None = optional(COUNT, "Calls at most.")
    seconds: float | None = optional(Type("number", above=0, most=1e12), "Seconds that calls take at most.")

    @property
    def bounds(self) -> dict[str, float]:
        """The limits by unit."""
        given = {"usd": self.usd, "tokens": self.tokens, "calls": self.calls, "seconds": self.seconds}
        return {unit: bound for unit, bound in given.items() if bound is not None}


class AgentOptions(Spec):
    """Options of an agent, for a loop or, in place of the loop's options, for a state."""

    model: str | None = optional(TEXT, "The agent's model; absent: its own choice.")
    effort: str | None = optional(TEXT, "How much the model reasons, in the agent's words, such as `high`.")
    permissions: str | None = optional(
        choice(*PERMISSIONS),
        "What the agent may do without asking: all, edits, plans only, or as set; absent: `skip`.",
    )
    allowed_tools: tuple[str, ...] | None = optional(
        Type("list", TEXT, least=1), "Tools that the agent may use as well, such as `Bash(pytest *)`."
    )
    append_prompt: str | None = optional(TEXT, "Text that follows the agent's system prompt.")
    session: str | None = optional(
        choice("new", "continue", "fork"),
        "Whether the agent continues its last session of the run, or a copy of it; absent: `new`.",
    )
    idle_timeout: float | None = optional(DURATION, "Seconds without output until the agent is stopped.")
    max_turns: int | None = optional(COUNT, "Model turns of one start of the agent at most.")


AGENT_OPTIONS = tuple(fields_of(AgentOptions))
