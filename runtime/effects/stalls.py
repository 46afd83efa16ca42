"""Stall detection: rounds of check and agent in which nothing changes.

A round is the start of an agent after a check. It repeats the round before of the same state if the check
failed in the same way, the recorded tree is the same, and no branch has moved. The facts of a round are in
the agent's result (`round`), so that a resumed run counts on and a replay decides the same. Must not contain:
what happens then (`world`), how trees are taken (`trees`).
"""

from __future__ import annotations

from ...ir.python_internals import import_module, re
from ..host.effect_context import Context, Stalled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# Kinds of effects that a round is made of.
KINDS = ("shell", "agent")
# Errors of an agent that did nothing.
_NO_WORK = ("no-work", "unknown-command")

# Characters at the end of an output that are compared.
_COMPARED = 1 << 16
# What differs between two runs that fail for the same reason; in this order.
_NOISE = (
    (r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])", ""),  # ANSI sequences
    (r"(?:/var/folders|/private/tmp|/var/tmp|/tmp|/dev/shm)/[^\s:;,'\"()\[\]<>]+", "<path>"),
    (r"(?<![\w.])/(?:[^\s/:;,'\"()\[\]<>]+/)+", ""),  # folders of absolute paths
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>"),
    (r"\b0x[0-9a-f]+\b", "<address>"),
    (r"\b(?=[a-f]*\d)[0-9a-f]{7,64}\b", "<hash>"),
    (r"\b\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?", "<time>"),
    (r"\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b", "<time>"),
    (r"\b\d+(?:[.,]\d+)?\s*(?:ns|us|µs|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b", "<duration>"),
    (r"\bpid[ =:]*\d+", "pid"),
    (r"={3,}|-{3,}|_{3,}", ""),  # rules are as long as the line, which contains the time
    (r"[ \t]+", " "),
)


def normalised(text: str) -> str:
    """A text without paths, times, durations, hashes, addresses and escape sequences."""
    text = text[-_COMPARED:]
    for pattern, instead in _NOISE:
        text = re.sub(pattern, instead, text, flags=re.IGNORECASE)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


class StallDetector:
    """The rounds of one run by the state of the agent.

    default: rounds without change until a loop stalls that says nothing about it; 0: it does not.
    """

    def __init__(self, default: int = 0) -> None:
        self._default = default
        self._check: Mapping[str, Any] | None = None
        # What was compared of the last check, where a checkpoint restored it.
        self._digest = ""
        # Whether a check was performed since the last agent.
        self._is_checked = False
        self._rounds: dict[str, dict[str, Any]] = {}

    def close(self) -> None:
        """There is nothing to close: it is a part of a world."""

    def perform(
        self,
        args: Mapping[str, Any],
        context: Context,
        tree: str | None,
        perform: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """Perform an `agent` effect unless its loop stalls; its result with the facts of the round.

        tree: the recorded one. Raises Stalled where the loop stalls and has no state for that.
        """
        given = args.get("stall") or {"rounds": self._default}
        rounds = given.get("rounds") or 0
        if not rounds:
            return perform()
        begun = self.begin(context.state, tree, _commits())
        if begun["repeated"] < rounds:
            result = perform()
        else:
            message = _message(context.state, rounds)
            if not given.get("routed"):
                raise Stalled(message)
            result = {"output": "", "stderr": message, "exit_code": 1, "duration_ms": 0}
            result |= {"elapsed_ms": context.elapsed_ms(), "error": {"kind": "stall", "message": message}}
        result["round"] = begun
        self.add("agent", result, context.state)
        return result

    def add(self, kind: str, result: Mapping[str, Any], state: str | None) -> None:
        """The result of an effect, performed now or on record."""
        if kind == "shell":
            self._check = result
            self._is_checked = True
        elif kind == "agent":
            self._is_checked = False
            found = result.get("round")
            if isinstance(found, dict):
                found = {**found, "idle": (result.get("error") or {}).get("kind") in _NO_WORK}
                self._rounds[state or ""] = found
            if (result.get("error") or {}).get("kind") == "stall":
                self._rounds.pop(state or "", None)

    def begin(self, state: str | None, tree: str | None, commits: str) -> dict[str, Any]:
        """The facts of the round that begins; `repeated`: how often it has been repeated without change."""
        last = self._rounds.get(state or "")
        found: dict[str, Any] = {"failure": self._failure(), "tree": tree, "commits": commits, "repeated": 0}
        if last is None:
            return found
        if not self._is_checked:  # a further session for the same check
            return {**found, "repeated": int(last.get("repeated") or 0)}
        facts = ("failure", "tree", "commits")
        is_known = tree is not None or last.get("idle")
        if is_known and all(last.get(name) == found[name] for name in facts):
            found["repeated"] = int(last.get("repeated") or 0) + 1
        return found

    def _failure(self) -> str:
        check = self._check
        if check is not None:
            text = f"{check.get('exit_code')}\n{check.get('output')}\n{check.get('stderr')}"
            self._digest = _digest(normalised(text))
            self._check = None
        return self._digest

    def save(self) -> Any:
        """What a checkpoint contains of it; None if it has seen no round."""
        if not self._rounds:
            return None
        return {"check": self._failure(), "is_checked": self._is_checked, "rounds": dict(self._rounds)}

    def restore(self, saved: Any) -> bool:
        """Restore what `save` returned; whether that is possible."""
        match saved:
            case None:
                return True
            case {"check": str(check), "is_checked": bool(is_checked), "rounds": dict(rounds)}:
                self._check, self._digest, self._is_checked = None, check, is_checked
                self._rounds = {name: found for name, found in rounds.items() if isinstance(found, dict)}
                return True
        return False


def _digest(text: str) -> str:
    found: str = import_module("hashlib").sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return found


def _commits() -> str:
    """What the branches of the project's repository stand for, in short."""
    return _digest(import_module(f"{__package__.rpartition('.')[0]}.trees.git_trees").branches())


def _message(state: str | None, rounds: int) -> str:
    """What a stall is, for people."""
    times = "once" if rounds == 1 else f"{rounds} times in a row"
    return (
        f"the loop stalls: `{state}` was performed {times}, and the check fails as before "
        "with the same files and no new commit"
    )
