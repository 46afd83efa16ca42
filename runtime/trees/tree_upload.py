"""Storage of a run's trees in the database, so that other machines can compare any two of them.

The database stores an excerpt for each pair of consecutive trees: their difference, with the contents of both
sides. The excerpts between two trees therefore contain everything that a comparison of these trees needs. The
first tree of a segment is compared with the commit that is checked out, which connects the segments of a run.
"""

from __future__ import annotations

from ..database.stored_run import TREES, DatabaseRun
from ..journal.events import TreeTaken
from .git_trees import tree_of_head
from .recorder import FOLDER
from .stores import open_recorded
from .tree import GIT, NoTree

# Larger excerpts are not stored.
_MAX_EXCERPT_BYTES = 64 << 20


class TreeUploader:
    """Stores the trees of a run that this process drives in the database."""

    def __init__(self, run: DatabaseRun) -> None:
        self._run = run
        self._last: dict[str, str | None] = {}

    def keep(self, event: TreeTaken) -> None:
        """Store the tree of an event. Raises JournalError."""
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
        if len(data) <= _MAX_EXCERPT_BYTES:
            self._run.put(f"{TREES}{store}-{old}-{new}", data)
