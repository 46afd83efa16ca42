"""Schema of a loop: settings and states, one class per block (`source.schema`).

`evaluator_schema` has the evaluators. `paradigms` has the keys of the other paradigms, so that a loop of
states need not load them. Must not contain: YAML, templates, checks across fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from ...ir.compile_options import DIALECTS
from ...ir.effects import CONTINUE, ON_UNKNOWN, STALL_ROUNDS
from ...ir.python_internals import late_pattern
from ..source.schema import (
    ARGUMENTS,
    BOOLEAN,
    COUNT,
    DURATION,
    JSON,
    NAME,
    PAUSE,
    TARGET,
    TEMPLATE,
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
from .agent_schema import AgentSettings, Budget, LlmSettings
from .dialect_schema import DialectLoop, DialectState
from .evaluator_schema import (
    EVALUATORS,
    Answer,
    AnyEvaluator,
    ExitCode,
    LlmStructured,
    McpResult,
    NamedEvaluator,
)
from .hook_schema import HookSpec, LoopHooks, StateHooks, hooks_in

DEFAULT_MODEL_TEXT = "${DEFAULT_LLM_MODEL}"
CURRENT = "$current"
# Keys of `composition`, which are removed before the schema is read.
COMPOSITION_KEYS = ("from", "flow", "state_defs", "import", "fragments")
_STATES_HELP = "write each state below its name, as in `check: {action: pytest -q, …}`"
# Verdicts of little-loops with the llc verdict of the same meaning.
VERDICT_SYNONYMS = {"yes": "success", "no": "failure"}


# --- states -----------------------------------------------------------------------------------


def _misspelling_pattern(*verdicts: str) -> str:
    """A regular expression for the keys `on_<verdict>` that differ in one character from those of
    `verdicts`.
    """
    near = []
    for word in verdicts:
        for at in range(len(word)):
            before, after = word[:at], word[at + 1 :]
            near += [
                f"{before}.?{after}",
                f"{before}.{word[at:]}",
                f"{before}{after[:1]}{word[at]}{after[1:]}",
            ]
        near.append(f"{word}.")
    return f"^on_(?!(?:{'|'.join(verdicts)})$)(?:{'|'.join(dict.fromkeys(near))})$"


ACTION_TYPES = ("shell", "prompt", "slash", "slash_command", "ask", "human_approval", "mcp_tool")
# Values of `on_quota` that are not states.
QUOTA_WORDS = (None, "wait", "fail")


class StateSpec(DialectState):
    """A state: at most one action or call, its evaluation, and its successors."""

    keyed: ClassVar[bool] = True
    noun: ClassVar[str] = "state"
    example: ClassVar[str] = "a state that ends the loop is `{terminal: true}`"
    # Keys `on_<verdict>`, which are not fields, except misspelt fields.
    json_schema: ClassVar[dict[str, Any]] = {
        "patternProperties": {"^on_[A-Za-z][A-Za-z0-9_-]*$": {"type": "string", "minLength": 1}},
        "propertyNames": {
            "not": {"pattern": _misspelling_pattern("success", "failure", "error", "maintain", "unknown")}
        },
    }

    name: str
    action: str | None = optional(
        TEMPLATE, "A shell command, a slash command such as `/ll:check_code fix`, or a prompt."
    )
    action_type: str | None = optional(
        choice(*ACTION_TYPES),
        "Type of the action; default: `slash` if it begins with `/` and a word, else `shell`. "
        "`prompt`, `slash` and `slash_command` give it to the agent, `ask` asks a person, "
        "`human_approval` asks a person for `yes` or `no`, `mcp_tool` calls the tool `server/tool` "
        "of an MCP server.",
    )
    params: dict[str, Any] | None = optional(Type("map", JSON), "Arguments of the MCP tool.")
    feedback: bool = optional(
        BOOLEAN,
        "Whether the prompt is followed by the last check: its command, exit code and the end of its output.",
        False,
    )
    choices: tuple[str, ...] | None = optional(
        Type("list", TEXT, least=1), "Possible answers to a question; default: any text."
    )
    default: str | None = optional(TEMPLATE, "The answer after the `timeout`, or for Enter alone.")
    call: str | None = optional(
        TEXT, "Instead of an action: a function of a file, such as `flows.sexp#summarise`."
    )
    args: Any = optional(ARGUMENTS, "Arguments of the function: a list, or a mapping by parameter names.")
    parallel: tuple[str, ...] | None = optional(
        Type("list", NAME, least=1), "Instead of an action: names of loops that run concurrently."
    )
    join: str | int | None = optional(
        Type("either", options=(COUNT, choice("all", "any")), expected="a count, `all` or `any`"),
        "How many of the loops in `parallel` must succeed; default: `all`.",
    )
    capture: str | None = optional(
        TEXT, "Name under which the action's result is kept: `${captured.<name>.…}`."
    )
    timeout: float | None = optional(
        DURATION, "Timeout of the action in seconds, after which its process group is ended."
    )
    evaluate: NamedEvaluator | None = optional(
        Type("tagged", specs=tuple(EVALUATORS.values()), tag="type"),
        "The evaluator of the result; see the evaluators.",
    )
    route: dict[str, str] | None = optional(
        Type(
            "map",
            TARGET,
            pattern=r"\S(?:.*\S)?",
            expected="a mapping from verdicts (without blanks around them) to states",
        ),
        "Next state by verdict; `_` for any other verdict, `_error` for errors.",
    )
    on_success: str | None = optional(TARGET, "Next state on `success`; synonym: `on_yes`.")
    on_failure: str | None = optional(TARGET, "Next state on `failure`; synonym: `on_no`.")
    on_error: str | None = optional(TARGET, "Next state on an error.")
    next: str | None = optional(TARGET, "Next state without an evaluation.")
    terminal: bool = optional(
        BOOLEAN, "Whether the loop ends in this state, after its action, if any.", False
    )
    status: str | None = optional(
        choice("success", "failure"), "Status of the run if the loop ends in this state; default: `success`."
    )
    on_quota: str | None = optional(TARGET, "As the key of the loop, for this state.")
    max_quota_wait: float | None = optional(DURATION, "As the key of the loop, for this state.")
    on_maintain: str | None = optional(
        TARGET, "In a terminal state of a loop with `maintain`: the first state of the next cycle."
    )
    on_unknown: str | None = optional(
        choice(*ON_UNKNOWN, CONTINUE),
        "What a resumed run does with an action whose outcome is unknown; default: `continue` for an "
        "agent that can resume its session, else `rerun`.",
    )
    agent: str | None = optional(NAME, "Name of the agent; default: that of the loop.")
    budget: Budget | None = optional(
        block(Budget), "Limits for the agent and model calls of this state; see `budget`."
    )
    hooks: StateHooks | None = optional(
        block(StateHooks), "Commands around the state, `before` and `after`; see `hooks`."
    )

    @property
    def acts(self) -> bool:
        """Whether there is a result to evaluate: of an action, a call or a loop."""
        return self.action is not None or self.calls

    @property
    def calls(self) -> bool:
        """Whether the state calls a function of a file or runs a loop."""
        return self.call is not None or self.runs_loops

    @property
    def runs_loops(self) -> bool:
        """Whether the state runs one loop, or several loops concurrently."""
        return self.loop is not None or self.parallel is not None

    @cached_property
    def routes(self) -> Mapping[str, str]:
        """Verdict to target; `_` is any other verdict, `_error` is `error`.

        `route` takes precedence, including its `_`; the shorthand keys fill the gaps. A state with `next`
        keeps only the route of errors. (Seed, Resolution Order and Special Route Keys.)
        """
        table = {
            self._own_verdict(VERDICT_SYNONYMS.get(verdict, verdict)): target
            for verdict, target in (self.route or {}).items()
        }
        error = table.pop("error", None)
        if self.on_error is not None:
            error = error or self.on_error
        if error is not None:
            table.setdefault("_error", error)
        if self.next is not None:
            return {verdict: target for verdict, target in table.items() if verdict == "_error"}
        if "_" not in table:
            for verdict, target in (("success", self.on_success), ("failure", self.on_failure)):
                if target is not None:
                    table.setdefault(self._own_verdict(verdict), target)
        if self.runs_loops and "failure" in table:  # a loop that ended with an error did not succeed
            table.setdefault("_error", table["failure"])
        return table

    def _own_verdict(self, verdict: str) -> str:
        """Map `success` and `failure` to `yes` and `no` if the state has these as verdicts of its own."""
        choice = {"success": "yes", "failure": "no"}.get(verdict)
        return choice if choice is not None and choice in self.own_verdicts else verdict

    @property
    def own_verdicts(self) -> tuple[str, ...]:
        """The state's own verdicts: the choices of a question, or the values of a schema."""
        if self.action_type == "ask":
            return self.choices or ()
        values: Any = getattr(self.evaluate, "schema", None)
        for key in ("properties", "verdict", "enum"):
            values = values.get(key) if isinstance(values, dict) else None
        return tuple(values) if isinstance(values, list) else ()

    @property
    def asks(self) -> bool:
        """Whether the action is a question to a person."""
        return self.action is not None and self.action_type == "ask"

    @property
    def uses_tool(self) -> bool:
        """Whether the action is a call of a tool of an MCP server."""
        return self.action is not None and self.action_type == "mcp_tool"

    @property
    def is_terminal(self) -> bool:
        """Whether the loop ends here: `terminal` without keys that take precedence over it (seed)."""
        return self.terminal and self.next is None and not self.routes.keys() - {"_error"}


