"""Schema of `hooks`: commands that run before and after a loop and its states, on errors and at limits.

Must not contain: lowering of hooks (`lower.hooks`).
"""

from __future__ import annotations

from typing import ClassVar

from ..source.schema import DURATION, TEMPLATE, Spec, Type, block, choice, optional, required

FAIL, IGNORE = "fail", "ignore"
DEFAULT_TIMEOUT = 60.0
# Hooks whose failure is an error by default, because the following steps depend on them.
_STRICT = ("before", "before_state")
# Hooks that run after a failure; their own failure does not change the outcome.
REPORTING = ("on_error", "on_limit")


class HookSpec(Spec):
    """A hook with settings."""

    run: str = required(TEMPLATE, "The command.")
    timeout: float = optional(DURATION, "Timeout of the command in seconds.", DEFAULT_TIMEOUT)
    on_failure: str | None = optional(
        choice(FAIL, IGNORE),
        "Whether a failure (an exit code other than 0) is an error or is only recorded; default: "
        "`fail` before a loop or state, else `ignore`.",
    )


Hook = str | HookSpec
HOOK = Type("either", options=(TEMPLATE, block(HookSpec)), expected="a command or a mapping with `run`")


class StateHooks(Spec):
    """`hooks` of a state."""

    before: Hook | None = optional(HOOK, "Runs when the state is entered, before its action.")
    after: Hook | None = optional(HOOK, "Runs when the state is left, after its evaluation.")


class LoopHooks(Spec):
    """`hooks` of a loop, in every paradigm."""

    example: ClassVar[str] = "such as `{before: docker compose up -d}`"

    before: Hook | None = optional(HOOK, "Runs once, before the first state.")
    after: Hook | None = optional(HOOK, "Runs once, at the end of the loop, whatever the outcome.")
    before_state: Hook | None = optional(
        HOOK, "Runs as `before` of every state, except terminal states without an action."
    )
    after_state: Hook | None = optional(HOOK, "Runs as `after` of these states.")
    on_error: Hook | None = optional(HOOK, "Runs at each error, before its route or the end of the loop.")
    on_limit: Hook | None = optional(HOOK, "Runs when a limit ends the loop.")


def hooks_in(block: StateHooks | LoopHooks | None, *keys: str) -> list[tuple[str, HookSpec]]:
    """The hooks of a block for these keys, each with its failure policy and its position."""
    found = []
    for key in keys:
        hook: Hook | None = getattr(block, key, None)
        if hook is not None and block is not None:
            spec = HookSpec(run=hook, span=block.span_of(key)) if isinstance(hook, str) else hook
            policy = spec.on_failure or (FAIL if key in _STRICT else IGNORE)
            found.append((key, spec.evolve(on_failure=policy)))
    return found
