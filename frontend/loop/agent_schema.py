"""Schema of the settings for agents and models: options, settings, budgets."""

from __future__ import annotations

from typing import ClassVar

from ...ir.effects import PERMISSIONS
from ..source.schema import BOOLEAN, COUNT, DURATION, TEXT, Spec, Type, choice, fields_of, optional


class LlmSettings(Spec):
    """`llm`: settings of the model that evaluates output."""

    enabled: bool = optional(
        BOOLEAN,
        "Whether a model judges output; if `false`, slash commands are judged by their exit code.",
        True,
    )
    model: str | None = optional(
        TEXT, "The model; default, or `${DEFAULT_LLM_MODEL}`: the default model of llc."
    )
    max_tokens: int = optional(COUNT, "Maximum number of tokens of a judgement.", 256)
    timeout: float = optional(DURATION, "Timeout of a judgement, in seconds.", 30)
    judge: str | None = optional(
        choice("model", "agent"), "Who judges; default: the model, or the agent if no model can be called."
    )
    sees: str | None = optional(
        choice("evidence", "output"),
        "What the model gets about an agent's work: its changes and the last check (`evidence`), or "
        "its answer (`output`); default: evidence, and the answer to a slash command that changed no "
        "file.",
    )


class AgentSettings(Spec):
    """`agent`: the program that runs slash commands; the command is its last argument."""

    program: str = optional(TEXT, "The program.", "claude")
    args: tuple[str, ...] = optional(
        Type("list", TEXT),
        "Arguments before the prompt; with `{prompt}` also after it.",
        ("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "-p"),
    )
    acp: tuple[str, ...] | None = optional(
        Type("list", TEXT, least=1),
        "Instead of `program` and `args`: a command that speaks the Agent Client Protocol, such as "
        "`[opencode, acp]`.",
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

    usd: float | None = optional(Type("number", above=0, most=1e12), "Maximum cost in US dollars.")
    tokens: int | None = optional(COUNT, "Maximum number of input and output tokens.")
    calls: int | None = optional(COUNT, "Maximum number of calls.")
    seconds: float | None = optional(
        Type("number", above=0, most=1e12), "Maximum total duration of calls, in seconds."
    )

    @property
    def bounds(self) -> dict[str, float]:
        """The limits by unit."""
        given = {"usd": self.usd, "tokens": self.tokens, "calls": self.calls, "seconds": self.seconds}
        return {unit: bound for unit, bound in given.items() if bound is not None}


class AgentOptions(Spec):
    """Options of an agent, for a loop or, in place of the loop's options, for a state."""

    model: str | None = optional(TEXT, "The agent's model; default: chosen by the agent.")
    effort: str | None = optional(
        TEXT, "Reasoning effort of the model, with the agent's own names, such as `high`."
    )
    permissions: str | None = optional(
        choice(*PERMISSIONS),
        "Permissions of the agent: everything (`skip`, the default), edits in the project, plans "
        "only, or the user's settings (`ask`).",
    )
    allowed_tools: tuple[str, ...] | None = optional(
        Type("list", TEXT, least=1), "Additional tools that the agent may use, such as `Bash(pytest *)`."
    )
    append_prompt: str | None = optional(TEXT, "Text that is appended to the agent's system prompt.")
    session: str | None = optional(
        choice("new", "continue", "fork"),
        "Session of the agent: a new one (default), its last session of the run, or a copy of that session.",
    )
    idle_timeout: float | None = optional(
        DURATION, "Seconds without output after which the agent is stopped."
    )
    max_turns: int | None = optional(COUNT, "Maximum number of model turns per start of the agent.")


AGENT_OPTIONS = tuple(fields_of(AgentOptions))
