"""Stall detection: rounds of check and agent without any change.

A round is the start of an agent after a check. It repeats the previous round of the same state if the check
failed in the same way, the recorded tree is the same, and no branch has moved. The agent's result contains
the facts of the round (`round`), so that a resumed run continues the count and a replay decides the same.
Must not contain: the taking of trees (`trees`).
"""

from __future__ import annotations

from ...ir.python_internals import import_module, re
from ..host.effect_context import Context, Stalled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# Kinds of effects in a round.
KINDS = ("shell", "agent")
# Error kinds of an agent that has done nothing.
_NO_WORK = ("no-work", "unknown-command")

# Characters at the end of an output that are compared.
_COMPARED_LENGTH = 1 << 16
# Texts that differ between two runs with the same failure, and their replacements, in the order of
# application.
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
    text = text[-_COMPARED_LENGTH:]
    for pattern, replacement in _NOISE:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


class StallDetector:
    """The rounds of one run, by the state of the agent.

    default: default number of rounds without change after which a loop stalls; 0 for never.
    """

    def __init__(self, default: int = 0) -> None:
        self._default = default
        self._check: Mapping[str, Any] | None = None
        # Digest of the last check's failure.
        self._digest = ""
        # Whether a check was performed after the last agent.
        self._is_checked = False
        self._rounds: dict[str, dict[str, Any]] = {}

    def close(self) -> None:
        """Release nothing; required of each part of a world."""

    def perform(
        self,
        args: Mapping[str, Any],
        context: Context,
        tree: str | None,
        perform: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """Perform an `agent` effect unless its loop stalls; the result contains the facts of the round.

        tree: id of the recorded tree. Raises Stalled if the loop stalls and does not route this error.
        """
        spec = args.get("stall") or {"rounds": self._default}
        rounds = spec.get("rounds") or 0
        if not rounds:
            return perform()
        facts = self.begin(context.state, tree, _commits())
        if facts["repeated"] < rounds:
            result = perform()
        else:
            message = _message(context.state, rounds)
            if not spec.get("routed"):
                raise Stalled(message)
            result = {"output": "", "stderr": message, "exit_code": 1, "duration_ms": 0}
            result |= {"elapsed_ms": context.elapsed_ms(), "error": {"kind": "stall", "message": message}}
        result["round"] = facts
        self.add("agent", result, context.state)
        return result

    def add(self, kind: str, result: Mapping[str, Any], state: str | None) -> None:
        """Add the result of an effect, performed or recorded."""
        if kind == "shell":
            self._check = result
            self._is_checked = True
        elif kind == "agent":
            self._is_checked = False
            facts = result.get("round")
            if isinstance(facts, dict):
                is_idle = (result.get("error") or {}).get("kind") in _NO_WORK
                self._rounds[state or ""] = {**facts, "idle": is_idle}
            if (result.get("error") or {}).get("kind") == "stall":
                self._rounds.pop(state or "", None)

    def begin(self, state: str | None, tree: str | None, commits: str) -> dict[str, Any]:
        """The facts of a new round; `repeated` counts its repetitions without a change."""
        last = self._rounds.get(state or "")
        facts: dict[str, Any] = {"failure": self._failure(), "tree": tree, "commits": commits, "repeated": 0}
        if last is None:
            return facts
        if not self._is_checked:  # a further session for the same check
            return {**facts, "repeated": int(last.get("repeated") or 0)}
        is_known = tree is not None or last.get("idle")
        if is_known and all(last.get(name) == facts[name] for name in ("failure", "tree", "commits")):
            facts["repeated"] = int(last.get("repeated") or 0) + 1
        return facts

    def _failure(self) -> str:
        check = self._check
        if check is not None:
            text = f"{check.get('exit_code')}\n{check.get('output')}\n{check.get('stderr')}"
            self._digest = _digest(normalised(text))
            self._check = None
        return self._digest

    def save(self) -> Any:
        """State for a checkpoint; None before the first round."""
        if not self._rounds:
            return None
        return {"check": self._failure(), "is_checked": self._is_checked, "rounds": dict(self._rounds)}

    def restore(self, saved: Any) -> bool:
        """Restore the state that `save` returned; return False if it is invalid."""
        match saved:
            case None:
                return True
            case {"check": str(check), "is_checked": bool(is_checked), "rounds": dict(rounds)}:
                self._check, self._digest, self._is_checked = None, check, is_checked
                self._rounds = {name: facts for name, facts in rounds.items() if isinstance(facts, dict)}
                return True
        return False


def _digest(text: str) -> str:
    digest: str = import_module("hashlib").sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return digest


def _commits() -> str:
    """Digest of the commits of all branches of the project's repository."""
    return _digest(import_module(f"{__package__.rpartition('.')[0]}.trees.git_trees").branches())


def _message(state: str | None, rounds: int) -> str:
    """The message about a stall."""
    times = "once" if rounds == 1 else f"{rounds} times in a row"
    return (
        f"the loop stalls: `{state}` was performed {times}, and the check fails as before "
        "with the same files and no new commit"
    )
