"""What an agent did and which files changed, as lines for people: for `logs`, `trace` and `status`.

The texts are those of the events; the caller removes control characters (`host.screen.printable`).
"""

from __future__ import annotations

from ..host import clock
from .events import AgentActed, Event, Guarded, TreeTaken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


# Characters of a text on one line, and files that a line names.
_SHORT = 160
_NAMED = 5
# States of a rate limit that need no attention.
_ALLOWED = ("", "allowed")


def is_detail(event: Event) -> bool:
    """Whether an event about an effect is shown only on request."""
    match event:
        case AgentActed(what="tool-end"):
            return not event.is_error
        case AgentActed(what="rate-limit"):
            return event.name_ in _ALLOWED
        case AgentActed():
            return event.what in ("model", "usage", "files", "final")
        case TreeTaken():
            return not event.changed and not (event.reason and event.when == "before")
    return False


def describe(event: Event, is_whole: bool = False) -> Iterator[str]:
    """An event of an agent or of a tree in lines, nothing for other events; is_whole: texts in full."""
    match event:
        case AgentActed():
            yield from _lines(_head(event), event.text, is_whole)
        case Guarded():
            done = "reverted" if event.on == "revert" else "changed, and the step fails"
            paths = [" ".join(map(str, change)) for change in event.changes if isinstance(change, list)]
            yield f"guarded paths {done}: {_named(paths, len(paths) if is_whole else _NAMED, event.changed)}"
        case TreeTaken():
            yield _tree(event, is_whole)


def _head(event: AgentActed) -> str:
    tool = f"{event.name_} {event.target}".strip()
    match event.what:
        case "text":
            return ""
        case "tool":
            return f"[{tool}]"
        case "tool-end":
            return f"[{tool}] " + ("failed" if event.is_error else "ended")
        case "session":
            return f"session {event.id}"
        case "model":
            return f"model {event.name_}"
        case "files":
            return f"wrote {_named([str(file) for file in event.files])}"
        case "usage":
            used = (f"{name} {value}" for name, value in event.usage.items() if value is not None)
            figures = ", ".join(used)
            return f"used {figures}" if figures else ""
        case "rate-limit":
            until = f", resets at {_utc(event.resets_at)}" if event.resets_at is not None else ""
            return f"rate limit: {event.name_}{until}"
        case "quota-wait":
            return f"waiting for the quota of the account {event.name_} until {_utc(event.resets_at or 0)}"
        case "quota-over":
            return f"the wait for the quota of the account {event.name_} ended after {event.delay_s or 0:g} s"
        case "retry":
            facts = [f"attempt {event.attempt}"] if event.attempt is not None else []
            facts += [f"status {event.status}"] if event.status is not None else []
            facts += [f"in {event.delay_s:g} s"] if event.delay_s is not None else []
            return "model request repeated" + (f" ({', '.join(facts)})" if facts else "")
        case "refusal":
            return f"refused: {tool}"
        case "question":
            return f"asks to use {tool}"
        case "answer":
            return f"a person answered: {event.text}"
        case "error":
            status = f" {event.status}" if event.status is not None else ""
            return f"error {event.name_ or 'of the agent'}{status}"
        case "final":
            return "final answer"
        case "bound":
            return "what follows is not recorded: too much"
    return event.what


def _utc(moment: float) -> str:
    """A time as people read it."""
    try:
        return clock.strftime("%Y-%m-%d %H:%M UTC", clock.gmtime(moment))
    except (OverflowError, ValueError, OSError):
        return f"{moment:.0f} s after 1970"


def _lines(head: str, text: str, is_whole: bool) -> Iterator[str]:
    """A head and a text: on one line, or in full."""
    lines = text.strip("\n").splitlines()
    if is_whole and len(lines) > 1:
        yield from ([f"{head}:"] if head else [])
        yield from (f"  {line}" if head else line for line in lines)
        return
    told = " ".join(text.split())
    line = " ".join(f"{head}: {told}".split()) if head and told else head or told
    if not line:
        return  # such as usage without figures
    yield line if is_whole or len(line) <= _SHORT else line[: _SHORT - 1] + "…"


def _tree(event: TreeTaken, is_whole: bool) -> str:
    if event.tree is None:
        return f"files not recorded: {event.reason}"
    if event.changes is None:
        return f"tree {event.when}: {event.tree}"
    changes = [" ".join(map(str, change)) for change in event.changes if isinstance(change, list)]
    most = len(changes) if is_whole else _NAMED
    count = event.changed or 0
    noun = "file" if count == 1 else "files"
    return f"{count} {noun} changed" + (f": {_named(changes, most, count)}" if changes else "")


def _named(names: list[str], most: int = _NAMED, count: int | None = None) -> str:
    hidden = (len(names) if count is None else count) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {hidden} more" if hidden > 0 else "")
