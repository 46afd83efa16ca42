"""A file system in memory that models a loss of power.

What `write` wrote to a file is durable after its `sync`, a name after `sync_names` of its folder, as
`host.protocol` says. `lose_power` keeps of the rest what a real disk may keep: any of the writes of a file
since its last sync, the last one partially; for each folder, the changes of names before some moment. A sync
of a folder makes its own changes of names durable; an ordered disk makes all earlier ones durable too, as
most file systems do.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from random import Random
from typing import Any


class Node:
    """A file, a folder or a device.

    data: the content that processes see. synced: the durable content. pending: the writes since the last
    sync, (offset, bytes), or (length, None) for a truncation. names, durable_names: of a folder. exclusive,
    shared: the open files that hold a lock; times_locked: number of exclusive locks so far.
    """

    count = 0

    def __init__(self, kind: int, mode: int, now: float) -> None:
        Node.count += 1
        self.number = Node.count
        self.kind = kind
        self.mode = mode
        self.mtime = now
        self.data = bytearray()
        self.synced = b""
        self.pending: list[tuple[int, bytes | None]] = []
        self.names: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}
        self.links = 1
        self.shared: set[Any] = set()
        self.exclusive: Any = None
        self.times_locked = 0

    @property
    def is_folder(self) -> bool:
        return self.kind == stat.S_IFDIR


# A folder, a name in it, and the new node; None removes the name.
Change = tuple[Node, str, Node | None]


class NameChange:
    """A change of names since the last sync of a folder: for each folder, names and their new nodes."""

    def __init__(self, *changes: Change) -> None:
        self.changes = changes

    def apply(self) -> None:
        for folder, name, node in self.changes:
            if node is None:
                folder.durable_names.pop(name, None)
            else:
                folder.durable_names[name] = node


def failure(number: int, path: object = None) -> OSError:
    return (
        OSError(number, os.strerror(number), path)
        if path is not None
        else OSError(number, os.strerror(number))
    )


class Disk:
    """The disk of one machine."""

    def __init__(self, now: float) -> None:
        self.root = Node(stat.S_IFDIR, 0o755, now)
        self.changes: list[NameChange] = []
        self.is_ordered = True

    # --- names ----------------------------------------------------------------------------------

    def find(self, path: str, cwd: str) -> Node:
        """The node with a name. Raises OSError."""
        node = self.root
        for part in self._parts(path, cwd):
            if not node.is_folder:
                raise failure(errno.ENOTDIR, path)
            try:
                node = node.names[part]
            except KeyError:
                raise failure(errno.ENOENT, path) from None
        return node

    def parent(self, path: str, cwd: str) -> tuple[Node, str]:
        """The folder of a name and its last component. Raises OSError."""
        parts = self._parts(path, cwd)
        if not parts:
            raise failure(errno.EBUSY, path)
        folder = self.find("/" + "/".join(parts[:-1]), "/")
        if not folder.is_folder:
            raise failure(errno.ENOTDIR, path)
        return folder, parts[-1]

    @staticmethod
    def _parts(path: str, cwd: str) -> list[str]:
        if not path:
            raise failure(errno.ENOENT, path)
        parts: list[str] = []
        for part in (path if path[0] == "/" else f"{cwd}/{path}").split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return parts

    def change(self, *changes: Change) -> None:
        """Change several names atomically."""
        for folder, name, node in changes:
            if node is None:
                folder.names.pop(name).links -= 1
            else:
                if name in folder.names:
                    folder.names[name].links -= 1
                folder.names[name] = node
                node.links += 1
        self.changes.append(NameChange(*changes))

    def sync_names(self, folder: Node) -> None:
        """Make the name changes of a folder durable, with the changes that must precede them."""
        positions, settled, left = {id(folder)}, [], []
        for change in reversed(self.changes):
            own = {id(place) for place, _, _ in change.changes}
            if own & positions or (self.is_ordered and settled):
                positions |= own  # a move is one change of two folders
                settled.append(change)
            else:
                left.append(change)
        for change in reversed(settled):
            change.apply()
        self.changes = left[::-1]

    # --- content --------------------------------------------------------------------------------

    @staticmethod
    def write(node: Node, offset: int, data: bytes, now: float) -> None:
        if offset > len(node.data):
            node.data += bytes(offset - len(node.data))
        node.data[offset : offset + len(data)] = data
        node.pending.append((offset, bytes(data)))
        node.mtime = now

    @staticmethod
    def truncate(node: Node, length: int, now: float) -> None:
        if length < len(node.data):
            del node.data[length:]
        else:
            node.data += bytes(length - len(node.data))
        node.pending.append((length, None))
        node.mtime = now

    @staticmethod
    def sync(node: Node) -> None:
        node.synced = bytes(node.data)
        node.pending.clear()

    # --- loss of power --------------------------------------------------------------------------

    def lose_power(self, random: Random) -> None:
        """Keep what is durable, and of the rest what a real disk may keep."""
        kind = random.choice(("nothing", "any", "first"))
        lost: set[int] = set()
        cut = random.randrange(len(self.changes) + 1)
        for index, change in enumerate(self.changes):
            positions = {id(folder) for folder, _, _ in change.changes}
            if kind == "nothing":
                is_lost = True
            elif kind == "any":
                is_lost = bool(positions & lost) or random.random() < 0.3
            else:
                is_lost = index >= cut
            if is_lost:
                lost |= positions
            else:
                change.apply()
        self.changes.clear()
        seen: set[int] = set()
        self._restore(self.root, random, seen)

    def _restore(self, node: Node, random: Random, seen: set[int]) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        node.shared.clear()
        node.exclusive = None
        if node.is_folder:
            node.names = dict(node.durable_names)
            for child in node.names.values():
                self._restore(child, random, seen)
        elif node.kind == stat.S_IFREG and node.pending:
            node.data = bytearray(survived(node, random))
            node.synced = bytes(node.data)
            node.pending.clear()

    def files(self) -> Iterator[tuple[str, Node]]:
        """Every regular file with its path."""
        waiting = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            for name, child in node.names.items():
                if child.is_folder:
                    waiting.append((f"{path}/{name}", child))
                elif child.kind == stat.S_IFREG:
                    yield f"{path}/{name}", child


def survived(node: Node, random: Random) -> bytes:
    """Possible content of a file after a loss of power: the durable content and some later writes."""
    data = bytearray(node.synced)
    writes = node.pending
    kind = random.randrange(4)
    if kind == 0:  # none
        kept: list[tuple[int, bytes | None]] = []
    elif kind == 1:  # the first writes, the last one torn
        kept = writes[: random.randrange(len(writes) + 1)]
        if kept and kept[-1][1]:
            offset, last = kept[-1]
            assert last is not None
            kept = [*kept[:-1], (offset, last[: random.randrange(len(last) + 1)])]
    elif kind == 2:  # any subset
        kept = [write for write in writes if random.random() < 0.5]
    else:
        kept = list(writes)
    for offset, written in kept:
        if written is None:
            if offset < len(data):
                del data[offset:]
            else:
                data += bytes(offset - len(data))
            continue
        if offset > len(data):
            data += bytes(offset - len(data))
        data[offset : offset + len(written)] = written
    return bytes(data)
