"""Guarded paths: what an agent changed of them, by its trees, and how they were before.

Owns the patterns (`guard: {paths: …}`), the tree that a step is compared with, which survives a crash, and
restoring files. A path is never written through a symbolic link. Must not contain: when trees are taken
(`recorder`).
"""

from __future__ import annotations

import contextlib
import os.path
import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ..host import files
from ..host.errors import reason
from .tree import NoTree, is_placeholder, text_of

_PARTS = re.compile(r"/\*\*$|\*\*/|\*\*|\*|\?|[^*?]")
_MEANINGS = {"/**": "(?:/.*)?", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_LINK = "120000"


class Difference(NamedTuple):
    """A file that differs between two trees. mode, id: what it was in the first one, "" where it was not."""

    letter: str
    path: bytes
    mode: str
    id: str


class Store(Protocol):
    """What restoring needs of a store of trees. base: the folder that paths are relative to."""

    @property
    def base(self) -> bytes: ...
    def between(self, old: str, new: str) -> list[Difference]: ...
    def content(self, id: str) -> bytes: ...


def pattern_of(paths: Iterable[str]) -> re.Pattern[str]:
    """The regular expression of path patterns: `*` within a name, `**` across folders."""
    found = []
    for path in paths:
        path = path.removeprefix("./")
        path += "**" if path.endswith("/") else ""
        found.append("".join(_MEANINGS.get(part, re.escape(part)) for part in _PARTS.findall(path)))
    return re.compile("|".join(found), re.DOTALL)


def baseline(folder: str, seq: int, tree: str) -> str:
    """The tree that effect `seq` is compared with: that of its first start, also after a crash."""
    path = _note_of(folder, seq)
    with contextlib.suppress(OSError, UnicodeDecodeError), files.open(path, "rb") as file:
        return str(file.read(100).decode("ascii"))
    with files.open(f"{path}.new", "wb") as file:
        file.write(tree.encode())
        file.flush()
        files.fsync(file.fileno())
    files.replace(f"{path}.new", path)
    return tree


def forget(folder: str, seq: int) -> None:
    """The effect is over."""
    with contextlib.suppress(OSError):
        files.unlink(_note_of(folder, seq))


def _note_of(folder: str, seq: int) -> str:
    return os.path.join(folder, f"guard-{seq}")


def changed(store: Store, old: str, new: str, paths: Iterable[str], root: str) -> list[Difference]:
    """The files of the project at `root` that match and differ. Raises NoTree."""
    pattern = pattern_of(paths)
    base = files.realpath(store.base)
    prefix = os.path.relpath(files.fsencode(files.realpath(root or ".")), base) + b"/"
    prefix = b"" if prefix == b"./" else prefix
    return [
        one
        for one in store.between(old, new)
        if one.path.startswith(prefix) and pattern.fullmatch(text_of(one.path[len(prefix) :]))
    ]


def restore(store: Store, found: list[Difference]) -> None:
    """Make the files what they were. Raises NoTree where that is impossible."""
    # First what was not there: a link in place of a folder must not lead elsewhere.
    for one in found:
        if not one.mode:
            _remove(store.base, one.path)
    for one in found:
        if one.mode:
            _write(store, one)


def _remove(base: bytes, path: bytes) -> None:
    if _leads_elsewhere(base, path):
        return
    place = os.path.join(base, path)
    try:
        files.unlink(place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NoTree(f"cannot remove {text_of(path)}: {reason(error)}") from None
    # Folders that it was alone in.
    folder = os.path.dirname(path)
    with contextlib.suppress(OSError):
        while folder:
            files.rmdir(os.path.join(base, folder))
            folder = os.path.dirname(folder)


def _write(store: Store, one: Difference) -> None:
    place = os.path.join(store.base, one.path)
    content = store.content(one.id)
    if is_placeholder(content):
        raise NoTree(f"{text_of(one.path)} was too large, or could not be read, to be recorded")
    if one.mode not in ("100644", "100755", _LINK):
        raise NoTree(f"{text_of(one.path)} is another repository")
    try:
        files.makedirs(os.path.dirname(place), exist_ok=True)
        if _leads_elsewhere(store.base, one.path):
            raise NoTree(f"{text_of(one.path)} is reached through a symbolic link")
        if files.isdir(place) and not files.islink(place):
            files.rmtree(place)
        elif files.lexists(place):
            files.unlink(place)
        if one.mode == _LINK:
            files.symlink(content, place)
            return
        flags = files.O_WRONLY | files.O_CREAT | files.O_EXCL | files.O_NOFOLLOW
        with files.open(files.open_handle(place, flags, 0o666), "wb") as file:
            file.write(content)
            mode = files.fstat(file.fileno()).st_mode
            executable = (mode & 0o444) >> 2
            files.fchmod(file.fileno(), mode | executable if one.mode == "100755" else mode)
    except OSError as error:
        raise NoTree(f"cannot restore {text_of(one.path)}: {reason(error)}") from None


def _leads_elsewhere(base: bytes, path: bytes) -> bool:
    """Whether a folder of the path is a symbolic link."""
    folder = os.path.dirname(path)
    while folder:
        if files.islink(os.path.join(base, folder)):
            return True
        folder = os.path.dirname(folder)
    return False
