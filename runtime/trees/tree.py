"""A recorded tree: the files of a project at one moment, by an id that a store resolves.

Owns what both stores (`git_trees`, `manifest_trees`) have in common.
"""

from __future__ import annotations

import os.path
import stat
from typing import NamedTuple

from ..host import files

# Larger files are recorded by size and time, without their content.
LARGEST_FILE = 16 << 20
# Content that one tree adds at most, in bytes; further files are recorded as larger ones are.
MOST_BYTES = 256 << 20
GIT, MANIFEST = "git", "manifest"


class NoTree(Exception):
    """The files cannot be recorded, or a recorded tree cannot be read; the text states why."""


class Change(NamedTuple):
    """A file that differs between two trees. letter: A added, D deleted, M modified, T other type."""

    letter: str
    path: str


class Tree(NamedTuple):
    """A tree. store: `git` or `manifest`. changes: against the tree taken before it; None for the first one.

    left_out: (path, reason) of what the tree has no content of.
    """

    store: str
    id: str
    changes: tuple[Change, ...] | None
    left_out: tuple[tuple[str, str], ...] = ()


def look(path: bytes) -> tuple[str, int, int]:
    """How a file is recorded, with its size and its time of change in nanoseconds.

    `gone`, `folder`, `special`, `link`, `file`; `large` and `unreadable` files have no content in a tree.
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
    if state.st_size > LARGEST_FILE:
        return "large", *facts
    return "file" if files.access(path, files.R_OK) else "unreadable", *facts


def placeholder(kind: str, size: int, mtime_ns: int) -> bytes:
    """Content recorded in place of that of a file that is too large or cannot be read."""
    return b"[llc: %s file, content not recorded: %d bytes, changed at %d ns]\n" % (
        kind.encode(),
        size,
        mtime_ns,
    )


def is_placeholder(content: bytes) -> bool:
    """Whether it represents a content that is not recorded."""
    return content.startswith(b"[llc: ") and b" file, content not recorded: " in content[:100]


class Links:
    """Which folders below `base` are reached through a symbolic link."""

    def __init__(self, base: bytes) -> None:
        self._base = base
        self._known = {b"": False}

    def lead_to(self, path: bytes) -> bool:
        """Whether a folder of the path is a link, so that the path is not in the project."""
        folder = os.path.dirname(path)
        known = self._known.get(folder)
        if known is None:
            known = self.lead_to(folder) or files.islink(os.path.join(self._base, folder))
            self._known[folder] = known
        return known


def text_of(path: bytes) -> str:
    """A path as text; bytes that are not UTF-8 become replacement characters in JSON and on terminals."""
    return path.decode("utf-8", "surrogateescape")
