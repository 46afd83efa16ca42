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
    "request_path": "an agent decides how it asks its model",
    "scopes": "the environment of an action is that of the run; unset a variable in the action",
    "type": "write what the state does as its `action`",
}
# Routes of verdicts, which a question with such choices has.
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


def explain_evaluator(name: str) -> str | None:
    """The remedy for an evaluator of little-loops; None for any other name."""
    instead = _EVALUATORS.get(name)
    return None if instead is None else f"`{name}` is an evaluator of little-loops: {instead}"


def explain_key(key: str) -> str | None:
    """The remedy for a key of little-loops; None for any other key."""
    instead = _INSTEAD.get(key) or _ROUTES.get(key)
    return None if instead is None else f"`{key}` is a key of little-loops: {instead}"


def action_type_of(word: str) -> str | None:
    """The remedy for an `action_type` of little-loops; None for any other word."""
    return _ACTION_TYPES.get(word)
