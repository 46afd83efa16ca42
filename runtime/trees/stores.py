"""Selection of the store of a run's trees: git objects inside a repository, otherwise manifests."""

from __future__ import annotations

import os.path
import re

from ..host import files
from . import git_trees
from .git_trees import GitTrees
from .manifest_trees import ManifestTrees
from .recorder import FOLDER
from .tree import GIT, MANIFEST, NoTree

# Folder of the manifests; a resumed run that has it continues with manifests.
_MANIFESTS = "manifests"
# Folder of a view with the excerpts of a run's trees from the database.
_EXCERPTS = "kept-trees"
_EXCERPT_NAME = re.compile(r"(git|manifest)-([0-9a-f]{40}|[0-9a-f]{64})-([0-9a-f]{40}|[0-9a-f]{64})")


def open_store(path: str, folder: str) -> GitTrees | ManifestTrees:
    """Open or create the store at `path` for the files in `folder`. Raises NoTree."""
    if not files.exists(os.path.join(path, _MANIFESTS)):
        try:
            return GitTrees.create(path, folder)
        except NoTree:
            if files.exists(os.path.join(path, "HEAD")):
                raise
    return ManifestTrees.create(os.path.join(path, _MANIFESTS), folder)


def _make_empty(path: str, store: str, id: str) -> GitTrees | ManifestTrees:
    """Create an empty store at `path` for excerpts. id: a tree id of the right length. Raises NoTree."""
    if store == GIT:
        return git_trees.make_empty(path, id)
    return ManifestTrees.create(os.path.join(path, _MANIFESTS), path)


def open_recorded(path: str, store: str) -> GitTrees | ManifestTrees:
    """Open the store of recorded trees at `path` for reading. Raises NoTree."""
    if store == MANIFEST:
        return ManifestTrees(os.path.join(path, _MANIFESTS), b"")
    if store != GIT:
        raise NoTree(f"there is no store of the kind `{store[:40]}`")
    return git_trees.open_trees(path)


def unpack(folder: str, store: str, tree: str) -> bool:
    """Rebuild the trees of a run in a view from the excerpts in the database; return False if it is no view.

    store, tree: the store and the id of one of the trees. Raises NoTree.
    """
    source = os.path.join(folder, _EXCERPTS)
    if not files.isdir(source):
        return False
    target = os.path.join(folder, FOLDER)
    opened = {store: _make_empty(target, store, tree)}
    for name in sorted(files.listdir(source)):
        match = _EXCERPT_NAME.fullmatch(name)
        if match is None:
            continue  # written by another program
        if match[1] not in opened:
            opened[match[1]] = _make_empty(target, match[1], match[2])
        with files.open(os.path.join(source, name), "rb") as file:
            opened[match[1]].add(file.read())
    return True
