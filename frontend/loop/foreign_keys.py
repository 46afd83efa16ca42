"""Keys and values of little-loops that llc spells differently or does not have, each with its remedy.

The format of loops is shared up to 1.37.0; later keys appear in files that users bring along. A similar key
of llc would be a wrong suggestion for them (`failure` is not `on_failure`).
"""

from __future__ import annotations

_NO_EQUIVALENT = "llc has no such key; leave it out"

# In any block.
_INSTEAD = {
    "advisor_consult": _NO_EQUIVALENT,
    "append_to_messages": "write `capture`, and read it as `${captured.NAME.output}`",
    "evaluator": "write `evaluate`",
    "hooks": "write a state before or after this one",
    "learning": "write a state that runs the agent until its check succeeds",
    "parallel": "write a flow with `parallel`, and call it with `call: file.sexp#function`",
    "params": "write `call: file.sexp#function` with the tool's task in the function, and `args`",
    "request_path": "an agent decides how it asks its model",
    "scopes": "the environment of an action is that of the run; unset a variable in the action",
    "type": "write what the state does as its `action`",
    "with_": "write `with`",
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
