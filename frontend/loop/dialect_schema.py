"""Schema of the little-loops keys of loops and states (`source.schema`), which llc reads as spellings of
its own keys.

`StateSpec` and `LoopSettings` inherit from these classes. `dialect` implements the keys, or warns about a key
that has no effect. `spec/dialect.md` is printed from them. Must not contain: llc's own keys.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.compile_options import DIALECTS
from ..source.schema import (
    BOOLEAN,
    COUNT,
    DURATION,
    EXIT_CODES,
    JSON,
    NAME,
    TARGET,
    TEXT,
    Spec,
    Type,
    block,
    choice,
    fields_of,
    internal,
    optional,
    required,
)
from ..template.nodes import text_of
from .agent_schema import AGENT_OPTIONS, AgentOptions

_, LITTLE_LOOPS = DIALECTS
# Keys at the top level that suppress warnings of little-loops' own checks.
SILENCERS = r"[a-z_]+_ok"
_LIST = Type("list", TEXT)
_NUMBER = Type("number", least=0, most=1e12)


_TYPE_NOUNS = {
    "string": "a text",
    "path": "a path",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "enum": "one of the values",
}


class Parameter(Spec):
    """An entry of `parameters`: an input of the loop."""

    example: ClassVar[str] = "such as `{type: string}`"

    type: str = required(choice(*_TYPE_NOUNS), "What its value is.")
    required: bool = optional(BOOLEAN, "Whether a value must be given.", False)
    default: Any = optional(JSON, "Its value if none is given.")
    description: str | None = optional(Type("text"), "What it is for.")
    values: tuple[Any, ...] | None = optional(Type("list", JSON, least=1), "The values of an `enum`.")

    def mismatch(self, value: Any) -> str | None:
        """The expected type in words if the value does not fit; None if it fits or is known only at run
        time.
        """
        if isinstance(value, str) and "${" in value:
            return None
        if self.type == "enum":
            allowed = self.values or ()
            if value in allowed or text_of(value) in [text_of(item) for item in allowed]:
                return None
            return f"one of {', '.join(text_of(item) for item in allowed)}"
        if self.type in ("string", "path"):
            fits = not isinstance(value, dict | list)
        elif self.type == "boolean":
            fits = isinstance(value, bool) or value in ("true", "false")
        else:
            fits = _is_number(value, whole=self.type == "integer")
        return None if fits else _TYPE_NOUNS[self.type]


def _is_number(value: Any, whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return False
    return isinstance(value, int | float) and (not whole or value == int(value))


PARAMETERS = Type("map", block(Parameter), hint="such as `{name: {type: string}}`")


class RepeatedFailure(Spec):
    """`circuit.repeated_failure`: stall detection over states and verdicts."""

    window: int = optional(COUNT, "Results in a row that are the same.", 3)
    on_repeated_failure: str = optional(TEXT, "`abort`, or the state to go to.", "abort")
    progress_paths: Any = optional(_LIST, "Not used: llc looks at the whole work tree.")
    exclude_paths: Any = optional(_LIST, "Not used: llc looks at the whole work tree.")
    recurrent_window: int | None = optional(COUNT, "Not used.")


class Circuit(Spec):
    """`circuit`: when a loop counts as stalled."""

    repeated_failure: RepeatedFailure | None = optional(block(RepeatedFailure), "The stall detector.")


class CostCeiling(Spec):
    """`cost_ceiling`: limit of the cost of a state."""

    cost_ceiling_per_state: float | None = optional(
        Type("number", above=0, most=1e12), "Maximum cost in US dollars: `budget: {usd: …}` of the state."
    )
    cost_warn_at: float | None = optional(_NUMBER, "Not used.")


class Throttle(Spec):
    """`throttle`: how often the action of a state may run in a row."""

    normal_max: int | None = optional(COUNT, "Not used.")
    warn_max: int | None = optional(COUNT, "Not used.")
    hard_max: int | None = optional(
        COUNT, "Maximum number of consecutive runs; default: 12. Only with the dialect."
    )


class Learning(Spec):
    """`learning`: subjects whose behaviour an agent must explore and prove."""

    targets: tuple[str, ...] | None = optional(_LIST, "The things.")
    targets_csv: str | None = optional(TEXT, "The same as one text with commas.")
    max_retries: int | None = optional(COUNT, "Not used: the agent is asked once.")
    max_retries_expr: str | None = optional(TEXT, "Not used: the agent is asked once.")


_GUARD = choice("revert", "fail", "allow")
_CHECK = choice("fail", "warn", "allow")
_SESSION = choice("fresh", "continue")


class DialectLoop(AgentOptions):
    """Keys of little-loops at the top level of a file."""

    category: Any = optional(JSON, "Display only.")
    visibility: Any = optional(JSON, "Display only.")
    labels: Any = optional(JSON, "Display only.")
    commands: Any = optional(JSON, "Display only.")
    targets: Any = optional(JSON, "Display only.")
    artifact_versioning: Any = optional(JSON, "Checked by little-loops only.")
    artifact_mode: Any = optional(JSON, "Checked by little-loops only.")
    artifact_output: Any = optional(JSON, "Not supported: copy files with the action of a state.")
    config: Any = optional(JSON, "Not used: settings of little-loops.")
    host_guard: Any = optional(JSON, "Not used: llc does not monitor the machine's memory.")
    prompt_size_guard: Any = optional(JSON, "Not used: llc does not warn about long prompts.")
    pruning_profile: Any = optional(JSON, "Not used: configure the agent itself.")
    input_key: str | None = optional(NAME, "The `context` key for the text after the loop's name.")
    required_inputs: tuple[str, ...] | None = optional(
        Type("list", NAME), "Keys of `context` that must not be empty when the loop starts."
    )
    parameters: dict[str, Parameter] | None = optional(
        PARAMETERS, "Keys of `context` with their types and defaults."
    )
    default_timeout: float | None = optional(DURATION, "`timeout` of states that have none.")
    default_idle_timeout: float | None = optional(DURATION, "`idle_timeout` of the loop.")
    singleton: bool = optional(
        BOOLEAN,
        "Whether only one run of the loop may exist at a time; implemented as a separate `scope`.",
        False,
    )
    circuit: Circuit | None = optional(block(Circuit), "Stall detection: `stall`, `on_stall`.")
    tamper_guard: str | None = optional(_GUARD, "Handling of changes to tests: `guard`.")
    prepatch_check: str | None = optional(_CHECK, "Not supported: write the check as a state.")
    session_mode: str | None = optional(_SESSION, "`session`: `fresh` is `new`.")
    max_edge_revisits: int | None = optional(COUNT, "Not used: `max_steps` limits jumps.")
    on_max_steps: str | None = optional(TARGET, "The state that runs once when `max_steps` is reached.")
    on_max_iterations: str | None = optional(
        TARGET, "The state that runs once when `max_iterations` is reached."
    )


class DialectState(AgentOptions):
    """Keys of little-loops in a state."""

    description: Any = optional(JSON, "Display only.")
    failure: bool | None = optional(
        BOOLEAN, "Whether a run that ends in this state has failed: `status: failure`."
    )
    max_retries: int | None = optional(
        Type("integer", least=0, most=1e12), "Maximum number of consecutive entries after the first one."
    )
    on_retry_exhausted: str | None = optional(TARGET, "The next state instead of a further entry.")
    retryable_exit_codes: tuple[int, ...] | None = optional(
        EXIT_CODES, "The only exit codes that `on_error` takes; others go to `on_retry_exhausted`."
    )
    max_rate_limit_retries: int | None = optional(
        _NUMBER, "Not used: llc waits until the account's quota is reset."
    )
    rate_limit_backoff_base_seconds: float | None = optional(
        _NUMBER, "Not used: llc waits until the account's quota is reset."
    )
    rate_limit_max_wait_seconds: float | None = optional(
        _NUMBER, "Not used: llc waits until the account's quota is reset."
    )
    rate_limit_long_wait_ladder: Any = optional(
        Type("list", _NUMBER), "Not used: llc waits until the account's quota is reset."
    )
    on_rate_limit_exhausted: str | None = optional(
        TARGET, "Not used: llc waits until the account's quota is reset."
    )
    throttle: Throttle | None = optional(block(Throttle), "Limit for consecutive runs of the action.")
    on_throttle_hard: str | None = optional(
        TARGET, "The next state at this limit; default: `on_error`, or the loop fails."
    )
    cost_ceiling: CostCeiling | None = optional(
        block(CostCeiling), "Limit for the cost of the state: `budget`."
    )
    pruning_profile: Any = optional(JSON, "Not used: configure the agent itself.")
    tamper_guard: str | None = optional(_GUARD, "Handling of changes to tests: `guard` of the loop.")
    prepatch_check: str | None = optional(_CHECK, "Not supported: write the check as a state.")
    session_mode: str | None = optional(_SESSION, "`session`: `fresh` is `new`.")
    tools: Any = optional(_LIST, "`allowed_tools`.")
    model_hint: Any = optional(JSON, "Not used: write `model`.")
    loop: str | None = optional(TEXT, "A loop that runs as this state.")
    context_passthrough: bool = optional(
        BOOLEAN, "Whether the loop in `loop` gets the whole `context`.", False
    )
    worktree: str | None = optional(
        TEXT, "A branch; not supported: an error of the state unless it is empty."
    )
    with_: Any = optional(JSON, "Not used, as in little-loops: write `with`.")
    output: Any = optional(JSON, "Not used: the outer loop gets the captures of an inner loop.")
    type: str | None = optional(choice("learning"), "Type of the state.")
    learning: Learning | None = optional(
        block(Learning), "Subjects that an agent explores before the loop continues."
    )
    # The key `with`, which is a keyword of Python: the inputs of `loop`.
    bindings: Any = internal(None)


LOOP_KEYS = {key: field for key, field in fields_of(DialectLoop).items() if key not in AGENT_OPTIONS}
STATE_KEYS = {key: field for key, field in fields_of(DialectState).items() if key not in AGENT_OPTIONS}