# --- loops ------------------------------------------------------------------------------------


class GuardSettings(Spec):
    """`guard`: paths that no agent of the loop may change."""

    paths: tuple[str, ...] = required(
        Type("list", TEXT, least=1), "Patterns such as `tests/**`: `*` in a name, `**` across folders."
    )
    on: str = optional(
        choice("revert", "fail"), "Whether changes are undone after each step, or make it fail.", "revert"
    )


class StallSettings(Spec):
    """`stall`: when a loop counts as stalled."""

    rounds: int = optional(COUNT, "Rounds of check and agent.", STALL_ROUNDS)


class LoopSettings(DialectLoop):
    """Settings of every paradigm; they are copied to the FSM unchanged."""

    description: str | None = optional(Type("text"), "Description of the loop.")
    scope: tuple[str, ...] | None = optional(
        Type("list", TEXT), 'Paths on which the loop works, for locks; `[]`: none; default: `["."]`.'
    )
    context: dict[str, Any] = optional(
        Type("map", JSON),
        "Variables of the author, `${context.<name>}`; values may contain `${…}`.",
        factory=dict,
    )
    max_iterations: int = optional(COUNT, "Maximum number of iterations; with `maintain`, per cycle.", 50)
    max_steps: int | None = optional(COUNT, "Maximum number of states entered in the whole run.")
    backoff: float | None = optional(PAUSE, "Pause between two iterations, in seconds.")
    timeout: float | None = optional(
        DURATION, "Timeout of the whole run in seconds, including actions and model calls."
    )
    maintain: bool = optional(
        BOOLEAN,
        "Whether a terminal state starts the next cycle, at its `on_maintain`, instead of ending the loop.",
        False,
    )
    maintain_delay: float | None = optional(
        PAUSE, "Pause between two cycles, in seconds; default: `backoff`."
    )
    llm: LlmSettings = optional(
        block(LlmSettings), "Settings of the model that judges output; see `llm`.", factory=LlmSettings
    )
    agent: str | AgentSettings | None = optional(
        Type("either", options=(TEXT, block(AgentSettings)), expected="a text or a mapping"),
        "The agent for prompts and slash commands: a name, or a mapping; see `agent`.",
    )
    on_handoff: str = optional(
        choice("end", "pause", "continue"), "What happens when an agent prints `CONTEXT_HANDOFF:`.", "end"
    )
    max_handoffs: int = optional(
        Type("integer", least=1, most=20), "Maximum number of further sessions for one action.", 5
    )
    budget: Budget | None = optional(block(Budget), "Limits for agent and model calls; see `budget`.")
    on_error: str | None = optional(TARGET, "The state for errors that have no route.")
    stall: bool | int | StallSettings | None = optional(
        Type(
            "either",
            options=(BOOLEAN, COUNT, block(StallSettings)),
            expected="true or false, a count, or a mapping",
        ),
        "Number of rounds of check and agent without any change after which the loop ends, as at a limit; "
        f"default: {STALL_ROUNDS}, in `fsm` only with `on_stall`; see `stall`.",
    )
    guard: GuardSettings | None = optional(
        block(GuardSettings), "Paths that agents of the loop must not change; see `guard`."
    )
    on_stall: str | None = optional(TARGET, "The next state when the loop stalls, instead of the end.")
    on_quota: str | None = optional(
        TARGET,
        "What happens if the quota of an agent's account is exhausted: `wait` (default), `fail` (an "
        "error), or the next state.",
    )
    max_quota_wait: float | None = optional(
        DURATION, "Maximum time to wait for the quota, in seconds; default: 8 days."
    )
    hooks: LoopHooks | None = optional(
        block(LoopHooks), "Commands around the loop and its states, on errors and at limits; see `hooks`."
    )
    max_in_a_row: int | None = optional(
        COUNT,
        "Maximum number of consecutive runs of the action of one state, after which the state has an "
        "error; default: no limit.",
    )
    nonzero_exit: str = optional(
        choice("judge", "error"),
        "Whether output evaluators judge the output of an action that did not exit with 0, or give `error`.",
        "judge",
    )
    checks: str = optional(
        choice("early", "late"),
        "`late`: undefined variables, captures that no state sets and values in code are warnings, "
        "and are checked when they are used.",
        "early",
    )
    require: str | None = optional(
        choice("proof"),
        "`proof`: a success that may follow an agent's work without a check is an error; by default "
        "`validate` warns.",
    )
    dialect: str | None = optional(
        choice(*DIALECTS),
        "The meaning of keys that differ in little-loops, such as `next` with `on_error`; default: "
        "that of llc.",
    )


