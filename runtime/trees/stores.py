"""The store of a run's trees: git objects in a repository, else a manifest."""

from __future__ import annotations

from . import git_trees
from .git_trees import GitTrees
from .tree import GIT, NoTree


def open_store(path: str, folder: str) -> GitTrees:
    """The store at `path` for the files in `folder`. Raises NoTree."""
    return GitTrees.create(path, folder)


def open_recorded(path: str, store: str) -> GitTrees:
    """The store of recorded trees at `path`, to read. Raises NoTree."""
    if store != GIT:
        raise NoTree(f"there is no store of the kind `{store}`")
    return git_trees.open_trees(path)
