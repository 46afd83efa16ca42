"""Keys and values of other tools, each with the llc key or value to use instead.

llc and little-loops share the format of loops up to little-loops 1.37.0; users bring files with later keys.
A suggestion by similarity would be wrong for them (`failure` is not `on_failure`).
"""

from __future__ import annotations

from collections.abc import Collection

_NO_EQUIVALENT = "llc has no such key; remove it"

# Keys of little-loops in any block.
_KEYS = {
    "advisor_consult": _NO_EQUIVALENT,
    "append_to_messages": "write `capture`, and read it as `${captured.NAME.output}`",
    "evaluator": "write `evaluate`",
    "request_path": "an agent decides how it asks its model",
    "scopes": "the environment of an action is that of the run; unset a variable in the action",
    "type": "write what the state does as its `action`",
}
# Routes of the verdicts `approve` and `reject`, for a question with these choices.
_ROUTES = {"on_approve": "write `on_yes`", "on_reject": "write `on_no`"}
_ACTION_TYPES = {
    "agent": "write `prompt`",
    "llm": "write `prompt`",
    "contract": "write a prompt that asks whether the two sides fit, and judge it by `llm_structured`",
}


# Evaluators of little-loops that llc does not have.
_EVALUATORS = {
    "action_stall": "write `stall` in the loop",
    "advisor_consult": "write a state that asks an agent, and `classify` what it prints",
    "comparator": "write a command that compares with the baseline",
    "contract": "write a state that asks an agent whether the two sides fit, and `classify` what it prints",
}


# Keys of CI systems and workflow engines. The same word may be a key of llc in another block, with another
# meaning.
_ACTION = "write `action`"
_PROMPT = "write `action`, with `action_type: prompt`"
_ROUTE = "write `on_success` and `on_failure`, or `route` with a state for each verdict"
_STATE_KEYS = {
    **dict.fromkeys(("command", "cmd", "run", "exec", "script", "bash"), _ACTION),
    **dict.fromkeys(("prompt", "instruction", "instructions", "ask"), _PROMPT),
    **dict.fromkeys(("goto", "then", "to", "transition", "go_to", "next_state"), "write `next`"),
    **dict.fromkeys(("transitions", "on", "branches", "routes", "edges", "switch"), _ROUTE),
    **dict.fromkeys(("success", "pass", "ok"), "write `on_success`; exit codes belong to `evaluate`"),
    **dict.fromkeys(("fail", "error"), "write `on_failure`, or `on_error` for errors"),
    **dict.fromkeys(("end", "final", "is_final", "finish", "stop", "exit"), "write `terminal: true`"),
    **dict.fromkeys(("if", "when", "condition"), "write `evaluate`, and where its verdicts lead"),
    **dict.fromkeys(("needs", "depends_on"), "write `next` in the state that comes before"),
    **dict.fromkeys(("env", "environment"), "set variables in the action: `NAME=value command`"),
    **dict.fromkeys(("cwd", "dir", "workdir", "working_directory"), "write `cd FOLDER && …` in the action"),
    "shell": "write `action`; commands run under bash, another shell is `action: zsh -c '…'`",
    "uses": "there are no actions of others to use; write the command as `action`",
    "name": "the key in `states` is the state's name",
}
_LOOP_KEYS = {
    **dict.fromkeys(("start", "begin", "initial_state", "entry", "start_state"), "write `initial`"),
    **dict.fromkeys(("env", "environment"), "set variables in the actions: `NAME=value command`"),
    **dict.fromkeys(("variables", "vars", "inputs"), "write `context`, read `${context.NAME}`"),
    **dict.fromkeys(
        ("jobs", "on", "stages", "tasks"), "a loop has `states`, or `paradigm: imperative` and `steps`"
    ),
    **dict.fromkeys(("retries", "attempts"), "write `max_iterations`"),
}
# Other names for the keys of a paradigm, by a key that only this paradigm has.
_PARADIGM_KEYS = {
    "toward": {"target": "toward", "fix": "using", "metric": "check", "command": "check"},
    "tools": {"check": "tools", "fix": "tools", "steps": "tools", "commands": "tools"},
    "until": {"actions": "steps", "check": "until", "states": "steps", "goal": "until", "tasks": "steps"},
    "constraints": {"checks": "constraints", "invariants": "constraints", "rules": "constraints"},
}


def explain_foreign_key(key: str, fields: Collection[str]) -> str | None:
    """Help for a key of another tool in a block with these fields; None for any other key."""
    key = key.lower().replace("-", "_")
    if "action" in fields:
        return _STATE_KEYS.get(key)
    if "max_iterations" not in fields:
        return None
    for own, names in _PARADIGM_KEYS.items():
        if own in fields and key in names:
            return f"write `{names[key]}`"
    return _LOOP_KEYS.get(key)


def explain_evaluator(name: str) -> str | None:
    """Help for an evaluator of little-loops; None for any other name."""
    instead = _EVALUATORS.get(name)
    return None if instead is None else f"`{name}` is an evaluator of little-loops: {instead}"


def explain_key(key: str) -> str | None:
    """Help for a key of little-loops; None for any other key."""
    instead = _KEYS.get(key) or _ROUTES.get(key)
    return None if instead is None else f"`{key}` is a key of little-loops: {instead}"


def explain_action_type(word: str) -> str | None:
    """Help for an `action_type` of little-loops; None for any other word."""
    return _ACTION_TYPES.get(word)