class Loop(LoopSettings):
    """`paradigm: fsm`, the form to which every paradigm is converted: states and transitions."""

    name: str = required(NAME, "The loop's name.")
    initial: str = required(TARGET, "The initial state.")
    states: dict[str, StateSpec] = required(
        Type("map", block(StateSpec), least=1, hint=_STATES_HELP), "The states by name."
    )
    # Not compared: a printed FSM does not contain its original paradigm.
    paradigm: str = internal("fsm")

    @cached_property
    def parsed(self) -> dict[Any, Any]:
        """Cache of parsed templates, used by `texts`."""
        return {}

    @property
    def stall_rounds(self) -> int | None:
        """Rounds without change after which the loop is stalled; 0: never; None: the default of its
        paradigm.
        """
        given = self.stall.rounds if isinstance(self.stall, StallSettings) else self.stall
        if given is True or (given is None and self.on_stall is not None):
            return STALL_ROUNDS
        return None if given is None else int(given)

    def quota_target(self, state: StateSpec) -> str | None:
        """The successor of `state` if the quota is used up; None: no jump."""
        named = state.on_quota if state.on_quota is not None else self.on_quota
        return None if named in QUOTA_WORDS else named

    @property
    def has_budget(self) -> bool:
        """Whether the loop or one of its states has a budget."""
        return self.budget is not None or any(state.budget is not None for state in self.states.values())

    def hooks_of(self, state: StateSpec, when: str) -> list[tuple[str, HookSpec]]:
        """The hooks `before` or `after` of a state, including the loop's hooks for all states, in order."""
        if state.hooks is None and self.hooks is None:
            return []
        own = hooks_in(state.hooks, when)
        is_one_of_all = state.acts or not state.is_terminal
        general = hooks_in(self.hooks, f"{when}_state") if is_one_of_all else []
        return [*general, *own] if when == "before" else [*own, *general]

    def is_judged_by_evidence(self, state: StateSpec) -> bool:
        """Whether a model evaluates the agent's work by its changes."""
        evaluator = self.evaluator_of(state)
        return (
            self.llm.enabled
            and self.llm.sees != "output"
            and isinstance(evaluator, LlmStructured)
            and evaluator.source is None
            and self.kind_of(state) == "slash"
        )

    def kind_of(self, state: StateSpec) -> str:
        """The kind of a state's action, context expanded: `shell`, `slash`, `ask`, `mcp_tool`, `call`,
        `loop`.
        """
        if state.call is not None:
            return "call"
        if state.loop is not None or state.parallel is not None:
            return "loop"
        if state.action_type is not None:
            return _AGENT_TYPES.get(state.action_type, state.action_type)
        action = state.action or ""
        if action[:1].isalnum():
            return "shell"  # it begins with neither white space, nor a slash, nor a variable
        for _ in range(MAX_NESTING):
            begins = _CONTEXT_FIRST.match(action)
            value: Any = self.context if begins else None
            for key in begins[1].split(".") if begins else ():
                value = value.get(key) if isinstance(value, dict) else None
            if begins is None or not isinstance(value, str):
                break
            action = value + action[begins.end() :]
        return "slash" if is_slash_command(action) else "shell"

    def evaluator_of(self, state: StateSpec) -> AnyEvaluator:
        """The evaluator of a state: the given one, or the default for its action (seed, Default
        Evaluation).
        """
        if state.runs_loops:
            return _EXIT_CODE_EVALUATOR
        if state.evaluate is not None:
            return state.evaluate
        if state.action is not None and self.llm.enabled and self.kind_of(state) == "slash":
            return _MODEL_EVALUATOR
        if state.uses_tool:
            return _TOOL_EVALUATOR
        return _ANSWER_EVALUATOR if state.asks else _EXIT_CODE_EVALUATOR

    def restart_of(self, state: StateSpec) -> str | None:
        """The first state of the next cycle after a terminal; None if the loop ends there."""
        if not self.maintain or not state.is_terminal:
            return None
        if state.on_maintain is not None:
            return state.on_maintain
        return None if state.status == "failure" else self.initial


