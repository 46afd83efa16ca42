"""State of one body under expansion."""

from __future__ import annotations

from ...ir.spans import Span
from ..core.nodes import Binding, Core
from ..core.scope import Frame, Identifier, Scope


class Unit:
    """A body under expansion.

    definitions: the variables that an entry gives their value. entries: the expanded entries.
    """

    def __init__(self, scope: Scope, *, is_top: bool = False) -> None:
        self.scope = scope
        self.is_top = is_top
        self.frame = scope.frame = Frame(scope, scope.function, is_top)
        self.definitions: set[Binding] = set()
        self.defined: dict[Identifier, Span | None] = {}
        self.imported: dict[Identifier, str] = {}
        self.entries: list[tuple[Binding, Core]] = []
