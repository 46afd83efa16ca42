"""Tool calls of an agent of the Agent Client Protocol: their state, and their permissions.

The protocol has no tool names; permissions apply to kinds of tools (`edit`, `execute`). Every value comes
from the agent and is checked.
"""

from __future__ import annotations

from typing import Any

from .acp_files import is_inside

# Kinds of tools that each permission mode allows; None for all.
ALLOWED: dict[str, frozenset[str] | None] = {
    "skip": None,
    "edit": frozenset(("edit", "delete", "move", "read", "search", "think")),
    "plan": frozenset(),
    "ask": frozenset(),
}
# Maximum length of a text and of a list that is read.
MAX_TEXT = 100_000
MAX_ITEMS = 1000
_CHANGING_KINDS = ("edit", "delete", "move")
_ENDED = ("completed", "failed")


class ToolCall:
    """One tool call; merges its updates, each of which contains the changed fields."""

    __slots__ = ("_fields", "id", "is_reported")

    def __init__(self, id: str) -> None:
        self.id = id
        self._fields: dict[str, Any] = {}
        # Whether its start has been reported.
        self.is_reported = False

    def update(self, update: dict[str, Any]) -> None:
        """Merge the next update."""
        self._fields.update((key, value) for key, value in update.items() if value is not None)

    @property
    def kind(self) -> str:
        return text_of(self._fields.get("kind")) or "other"

    @property
    def has_begun(self) -> bool:
        return self._fields.get("status") in ("in_progress", *_ENDED)

    @property
    def has_ended(self) -> bool:
        return self._fields.get("status") in _ENDED

    @property
    def has_failed(self) -> bool:
        return self._fields.get("status") == "failed"

    @property
    def target(self) -> str:
        """The object of the call: its command, its changed files, or its title."""
        command = text_of(mapping_of(self._fields.get("rawInput")).get("command"))
        changed = ", ".join(self.paths) if self.kind in _CHANGING_KINDS else ""
        return command or changed or text_of(self._fields.get("title"))

    @property
    def paths(self) -> list[str]:
        """The files of its diffs and its locations."""
        content = [mapping_of(item) for item in items_of(self._fields.get("content"))]
        paths = [item.get("path") for item in content if item.get("type") == "diff"]
        paths += [mapping_of(item).get("path") for item in items_of(self._fields.get("locations"))]
        return list(dict.fromkeys(path for path in paths if isinstance(path, str) and path))

    @property
    def changed(self) -> list[str]:
        """The files that it has changed."""
        return self.paths if self.kind in _CHANGING_KINDS and self.has_ended and not self.has_failed else []

    @property
    def output(self) -> str:
        """The texts of its result."""
        content = [mapping_of(item) for item in items_of(self._fields.get("content"))]
        texts = [text_of(mapping_of(item.get("content")).get("text")) for item in content]
        return "\n".join(text for text in texts if text)[:MAX_TEXT]

    def is_allowed(self, mode: str) -> bool:
        """Whether a permission mode allows the call; edits only for known paths in the project."""
        allowed = ALLOWED.get(mode, frozenset())
        if allowed is None or self.kind not in allowed or self.kind not in _CHANGING_KINDS:
            return allowed is None or self.kind in allowed
        return bool(self.paths) and all(map(is_inside, self.paths))


def mapping_of(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, otherwise {}."""
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Any]:
    """The value if it is a list, truncated, otherwise []."""
    return value[:MAX_ITEMS] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """The value if it is a text, truncated, otherwise ""."""
    return value[:MAX_TEXT] if isinstance(value, str) else ""
