"""Evidence of a success: the check, verdict or step by which a run says that its work is done.

Owns what the journal says of it: the last verdict, what ran in its state, and the tree of the files at that
time. Must not contain: whether a program can reach its success without a check.
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

# Lines at the end of a journal that are read; what a program does after its last check takes fewer.
_READ = 5_000
_LONGEST = 4_096
# Kinds of effects that a verdict is about; the one that gives it is an `evaluate`.
_JUDGED = ("shell", "agent", "ask", "tool", "task")


def read_evidence(path: str) -> dict[str, Any] | None:
    """The evidence in the journal at `path`; None where it has no verdict or cannot be read."""
    try:
        entries = list(read(path, tail_offset(path, _READ)))
    except ReadError:
        return None
    return evidence_of(entry for entry in entries if not isinstance(entry, Damage))


def evidence_of(events: Iterable[Event]) -> dict[str, Any] | None:
    """`state`, `type` and `verdict` of the last verdict; `effect`, `kind`, `command`, `exit_code` of what it
    is about; `judge`, the model that gave it; `tree` of the files then, and whether they are the same
    at the end (`is_current`)."""
    found: dict[str, Any] | None = None
    work: dict[str, Any] = {}
    tree: str | None = None
    begun: dict[int, EffectStarted] = {}
    judge: str | None = None
    for event in events:
        if isinstance(event, EffectStarted):
            begun[event.seq] = event
        elif isinstance(event, TreeTaken):
            tree = event.tree
        elif isinstance(event, EffectFinished):
            start, result = begun.pop(event.seq, None), event.result or {}
            if event.kind in _JUDGED:
                judge, work = None, {"effect": event.seq, "kind": event.kind}
                command = unpack(
                    (start.arguments if start is not None else {}).get("command"), _left_out, secrets.hidden
                )
                if isinstance(command, str):
                    work["command"] = command[:_LONGEST]
                if type(result.get("exit_code")) is int:
                    work["exit_code"] = result["exit_code"]
            elif event.kind == "evaluate" and start is not None:
                judge = str(start.args.get("model"))
        elif isinstance(event, Evaluate):
            found = {"state": event.shown_state, "type": event.type, "verdict": event.verdict, **work}
            if judge is not None:
                found["judge"] = judge
            found["tree"] = tree
    if found is not None and found["tree"] is not None:
        found["is_current"] = found["tree"] == tree
    return found


def _left_out(name: str, size: int) -> str:
    return f"[{size} bytes]"
