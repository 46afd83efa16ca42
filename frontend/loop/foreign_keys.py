"""Keys and values of little-loops that llc spells differently or does not have, each with its remedy.

The format of loops is shared up to 1.37.0; later keys appear in files that users bring along. A similar key
of llc would be a wrong suggestion for them (`failure` is not `on_failure`).
"""

from __future__ import annotations

_NO_EQUIVALENT = "llc has no such key; leave it out"
_DISPLAY = "it has no effect on a run; leave it out or make it a comment"
_LIBRARY = "llc has no fragments; write the keys out in each state"
_RETRIES = "count the entries in a state with `output_numeric`, or set `max_steps` for the loop"
_RATE_LIMIT = "llc waits for rate limits by itself; leave it out"

# In any block.
_INSTEAD = {
    "artifact_output": _NO_EQUIVALENT,
    "artifact_versioning": _DISPLAY,
    "category": _DISPLAY,
    "circuit": "limit the loop with `max_steps` or `budget`",
    "default_timeout": "write `timeout` in each state; `timeout` of the loop limits the whole run",
    "evaluator": "write `evaluate`",
    "failure": "write `status: failure` in the terminal state",
    "flow": "write the states out under `states`",
    "fragment": _LIBRARY,
    "fragments": _LIBRARY,
    "from": "llc has no inheritance of loops; write the keys out",
    "import": _LIBRARY,
    "input_key": "name the variable in `context`, and pass it with `--context NAME=VALUE`",
    "labels": _DISPLAY,
    "loop": "a loop is run by a flow; write `call: file.sexp#function` with `run-loop` in it",
    "max_rate_limit_retries": _RATE_LIMIT,
    "max_retries": _RETRIES,
    "on_max_iterations": "the run ends with exit code 3 at a limit; test for that where it is started",
    "on_max_steps": "the run ends with exit code 3 at a limit; test for that where it is started",
    "on_rate_limit_exhausted": _RATE_LIMIT,
    "on_retry_exhausted": _RETRIES,
    "parameters": "name the variables in `context`, and pass them with `--context NAME=VALUE`",
    "params": "write `args`",
    "required_inputs": "a variable without a value in `context` is an error when it is used",
    "retryable_exit_codes": "route exit codes with `evaluate: {type: exit_code, failure: […]}`",
    "singleton": "write `scope`: loops with a common path do not run at the same time",
    "state_defs": "write `states`",
    "tamper_guard": _NO_EQUIVALENT,
    "targets": _DISPLAY,
    "throttle": "write `backoff` in the loop",
    "visibility": _DISPLAY,
    "with": "write `args`",
    "worktree": "create the worktree with a state's action",
}
_ACTION_TYPES = {
    "command": "shell",
    "human_approval": "ask",
}


def explain_key(key: str) -> str | None:
    """The remedy for a key of little-loops; None for any other key."""
    instead = _INSTEAD.get(key)
    return None if instead is None else f"`{key}` is a key of little-loops: {instead}"


def action_type_of(word: str) -> str | None:
    """The `action_type` of llc that a word of little-loops means."""
    return _ACTION_TYPES.get(word)
