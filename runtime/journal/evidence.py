"""Evidence of a success: the check, verdict or step that established the success of a run.

Owns its derivation from the journal: the last verdict, the effect that it judged, and the tree of the files
at that time. Must not contain: the analysis whether a program can succeed without a check.
"""

from __future__ import annotations

from ..host import secrets
from .codec import unpack
from .events import EffectFinished, EffectStarted, Evaluate, Event, TreeTaken
from .reader import Damage, ReadError, read, tail_offset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# Number of journal lines to read from the end; the last check is expected within them.
_MAX_LINES = 5_000
_MAX_COMMAND_CHARS = 4_096
# Kinds of effects that verdicts judge. (A model that gives a verdict is an `evaluate` effect.)
_JUDGED = ("shell", "agent", "ask", "tool", "task")


def read_evidence(path: str) -> dict[str, Any] | None:
    """Return the evidence in the journal at `path`; None if it has no verdict or cannot be read."""
    try:
        entries = list(read(path, tail_offset(path, _MAX_LINES)))
    except ReadError:
        return None
    return evidence_of(entry for entry in entries if not isinstance(entry, Damage))


def evidence_of(events: Iterable[Event]) -> dict[str, Any] | None:
    """Return the evidence in a sequence of events; None without a verdict.

    Keys: `state`, `type` and `verdict` of the last verdict; `effect`, `kind`, `command`, `exit_code` of the
    judged effect; `judge`: model that gave the verdict; `tree`: tree of the files at that time; `is_current`:
    whether the files are the same at the end.
    """
    evidence: dict[str, Any] | None = None
    work: dict[str, Any] = {}
    tree: str | None = None
    started: dict[int, EffectStarted] = {}
    judge: str | None = None
    for event in events:
        if isinstance(event, EffectStarted):
            started[event.seq] = event
        elif isinstance(event, TreeTaken):
            tree = event.tree
        elif isinstance(event, EffectFinished):
            start, result = started.pop(event.seq, None), event.result or {}
            if event.kind in _JUDGED:
                judge, work = None, {"effect": event.seq, "kind": event.kind}
                arguments = start.arguments if start is not None else {}
                command = unpack(arguments.get("command"), _placeholder, secrets.hidden)
                if isinstance(command, str):
                    work["command"] = command[:_MAX_COMMAND_CHARS]
                if type(result.get("exit_code")) is int:
                    work["exit_code"] = result["exit_code"]
            elif event.kind == "evaluate" and start is not None:
                judge = str(start.args.get("model"))
        elif isinstance(event, Evaluate):
            evidence = {"state": event.shown_state, "type": event.type, "verdict": event.verdict, **work}
            if judge is not None:
                evidence["judge"] = judge
            evidence["tree"] = tree
    if evidence is not None and evidence["tree"] is not None:
        evidence["is_current"] = evidence["tree"] == tree
    return evidence


def _placeholder(name: str, size: int) -> str:
    return f"[{size} bytes]"
