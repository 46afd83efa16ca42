"""Schema of an agent: how a program is started, what its events mean, what its errors are.

`stdlib/agents/NAME.yaml` has one per agent; `agents` in `.loops/config.yaml` has those of a project. See
`spec/agents.md`. Must not contain: processes, the reading of an event stream (`effects.agents`).
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

# How an output is read; `auto`: as events if it is events, as a report if it is one, else as text.
OUTPUTS = ("auto", "text", "json", "stream-json", "events")
# Paths in a JSON report, unless `fields` of the agent names others.
FIELDS = {
    "result": "result",
    "session": "session_id",
    "usd": "total_cost_usd",
    "input_tokens": "usage.input_tokens",
    "output_tokens": "usage.output_tokens",
    "error": "error",
}
# What an error of an agent can be; `turn-limit` alone is no failure of the step, as work was done.
ERROR_KINDS = (
    *("auth", "rate-limit", "quota", "overloaded", "unknown-command", "refused", "no-session"),
    *("session-exists", "too-large", "network", "turn-limit", "cost-limit", "root", "untrusted", "model"),
)
# Protocols in which llc converses with a program; `stdlib/protocols` has what each gives to an agent.
PROTOCOLS = ("acp",)
STOP_SIGNALS = ("INT", "TERM")
# What `usage` and `cost` of an event count: that message, that step, the process so far, the session so far.
SCOPES = ("message", "step", "process", "thread")

_WORDS = Type("list", TEXT, least=1, says="a list: a program and its arguments")
ARGV = Type(
    "list",
    Type("either", options=(TEXT, Type("list", TEXT, least=1)), says="a word, or a list of words"),
    least=1,
    says="a list: a program and its arguments; a list in it is left out where its placeholder has no value",
)
_OPTIONS = Type("list", ARGV.item, says="a list of words, and of lists of words")
# Keys from the outside in, with dots between them; `[*]` after a key: each item of that list.
PATH = Type("text", least=1, most=300, says="a path such as `message.content` or `item.changes[*].path`")
_PATHS = Type("either", options=(PATH, Type("list", PATH, least=1)), says="a path, or a list of paths")
_WANTED = Type("either", options=(SCALAR, Type("list", SCALAR, least=1)), says="a value, or a list of values")
_MATCH = Type("map", _WANTED, least=1)
_REGEX = Type("text", least=1, most=2000)
_VARIABLES = Type("map", Type("text"), pattern="[A-Za-z_][A-Za-z0-9_]*")


class RootMode(Spec):
    """What root gets where the program refuses a permission mode to root."""

    argv: tuple[str, ...] = required(Type("list", TEXT), "Arguments in place of the mode's.")
    allowed_tools: tuple[str, ...] = optional(
        Type("list", TEXT), "Tools to allow where the loop names none.", ()
    )
    unless: str | None = optional(VARIABLE, "With 1 in this variable, root gets the mode itself.")


class PermissionMode(Spec):
    """How a permission mode is requested."""

    argv: tuple[str, ...] = optional(Type("list", TEXT), "Its arguments.", ())
    env: Mapping[str, str] = optional(_VARIABLES, "Its environment variables.", factory=dict)
    session_mode: str | None = optional(
        NAME, "Mode of its session, by the Agent Client Protocol (`session/set_mode`)."
    )
    as_root: RootMode | None = optional(block(RootMode), "What root gets instead.")


class PromptSpec(Spec):
    """How the program receives the prompt."""

    by: str = optional(choice("stdin", "argument"), "Standard input or an argument.", "argument")
    max_bytes: int | None = optional(COUNT, "Longer prompts are an error, before anything starts.")


class ToolRule(Spec):
    """A tool that starts or ends, or that was refused."""

    id: str | None = optional(PATH, "Its id, which connects its start and its end.")
    name: str | None = optional(PATH, "Its name.")
    as_name: str | None = optional(NAME, "Its name where the event does not state one.")
    target: Any = optional(_PATHS, "What it is applied to: the first path with a value.", ())
    text: Any = optional(_PATHS, "Its output or its error: the first path with a value.", ())
    failed: Mapping[str, Any] = optional(_MATCH, "It failed where these values match.", factory=dict)


class UsageRule(Spec):
    """Tokens."""

    scope: str = required(choice(*SCOPES), "What they count.")
    key: str | None = optional(PATH, "Id of the message; a later event with the same id replaces it.")
    input: Any = optional(_PATHS, "Input tokens; the values of all paths are added.", ())
    cached: Any = optional(_PATHS, "Cached input tokens, added in the same way.", ())
    cached_is: str = optional(
        choice("apart", "included"), "Whether `input` includes the cached tokens.", "apart"
    )
    output: Any = optional(_PATHS, "Output tokens, added in the same way.", ())


class CostRule(Spec):
    """US dollars."""

    scope: str = required(choice(*SCOPES), "What they count.")
    usd: str = required(PATH, "The amount.")


class RateLimitRule(Spec):
    """State of a rate limit."""

    state: str | None = optional(PATH, "Its state in a word.")
    resets_at: str | None = optional(PATH, "Seconds since 1970.")


class RetryRule(Spec):
    """A model request that is repeated."""

    attempt: str | None = optional(PATH, "Which attempt it is.")
    delay_ms: str | None = optional(PATH, "Milliseconds until then.")
    status: str | None = optional(PATH, "HTTP status.")
    reason: str | None = optional(PATH, "Why.")


class ErrorRule(Spec):
    """A failure that the stream states. A later final event without an error cancels it."""

    kind: str | None = optional(choice(*ERROR_KINDS), "Its kind; absent: by `errors`.")
    message: Any = optional(_PATHS, "The agent's words: the first path with a value.", ())
    status: str | None = optional(PATH, "HTTP status.")
    stop: bool = optional(BOOLEAN, "Whether the agent is stopped at once, as it would only wait.", False)


class FinalRule(Spec):
    """The event that ends a successful stream."""

    text: Any = optional(_PATHS, "The final answer; absent: what the agent said last.", ())
    turns: str | None = optional(PATH, "Number of model turns; absent: the events that show one.")
    structured: str | None = optional(PATH, "The answer that follows the schema.")


class EventRule(Spec):
    """What an event means: where `match` and `like` hold, each other key states one fact.

    Paths are those of the event, or of each item with `each`.
    """

    match: Mapping[str, Any] = optional(_MATCH, "Values that the event has, by path.", factory=dict)
    each: str | None = optional(PATH, "A list in the event: the rule applies to each item.")
    where: Mapping[str, Any] = optional(_MATCH, "Values that the item has, by path.", factory=dict)
    like: Mapping[str, str] = optional(
        Type("map", _REGEX, least=1), "Regular expressions that are found in values, by path.", factory=dict
    )
    session: str | None = optional(PATH, "The session's id.")
    model: str | None = optional(PATH, "The model.")
    turn: bool = optional(BOOLEAN, "Whether the event shows that a model has answered.", False)
    text: Any = optional(_PATHS, "What the agent says.", ())
    delta: bool = optional(BOOLEAN, "Whether `text` continues the text before.", False)
    tool: ToolRule | None = optional(block(ToolRule), "A tool starts.")
    tool_end: ToolRule | None = optional(block(ToolRule), "A tool has ended.")
    files: Any = optional(_PATHS, "Files that the agent wrote.", ())
    usage: UsageRule | None = optional(block(UsageRule), "Tokens.")
    cost: CostRule | None = optional(block(CostRule), "US dollars.")
    rate_limit: RateLimitRule | None = optional(block(RateLimitRule), "State of a rate limit.")
    retry: RetryRule | None = optional(block(RetryRule), "A model request that is repeated.")
    refusal: ToolRule | None = optional(block(ToolRule), "A tool that was not permitted.")
    question: ToolRule | None = optional(block(ToolRule), "A tool that a person should permit.")
    answer: ToolRule | None = optional(block(ToolRule), "What the person has answered.")
    error: ErrorRule | None = optional(block(ErrorRule), "A failure.")
    final: FinalRule | None = optional(block(FinalRule), "The end of a successful stream.")


class KnownError(Spec):
    """How an error is recognised: by its status, its text or the exit code; the first one counts."""

    kind: str = required(choice(*ERROR_KINDS), "Its kind.")
    status: tuple[int, ...] = optional(Type("list", Type("integer", least=1, most=999)), "HTTP status.", ())
    text: str | None = optional(
        _REGEX, "A regular expression in the agent's words or the end of its standard error."
    )
    exit: tuple[int, ...] = optional(Type("list", Type("integer", least=1, most=255)), "Exit code.", ())
    always: bool = optional(
        BOOLEAN,
        "Whether `text`, at the start of the answer or on standard error, counts in spite of success.",
        False,
    )
    help: str | None = optional(TEXT, "What to do.")


class StopSpec(Spec):
    """How the program is stopped: each signal goes to its process group, KILL comes last."""

    signals: tuple[str, ...] = optional(
        Type("list", choice(*STOP_SIGNALS), least=1), "Signals before KILL.", ("TERM",)
    )
    grace: float = optional(PAUSE, "Seconds between two signals.", 2.0)


class LoginSpec(Spec):
    """How to find out without cost whether the user is logged in."""

    argv: tuple[str, ...] = optional(_WORDS, "A command that exits with 0 if so, without a request.", ())
    denied: str | None = optional(
        _REGEX, "A regular expression in what it writes if not; absent: that is not checked."
    )
    is_certain: bool = optional(
        BOOLEAN, "Whether the agent cannot work then; `false`: another provider may be configured.", True
    )
    variables: tuple[str, ...] = optional(
        Type("list", VARIABLE), "Environment variables any of which is a login.", ()
    )


class SlashCommandSpec(Spec):
    """The slash commands that the agent knows."""

    folders: tuple[str, ...] = required(
        Type("list", TEXT, least=1), "Folders with a file or a folder for each command."
    )
    built_in: tuple[str, ...] = optional(Type("list", NAME), "Commands of its own.", ())


class AgentSpec(Spec):
    """An agent program, by a name of the project's own."""

    keyed: ClassVar[bool] = True
    any_of: ClassVar[tuple[str, ...]] = ("argv", "extends", "protocol")
    noun: ClassVar[str] = "the agent"
    example: ClassVar[str] = "such as: codex: {argv: [codex, exec, '{prompt}'], output: text}"

    name: str
    extends: str | None = optional(NAME, "An agent that llc knows; keys that are absent here are its keys.")
    protocol: str | None = optional(
        choice(*PROTOCOLS),
        "The protocol of `argv`, `acp`: Agent Client Protocol. Keys that are absent here are its keys.",
    )
    argv: tuple[Any, ...] = optional(
        ARGV,
        "The program and its arguments; `{prompt}` is the prompt, and `{options}` the place of `options`.",
        (),
    )
    options: tuple[Any, ...] = optional(
        _OPTIONS,
        "Arguments that depend on the loop; they follow the program unless `{options}` is given.",
        (),
    )
    resume: tuple[Any, ...] = optional(
        ARGV, "The same as `argv` where it continues `{session}`; absent: as `options` say.", ()
    )
    fork: tuple[Any, ...] = optional(ARGV, "The same where it continues a copy of `{session}`.", ())
    prompt: PromptSpec = optional(block(PromptSpec), "How it receives the prompt.", factory=PromptSpec)
    output: str = optional(choice(*OUTPUTS), "What it prints; `auto`: recognised from the output.", "auto")
    fields: Mapping[str, str] = optional(
        Type("map", TEXT, pattern="|".join(FIELDS), says=f"fields are {', '.join(FIELDS)}"),
        "Paths of the values in a JSON report.",
        factory=dict,
    )
    events: tuple[EventRule, ...] = optional(
        Type("list", block(EventRule)), "What the events of its output mean.", ()
    )
    errors: tuple[KnownError, ...] = optional(Type("list", block(KnownError)), "Its errors.", ())
    permissions: Mapping[str, PermissionMode] = optional(
        Type(
            "map",
            block(PermissionMode),
            pattern="|".join(PERMISSIONS),
            says=f"permission modes are {', '.join(PERMISSIONS)}",
        ),
        "Its permission modes.",
        factory=dict,
    )
    default_permissions: str | None = optional(
        choice(*PERMISSIONS), "The mode where the loop does not set one; absent: its own."
    )
    env: Mapping[str, str] = optional(_VARIABLES, "Environment variables.", factory=dict)
    stop: StopSpec = optional(block(StopSpec), "How it is stopped.", factory=StopSpec)
    silent_on: tuple[str, ...] = optional(
        Type("list", choice("rate-limit", "overloaded", "network", "hang")),
        "Where it writes nothing while it waits, so that only `idle_timeout` ends it.",
        (),
    )
    slash_commands: SlashCommandSpec | None = optional(
        block(SlashCommandSpec), "The slash commands that it knows; absent: they are not checked."
    )
    login: LoginSpec | None = optional(block(LoginSpec), "How to check the login.")
    tested: tuple[str, ...] = optional(Type("list", TEXT), "Versions that llc was tested with.", ())
    install: str | None = optional(TEXT, "How to install it.")
