"""Recorded tree: the files of a project at one moment, with an id that a store resolves.

Owns the types and limits that both stores (`git_trees`, `manifest_trees`) share.
"""

from __future__ import annotations

import os.path
import stat
from typing import NamedTuple

from ..host import files

# Larger files are recorded by size and modification time, without their content.
MAX_FILE_BYTES = 16 << 20
# Maximum content that one tree adds; further files are recorded without their content.
MAX_TREE_BYTES = 256 << 20
GIT, MANIFEST = "git", "manifest"


class NoTree(Exception):
    """The files cannot be recorded, or a recorded tree cannot be read; the message states the reason."""


class Change(NamedTuple):
    """A file that differs between two trees. letter: A added, D deleted, M modified, T other type."""

    letter: str
    path: str


class Tree(NamedTuple):
    """A tree. store: `git` or `manifest`. changes: since the previous tree; None for the first tree.

    left_out: (path, reason) of each file without content.
    """

    store: str
    id: str
    changes: tuple[Change, ...] | None
    left_out: tuple[tuple[str, str], ...] = ()


def look(path: bytes) -> tuple[str, int, int]:
    """The kind of a file, its size in bytes and its modification time in nanoseconds.

    Kinds: `gone`, `folder`, `special`, `link`, `file`; `large` and `unreadable` files have no content in a
    tree.
    """
    try:
        state = files.lstat(path)
    except OSError:
        return "gone", 0, 0
    facts = state.st_size, state.st_mtime_ns
    if stat.S_ISLNK(state.st_mode):
        return "link", *facts
    if stat.S_ISDIR(state.st_mode):
        return "folder", *facts
    if not stat.S_ISREG(state.st_mode):
        return "special", *facts
    if state.st_size > MAX_FILE_BYTES:
        return "large", *facts
    return "file" if files.access(path, files.R_OK) else "unreadable", *facts


def placeholder(kind: str, size: int, mtime_ns: int) -> bytes:
    """Content that replaces the content of a file that is too large or cannot be read."""
    return b"[llc: %s file, content not recorded: %d bytes, changed at %d ns]\n" % (
        kind.encode(),
        size,
        mtime_ns,
    )


def is_placeholder(content: bytes) -> bool:
    """Whether a content is a `placeholder`."""
    return content.startswith(b"[llc: ") and b" file, content not recorded: " in content[:100]


class Links:
    """Detects paths below `base` that lead through a symbolic link; caches the results by folder."""

    def __init__(self, base: bytes) -> None:
        self._base = base
        self._known = {b"": False}

    def lead_to(self, path: bytes) -> bool:
        """Whether a folder of the path is a link, so that the file is not in the project."""
        folder = os.path.dirname(path)
        known = self._known.get(folder)
        if known is None:
            known = self.lead_to(folder) or files.islink(os.path.join(self._base, folder))
            self._known[folder] = known
        return known


def text_of(path: bytes) -> str:
    """A path as text with surrogate escapes, which JSON and terminals show as replacement characters."""
    return path.decode("utf-8", "surrogateescape")
