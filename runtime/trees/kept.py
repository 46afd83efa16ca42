"""Trees of a run in its database: what a difference between any two of them reads, for other machines.

A tree is kept by its difference from the one before, with the contents of both sides; so the differences that
lead from one tree to another have all that a difference between these two reads. The first tree of a
segment is compared with the commit that is checked out, which connects the segments of a run.
"""

from __future__ import annotations

from ..database.stored_run import TREES, DatabaseRun
from ..journal.events import TreeTaken
from .git_trees import tree_of_head
from .recorder import FOLDER
from .stores import open_recorded
from .tree import GIT, NoTree

# Larger differences are not kept, in bytes.
_MOST_BYTES = 64 << 20


class KeptTrees:
    """Keeps the trees of a run that this process drives."""

    def __init__(self, run: DatabaseRun) -> None:
        self._run = run
        self._last: dict[str, str | None] = {}

    def keep(self, event: TreeTaken) -> None:
        """Keep a tree that was taken just now. Raises JournalError."""
        store, new = event.store, event.tree
        if new is None:
            return
        if store not in self._last:
            self._last[store] = tree_of_head() if store == GIT else None
        old, self._last[store] = self._last[store], new
        if old is None or old == new:
            return
        try:
            data = open_recorded(self._run.place(FOLDER), store).excerpt(old, new)
        except NoTree:
            return  # `llc diff` reports that the tree cannot be read
        if len(data) <= _MOST_BYTES:
            self._run.put(f"{TREES}{store}-{old}-{new}", data)
