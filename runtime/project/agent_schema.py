"""Schema of an agent: its command line, the meaning of its events, its errors.

`stdlib/agents/NAME.yaml` describes one agent; `agents` in `.loops/config.yaml` has the agents of a project.
See `spec/agents.md`. Must not contain: processes, the reader of an event stream (`effects.agents`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...frontend.source.schema import (
    BOOLEAN,
    COUNT,
    NAME,
    PAUSE,
    SCALAR,
    TEXT,
    VARIABLE,
    Spec,
    Type,
    block,
    choice,
    optional,
    required,
)
from ...ir.effects import PERMISSIONS

# Output formats; `auto` detects events, then a JSON report, otherwise text.
OUTPUTS = ("auto", "text", "json", "stream-json", "events")
# Default paths in a JSON report; `fields` of the agent overrides them.
FIELDS = {
    "result": "result",
    "session": "session_id",
    "usd": "total_cost_usd",
    "input_tokens": "usage.input_tokens",
    "output_tokens": "usage.output_tokens",
    "error": "error",
}
# Error kinds. Only `turn-limit` is not a failure of the step, because the agent has done work.
ERROR_KINDS = (
    *("auth", "rate-limit", "quota", "overloaded", "unknown-command", "refused", "no-session"),
    *("session-exists", "too-large", "network", "turn-limit", "cost-limit", "root", "untrusted", "model"),
)
# Protocols for agent programs; `stdlib/protocols` has the keys that each protocol adds to an agent.
PROTOCOLS = ("acp",)
STOP_SIGNALS = ("INT", "TERM")
# Scopes of `usage` and `cost` of an event: one message, one step, the process so far, the session so far.
SCOPES = ("message", "step", "process", "thread")

_WORDS = Type("list", TEXT, least=1, expected="a list: a program and its arguments")
ARGV = Type(
    "list",
    Type("either", options=(TEXT, Type("list", TEXT, least=1)), expected="a word, or a list of words"),
    least=1,
    expected="a list: a program and its arguments; a nested list is omitted if its placeholder has no value",
)
_OPTIONS = Type("list", ARGV.item, expected="a list of words, and of lists of words")
# Keys from the outermost to the innermost, separated by dots; `[*]` after a key selects each item of its
# list.
PATH = Type("text", least=1, most=300, expected="a path such as `message.content` or `item.changes[*].path`")
_PATHS = Type("either", options=(PATH, Type("list", PATH, least=1)), expected="a path, or a list of paths")
_WANTED = Type(
    "either", options=(SCALAR, Type("list", SCALAR, least=1)), expected="a value, or a list of values"
)
_MATCH = Type("map", _WANTED, least=1)
_REGEX = Type("text", least=1, most=2000)
_VARIABLES = Type("map", Type("text"), pattern="[A-Za-z_][A-Za-z0-9_]*")


class RootMode(Spec):
    """Replacement for a permission mode that the program refuses to root."""

    argv: tuple[str, ...] = required(Type("list", TEXT), "Arguments that replace the mode's.")
    allowed_tools: tuple[str, ...] = optional(
        Type("list", TEXT), "Tools to allow if the loop names none.", ()
    )
    unless: str | None = optional(VARIABLE, "If this variable is 1, root gets the mode itself.")


class PermissionMode(Spec):
    """Arguments and variables that request a permission mode."""

    argv: tuple[str, ...] = optional(Type("list", TEXT), "Its arguments.", ())
    env: Mapping[str, str] = optional(_VARIABLES, "Its environment variables.", factory=dict)
    session_mode: str | None = optional(
        NAME, "Session mode of the Agent Client Protocol (`session/set_mode`)."
    )
    as_root: RootMode | None = optional(block(RootMode), "Replacement for root.")


class PromptSpec(Spec):
    """Transfer of the prompt to the program."""

    by: str = optional(choice("stdin", "argument"), "Standard input or an argument.", "argument")
    max_bytes: int | None = optional(COUNT, "A longer prompt is an error; the program is not started.")


class ToolRule(Spec):
    """A tool that starts or ends, or that was refused."""

    id: str | None = optional(PATH, "Its id, which connects its start and its end.")
    name: str | None = optional(PATH, "Its name.")
    as_name: str | None = optional(NAME, "Its name if the event does not state one.")
    target: Any = optional(_PATHS, "The object of the call: the first path with a value.", ())
    text: Any = optional(_PATHS, "Its output or its error: the first path with a value.", ())
    failed: Mapping[str, Any] = optional(_MATCH, "The tool failed if these values match.", factory=dict)


class UsageRule(Spec):
    """Token usage."""

    scope: str = required(choice(*SCOPES), "Scope of the count.")
    key: str | None = optional(PATH, "Id of the message; a later event with the same id replaces it.")
    input: Any = optional(_PATHS, "Input tokens; the values of all paths are added.", ())
    cached: Any = optional(_PATHS, "Cached input tokens, summed in the same way.", ())
    cached_is: str = optional(
        choice("apart", "included"), "Whether `input` includes the cached tokens.", "apart"
    )
    output: Any = optional(_PATHS, "Output tokens, summed in the same way.", ())


class CostRule(Spec):
    """Cost in US dollars."""

    scope: str = required(choice(*SCOPES), "Scope of the amount.")
    usd: str = required(PATH, "The amount.")


class RateLimitRule(Spec):
    """State of a rate limit."""

    state: str | None = optional(PATH, "Its state in a word.")
    resets_at: str | None = optional(PATH, "Seconds since 1970.")


class RetryRule(Spec):
    """Retry of a model request."""

    attempt: str | None = optional(PATH, "Number of the attempt.")
    delay_ms: str | None = optional(PATH, "Milliseconds until the attempt.")
    status: str | None = optional(PATH, "HTTP status.")
    reason: str | None = optional(PATH, "Reason of the retry.")


class ErrorRule(Spec):
    """A failure in the event stream. A later final event without an error cancels it."""

    kind: str | None = optional(choice(*ERROR_KINDS), "Its kind; default: determined by `errors`.")
    message: Any = optional(_PATHS, "The agent's message: the first path with a value.", ())
    status: str | None = optional(PATH, "HTTP status.")
    stop: bool = optional(BOOLEAN, "Whether to stop the agent at once, because it would only wait.", False)


class FinalRule(Spec):
    """The event that ends a successful stream."""

    text: Any = optional(_PATHS, "The final answer; default: the last text of the agent.", ())
    turns: str | None = optional(PATH, "Number of model turns; default: the number of events with `turn`.")
    structured: str | None = optional(PATH, "The answer that conforms to the schema.")


class EventRule(Spec):
    """Meaning of an event: if `match` and `like` hold, each other key states one fact.

    Paths are relative to the event, or with `each` to each item.
    """

    match: Mapping[str, Any] = optional(_MATCH, "Required values of the event, by path.", factory=dict)
    each: str | None = optional(PATH, "A list in the event: the rule applies to each item.")
    where: Mapping[str, Any] = optional(_MATCH, "Required values of the item, by path.", factory=dict)
    like: Mapping[str, str] = optional(
        Type("map", _REGEX, least=1), "Regular expressions to search in values, by path.", factory=dict
    )
    session: str | None = optional(PATH, "The session's id.")
    model: str | None = optional(PATH, "The model.")
    turn: bool = optional(BOOLEAN, "Whether the event shows that a model has answered.", False)
    text: Any = optional(_PATHS, "Text of the agent.", ())
    delta: bool = optional(BOOLEAN, "Whether `text` continues the previous text.", False)
    tool: ToolRule | None = optional(block(ToolRule), "A tool starts.")
    tool_end: ToolRule | None = optional(block(ToolRule), "A tool has ended.")
    files: Any = optional(_PATHS, "Files that the agent wrote.", ())
    usage: UsageRule | None = optional(block(UsageRule), "Tokens.")
    cost: CostRule | None = optional(block(CostRule), "US dollars.")
    rate_limit: RateLimitRule | None = optional(block(RateLimitRule), "State of a rate limit.")
    retry: RetryRule | None = optional(block(RetryRule), "Retry of a model request.")
    refusal: ToolRule | None = optional(block(ToolRule), "A tool that was not permitted.")
    question: ToolRule | None = optional(block(ToolRule), "A tool that a person should permit.")
    answer: ToolRule | None = optional(block(ToolRule), "The person's answer.")
    error: ErrorRule | None = optional(block(ErrorRule), "A failure.")
    final: FinalRule | None = optional(block(FinalRule), "The end of a successful stream.")


class KnownError(Spec):
    """Pattern of a known error: its status, its text or the exit code. The first matching pattern applies."""

    kind: str = required(choice(*ERROR_KINDS), "Its kind.")
    status: tuple[int, ...] = optional(Type("list", Type("integer", least=1, most=999)), "HTTP status.", ())
    text: str | None = optional(
        _REGEX, "A regular expression to search in the agent's message or the end of its standard error."
    )
    exit: tuple[int, ...] = optional(Type("list", Type("integer", least=1, most=255)), "Exit code.", ())
    always: bool = optional(
        BOOLEAN,
        "Whether `text` at the start of the answer or on standard error is an error even after success.",
        False,
    )
    help: str | None = optional(TEXT, "What to do.")


class StopSpec(Spec):
    """Termination of the program: its process group receives each signal in order, KILL last."""

    signals: tuple[str, ...] = optional(
        Type("list", choice(*STOP_SIGNALS), least=1), "Signals before KILL.", ("TERM",)
    )
    grace: float = optional(PAUSE, "Seconds between two signals.", 2.0)


class LoginSpec(Spec):
    """Check, without cost, whether the user is logged in."""

    argv: tuple[str, ...] = optional(
        _WORDS, "A command without a model request that exits with 0 if the user is logged in.", ()
    )
    denied: str | None = optional(
        _REGEX, "A regular expression to search in its output if not; without it, the output is not checked."
    )
    is_certain: bool = optional(
        BOOLEAN,
        "Whether the agent cannot work without the login; `false`: another provider may be configured.",
        True,
    )
    variables: tuple[str, ...] = optional(
        Type("list", VARIABLE), "Environment variables; each of them is a login.", ()
    )


class SlashCommandSpec(Spec):
    """Slash commands of the agent."""

    folders: tuple[str, ...] = required(
        Type("list", TEXT, least=1), "Folders with a file or a folder for each command."
    )
    built_in: tuple[str, ...] = optional(Type("list", NAME), "Built-in commands.", ())


class AgentSpec(Spec):
    """An agent program."""

    keyed: ClassVar[bool] = True
    any_of: ClassVar[tuple[str, ...]] = ("argv", "extends", "protocol")
    noun: ClassVar[str] = "the agent"
    example: ClassVar[str] = "such as: codex: {argv: [codex, exec, '{prompt}'], output: text}"

    name: str
    extends: str | None = optional(NAME, "A known agent whose keys apply where this agent has none.")
    protocol: str | None = optional(
        choice(*PROTOCOLS),
        "The protocol of `argv` (`acp`: Agent Client Protocol); its keys apply where this agent has none.",
    )
    argv: tuple[Any, ...] = optional(
        ARGV,
        "The program and its arguments; `{prompt}` is the prompt, and `{options}` the place of `options`.",
        (),
    )
    options: tuple[Any, ...] = optional(
        _OPTIONS,
        "Arguments that depend on the loop; they follow the program unless `argv` contains `{options}`.",
        (),
    )
    resume: tuple[Any, ...] = optional(
        ARGV, "`argv` to continue `{session}`; default: `argv`, whose `options` continue it.", ()
    )
    fork: tuple[Any, ...] = optional(ARGV, "`argv` to continue a copy of `{session}`.", ())
    prompt: PromptSpec = optional(block(PromptSpec), "Transfer of the prompt.", factory=PromptSpec)
    output: str = optional(choice(*OUTPUTS), "Output format; `auto`: detected from the output.", "auto")
    fields: Mapping[str, str] = optional(
        Type("map", TEXT, pattern="|".join(FIELDS), expected=f"a mapping with keys from {', '.join(FIELDS)}"),
        "Paths of the values in a JSON report.",
        factory=dict,
    )
    events: tuple[EventRule, ...] = optional(
        Type("list", block(EventRule)), "Meaning of the events in its output.", ()
    )
    errors: tuple[KnownError, ...] = optional(Type("list", block(KnownError)), "Its known errors.", ())
    permissions: Mapping[str, PermissionMode] = optional(
        Type(
            "map",
            block(PermissionMode),
            pattern="|".join(PERMISSIONS),
            expected=f"a mapping with keys from {', '.join(PERMISSIONS)}",
        ),
        "Its permission modes.",
        factory=dict,
    )
    default_permissions: str | None = optional(
        choice(*PERMISSIONS), "The mode if the loop does not set one; default: the agent's own default."
    )
    env: Mapping[str, str] = optional(_VARIABLES, "Environment variables.", factory=dict)
    stop: StopSpec = optional(block(StopSpec), "Termination of the program.", factory=StopSpec)
    silent_on: tuple[str, ...] = optional(
        Type("list", choice("rate-limit", "overloaded", "network", "hang")),
        "Conditions under which it waits without output, so that only `idle_timeout` ends it.",
        (),
    )
    slash_commands: SlashCommandSpec | None = optional(
        block(SlashCommandSpec), "Its slash commands; default: not checked."
    )
    login: LoginSpec | None = optional(block(LoginSpec), "Check of the login.")
    tested: tuple[str, ...] = optional(Type("list", TEXT), "Versions that llc was tested with.", ())
    install: str | None = optional(TEXT, "Installation instructions.")