# Default evaluators.
_MODEL_EVALUATOR, _ANSWER_EVALUATOR, _EXIT_CODE_EVALUATOR, _TOOL_EVALUATOR = (
    LlmStructured(),
    Answer(),
    ExitCode(),
    McpResult(),
)
# Action types whose action always goes to the agent.
_AGENT_TYPES = {"prompt": "slash", "slash_command": "slash"}
# Limit of nested references between context values.
MAX_NESTING = 100
_CONTEXT_FIRST = late_pattern(r"\s*\$\{(?:raw:)?context\.([^}:]+)\}")
_VARIABLE = late_pattern(r"\$\{[^}]*\}?")
_SLASH_COMMAND = late_pattern(r"\s*/[A-Za-z0-9_][A-Za-z0-9_:-]*(\s|$)")


def is_slash_command(action: str) -> bool:
    """Whether an action, its context expanded, has the form of a slash command (`loops.md` 10).

    True for `/ll:check_code fix`, false for a path such as `/usr/bin/true` or `/setup.sh`.
    """
    return _SLASH_COMMAND.match(_VARIABLE.sub("v", action)) is not None


def model_name(loop: Loop, default_model: str) -> str:
    """The model that evaluates: the loop's, or the default."""
    named = loop.llm.model
    return default_model if named is None or named == DEFAULT_MODEL_TEXT else named


def belongs_to_loop(key: str) -> str | None:
    """Help for a key of a loop that is in an inner block; None for any other key."""
    if key not in fields_of(Loop) and key not in ("paradigm", *COMPOSITION_KEYS):
        return None
    return f"`{key}` belongs to the loop, at the top level of the file"
