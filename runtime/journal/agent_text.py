"""Text for events about agents and changed files, for `logs`, `trace` and `status`.

The texts come from the events unchanged; the caller removes control characters (`host.screen.printable`).
"""

from __future__ import annotations

from ..host import clock
from .events import AgentActed, Event, Guarded, TreeTaken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


# Maximum length of a line in characters, and maximum number of files on a line.
_MAX_LINE_CHARS = 160
_MAX_FILES = 5
# States of a rate limit that are shown only on request.
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
    """Format an event of an agent or of a tree as lines; no lines for other events.

    is_whole: complete texts.
    """
    match event:
        case AgentActed():
            yield from _lines(_head(event), event.text, is_whole)
        case Guarded():
            action = "reverted" if event.on == "revert" else "changed, and the step fails"
            paths = [" ".join(map(str, change)) for change in event.changes if isinstance(change, list)]
            limit = len(paths) if is_whole else _MAX_FILES
            yield f"guarded paths {action}: {_join_names(paths, limit, event.changed)}"
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
            return f"wrote {_join_names([str(file) for file in event.files])}"
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
    """Format a time in UTC."""
    try:
        return clock.strftime("%Y-%m-%d %H:%M UTC", clock.gmtime(moment))
    except (OverflowError, ValueError, OSError):
        return f"{moment:.0f} s after 1970"


def _lines(head: str, text: str, is_whole: bool) -> Iterator[str]:
    """Yield a head and a text: shortened on one line, or complete on several lines."""
    lines = text.strip("\n").splitlines()
    if is_whole and len(lines) > 1:
        yield from ([f"{head}:"] if head else [])
        yield from (f"  {line}" if head else line for line in lines)
        return
    joined = " ".join(text.split())
    line = " ".join(f"{head}: {joined}".split()) if head and joined else head or joined
    if not line:
        return  # for example usage without figures
    yield line if is_whole or len(line) <= _MAX_LINE_CHARS else line[: _MAX_LINE_CHARS - 1] + "…"


def _tree(event: TreeTaken, is_whole: bool) -> str:
    if event.tree is None:
        return f"files not recorded: {event.reason}"
    if event.changes is None:
        return f"tree {event.when}: {event.tree}"
    changes = [" ".join(map(str, change)) for change in event.changes if isinstance(change, list)]
    limit = len(changes) if is_whole else _MAX_FILES
    count = event.changed or 0
    noun = "file" if count == 1 else "files"
    return f"{count} {noun} changed" + (f": {_join_names(changes, limit, count)}" if changes else "")


def _join_names(names: list[str], limit: int = _MAX_FILES, count: int | None = None) -> str:
    """Join at most `limit` names. count: total number of names; default: length of `names`."""
    hidden = (len(names) if count is None else count) - min(limit, len(names))
    return ", ".join(names[:limit]) + (f" and {hidden} more" if hidden > 0 else "")
