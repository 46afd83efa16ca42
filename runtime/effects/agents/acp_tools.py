"""Tool calls of an agent of the Agent Client Protocol: what is known of each, and which ones are permitted.

The protocol has kinds of tools (`edit`, `execute`), which permissions are about, and no names. Every value is
the agent's, so each is checked.
"""

from __future__ import annotations

from typing import Any

from .acp_files import is_inside

# Kinds of tools that each mode of permissions allows; None: all.
ALLOWED: dict[str, frozenset[str] | None] = {
    "skip": None,
    "edit": frozenset(("edit", "delete", "move", "read", "search", "think")),
    "plan": frozenset(),
    "ask": frozenset(),
}
# Characters of a text, and items of a list, that are read.
LONGEST = 100_000
MANY = 1000
_CHANGES = ("edit", "delete", "move")
_ENDED = ("completed", "failed")


class ToolCall:
    """One tool call, as far as its updates state it: each states what has changed."""

    __slots__ = ("_known", "id", "is_told")

    def __init__(self, id: str) -> None:
        self.id = id
        self._known: dict[str, Any] = {}
        # Whether its start is in the record.
        self.is_told = False

    def update(self, update: dict[str, Any]) -> None:
        """Take the next update."""
        self._known.update((key, value) for key, value in update.items() if value is not None)

    @property
    def kind(self) -> str:
        return text_of(self._known.get("kind")) or "other"

    @property
    def has_begun(self) -> bool:
        return self._known.get("status") in ("in_progress", *_ENDED)

    @property
    def has_ended(self) -> bool:
        return self._known.get("status") in _ENDED

    @property
    def has_failed(self) -> bool:
        return self._known.get("status") == "failed"

    @property
    def target(self) -> str:
        """What it is applied to."""
        command = text_of(mapping_of(self._known.get("rawInput")).get("command"))
        changed = ", ".join(self.paths) if self.kind in _CHANGES else ""
        return command or changed or text_of(self._known.get("title"))

    @property
    def paths(self) -> list[str]:
        """The files of its diffs and its locations."""
        places = [mapping_of(item) for item in items_of(self._known.get("content"))]
        found = [place.get("path") for place in places if place.get("type") == "diff"]
        found += [mapping_of(item).get("path") for item in items_of(self._known.get("locations"))]
        return list(dict.fromkeys(path for path in found if isinstance(path, str) and path))

    @property
    def changed(self) -> list[str]:
        """The files that it has changed."""
        return self.paths if self.kind in _CHANGES and self.has_ended and not self.has_failed else []

    @property
    def output(self) -> str:
        """The texts of its result."""
        content = [mapping_of(item) for item in items_of(self._known.get("content"))]
        texts = [text_of(mapping_of(item.get("content")).get("text")) for item in content]
        return "\n".join(text for text in texts if text)[:LONGEST]

    def is_allowed(self, mode: str) -> bool:
        """Whether a mode of permissions allows it. Edits are allowed in the project, where that is known."""
        allowed = ALLOWED.get(mode, frozenset())
        if allowed is None or self.kind not in allowed or self.kind not in _CHANGES:
            return allowed is None or self.kind in allowed
        return bool(self.paths) and all(map(is_inside, self.paths))


def mapping_of(value: Any) -> dict[str, Any]:
    """A value that should be a mapping."""
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Any]:
    """A value that should be a list."""
    return value[:MANY] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """A value that should be a text."""
    return value[:LONGEST] if isinstance(value, str) else ""
