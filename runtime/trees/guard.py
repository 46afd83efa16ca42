"""Guarded paths: detects an agent's changes to them and restores the files.

Owns the patterns (`guard: {paths: …}`), the baseline tree of a step, which survives a crash, and the
restoring of files. A path is never written through a symbolic link. Must not contain: the taking of trees
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
_REGEX_OF_PART = {"/**": "(?:/.*)?", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_LINK_MODE = "120000"


class Difference(NamedTuple):
    """A file that differs between two trees. mode, id: those in the first tree, "" if it was not there."""

    letter: str
    path: bytes
    mode: str
    id: str


class Store(Protocol):
    """The required part of a store of trees. base: the folder that paths are relative to."""

    @property
    def base(self) -> bytes: ...
    def between(self, old: str, new: str) -> list[Difference]: ...
    def content(self, id: str) -> bytes: ...


def pattern_of(paths: Iterable[str]) -> re.Pattern[str]:
    """Translate path patterns to a regular expression: `*` matches within a name, `**` across folders."""
    alternatives = []
    for path in paths:
        path = path.removeprefix("./")
        path += "**" if path.endswith("/") else ""
        parts = _PARTS.findall(path)
        alternatives.append("".join(_REGEX_OF_PART.get(part, re.escape(part)) for part in parts))
    return re.compile("|".join(alternatives), re.DOTALL)


def baseline(folder: str, seq: int, tree: str) -> str:
    """The baseline tree of effect `seq`: the tree of its first start, which survives a crash.

    tree: the tree before the current start; stored as the baseline if there is none.
    """
    path = _baseline_file(folder, seq)
    with contextlib.suppress(OSError, UnicodeDecodeError), files.open(path, "rb") as file:
        return str(file.read(100).decode("ascii"))
    with files.open(f"{path}.new", "wb") as file:
        file.write(tree.encode())
        file.flush()
        files.fsync(file.fileno())
    files.replace(f"{path}.new", path)
    return tree


def delete_baseline(folder: str, seq: int) -> None:
    """Delete the baseline of a finished effect."""
    with contextlib.suppress(OSError):
        files.unlink(_baseline_file(folder, seq))


def _baseline_file(folder: str, seq: int) -> str:
    return os.path.join(folder, f"guard-{seq}")


def changed(store: Store, old: str, new: str, paths: Iterable[str], root: str) -> list[Difference]:
    """The files of the project at `root` that match one of the patterns and differ. Raises NoTree."""
    pattern = pattern_of(paths)
    base = files.realpath(store.base)
    prefix = os.path.relpath(files.fsencode(files.realpath(root or ".")), base) + b"/"
    prefix = b"" if prefix == b"./" else prefix
    return [
        difference
        for difference in store.between(old, new)
        if difference.path.startswith(prefix) and pattern.fullmatch(text_of(difference.path[len(prefix) :]))
    ]


def restore(store: Store, differences: list[Difference]) -> None:
    """Restore the files of the first tree. Raises NoTree if this is impossible."""
    # Remove new files first, because a new link in place of a folder must not redirect a write.
    for difference in differences:
        if not difference.mode:
            _remove(store.base, difference.path)
    for difference in differences:
        if difference.mode:
            _write(store, difference)


def _remove(base: bytes, path: bytes) -> None:
    if _is_below_link(base, path):
        return
    try:
        files.unlink(os.path.join(base, path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise NoTree(f"cannot remove {text_of(path)}: {reason(error)}") from None
    # Remove the folders that are now empty.
    folder = os.path.dirname(path)
    with contextlib.suppress(OSError):
        while folder:
            files.rmdir(os.path.join(base, folder))
            folder = os.path.dirname(folder)


def _write(store: Store, difference: Difference) -> None:
    name, target = text_of(difference.path), os.path.join(store.base, difference.path)
    content = store.content(difference.id)
    if is_placeholder(content):
        raise NoTree(f"the content of {name} is not recorded, because it was too large or could not be read")
    if difference.mode not in ("100644", "100755", _LINK_MODE):
        raise NoTree(f"{name} is another repository")
    try:
        files.makedirs(os.path.dirname(target), exist_ok=True)
        if _is_below_link(store.base, difference.path):
            raise NoTree(f"{name} is reached through a symbolic link")
        if files.isdir(target) and not files.islink(target):
            files.rmtree(target)
        elif files.lexists(target):
            files.unlink(target)
        if difference.mode == _LINK_MODE:
            files.symlink(content, target)
            return
        flags = files.O_WRONLY | files.O_CREAT | files.O_EXCL | files.O_NOFOLLOW
        with files.open(files.open_handle(target, flags, 0o666), "wb") as file:
            file.write(content)
            mode = files.fstat(file.fileno()).st_mode
            executable = (mode & 0o444) >> 2
            files.fchmod(file.fileno(), mode | executable if difference.mode == "100755" else mode)
    except OSError as error:
        raise NoTree(f"cannot restore {name}: {reason(error)}") from None


def _is_below_link(base: bytes, path: bytes) -> bool:
    """Whether a folder of the path is a symbolic link."""
    folder = os.path.dirname(path)
    while folder:
        if files.islink(os.path.join(base, folder)):
            return True
        folder = os.path.dirname(folder)
    return False
