"""The store of a run's trees: git objects in a repository, else manifests."""

from __future__ import annotations

import os.path

from ..host import files
from . import git_trees
from .git_trees import GitTrees
from .manifest_trees import ManifestTrees
from .tree import GIT, MANIFEST, NoTree

# A resumed run continues with manifests, if it has them.
_MANIFESTS = "manifests"


def open_store(path: str, folder: str) -> GitTrees | ManifestTrees:
    """The store at `path` for the files in `folder`. Raises NoTree."""
    if not files.exists(os.path.join(path, _MANIFESTS)):
        try:
            return GitTrees.create(path, folder)
        except NoTree:
            if files.exists(os.path.join(path, "HEAD")):
                raise
    return ManifestTrees.create(os.path.join(path, _MANIFESTS), folder)


def open_recorded(path: str, store: str) -> GitTrees | ManifestTrees:
    """The store of recorded trees at `path`, to read. Raises NoTree."""
    if store == MANIFEST:
        return ManifestTrees(os.path.join(path, _MANIFESTS), b"")
    if store != GIT:
        raise NoTree(f"there is no store of the kind `{store[:40]}`")
    return git_trees.open_trees(path)
