"""The store of a run's trees: git objects in a repository, else manifests."""

from __future__ import annotations

import os.path
import re

from ..host import files
from . import git_trees
from .git_trees import GitTrees
from .manifest_trees import ManifestTrees
from .recorder import FOLDER
from .tree import GIT, MANIFEST, NoTree

# A resumed run continues with manifests, if it has them.
_MANIFESTS = "manifests"
# The folder of a view with what the database keeps of a run's trees.
_KEPT = "kept-trees"
_NAME = re.compile(r"(git|manifest)-([0-9a-f]{40}|[0-9a-f]{64})-([0-9a-f]{40}|[0-9a-f]{64})")


def open_store(path: str, folder: str) -> GitTrees | ManifestTrees:
    """The store at `path` for the files in `folder`. Raises NoTree."""
    if not files.exists(os.path.join(path, _MANIFESTS)):
        try:
            return GitTrees.create(path, folder)
        except NoTree:
            if files.exists(os.path.join(path, "HEAD")):
                raise
    return ManifestTrees.create(os.path.join(path, _MANIFESTS), folder)


def _make_empty(path: str, store: str, id: str) -> GitTrees | ManifestTrees:
    """An empty store at `path` for excerpts of trees with ids like this. Raises NoTree."""
    if store == GIT:
        return git_trees.make_empty(path, id)
    return ManifestTrees.create(os.path.join(path, _MANIFESTS), path)


def open_recorded(path: str, store: str) -> GitTrees | ManifestTrees:
    """The store of recorded trees at `path`, to read. Raises NoTree."""
    if store == MANIFEST:
        return ManifestTrees(os.path.join(path, _MANIFESTS), b"")
    if store != GIT:
        raise NoTree(f"there is no store of the kind `{store[:40]}`")
    return git_trees.open_trees(path)


def unpack(folder: str, store: str, tree: str) -> bool:
    """Make the trees of a run in a view from what the database keeps of them; False where it is no view.

    store, tree: one of them. Raises NoTree.
    """
    source = os.path.join(folder, _KEPT)
    if not files.isdir(source):
        return False
    place = os.path.join(folder, FOLDER)
    made = {store: _make_empty(place, store, tree)}
    for name in sorted(files.listdir(source)):
        found = _NAME.fullmatch(name)
        if found is None:
            continue  # written by another program
        if found[1] not in made:
            made[found[1]] = _make_empty(place, found[1], found[2])
        with files.open(os.path.join(source, name), "rb") as file:
            made[found[1]].add(file.read())
    return True
