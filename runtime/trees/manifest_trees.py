"""Trees of a run without git: manifests of path, mode, size, time and SHA-256; contents by hash.

Used outside a repository and if git is not installed. The listed files are those of the search index
(`memory.ignore`). A difference has the format of `git diff`.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import os.path
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..host import files
from ..host.errors import reason
from ..host.paths import read_regular
from ..memory.ignore import list_files
from .guard import Difference
from .tree import MANIFEST, MAX_TREE_BYTES, Change, NoTree, Tree, placeholder, text_of

_CONTEXT_LINES = 3
# Maximum number of lines of a file that is compared line by line.
_MAX_COMPARED_LINES = 50_000
# Bytes at the start of a file that are searched for a NUL byte to detect a binary file.
_BINARY_CHECK_BYTES = 8000
_MAX_BAR_WIDTH = 40
# Names of the files in an excerpt.
_EXCERPT_NAME = re.compile(r"[0-9a-f]{64}\.json|objects/[0-9a-f]{64}")


class _File(NamedTuple):
    """A file of a manifest; `id` is the SHA-256 of its content or placeholder."""

    mode: str
    size: int
    mtime_ns: int
    id: str


class ManifestTrees:
    """The trees of one run. path: folder of the store. base: folder of the project."""

    def __init__(self, path: str, base: bytes) -> None:
        self.path = path
        self._base = base
        self._last: tuple[str, dict[bytes, _File]] | None = None

    @classmethod
    def create(cls, path: str, folder: str) -> ManifestTrees:
        """Open or create the store at `path` for the files in `folder`. Raises NoTree."""
        try:
            files.makedirs(os.path.join(path, "objects"), mode=0o700, exist_ok=True)
        except OSError as error:
            raise NoTree(f"cannot write {path}: {reason(error)}") from None
        return cls(path, files.fsencode(os.path.abspath(folder)))

    # --- taking trees -----------------------------------------------------------------------------

    def take(self) -> Tree:
        """Record the current files as a tree. Raises NoTree."""
        last = self._last[1] if self._last is not None else {}
        try:
            listing = list_files(text_of(self._base), lambda: None)
            manifest: dict[bytes, _File] = {}
            left_out: list[tuple[str, str]] = []
            remaining_bytes = MAX_TREE_BYTES
            for entry in listing.entries:
                remaining_bytes -= entry.size
                why = "" if remaining_bytes > 0 else "further"
                file = self._record(entry.path, last.get(entry.path), why)
                if file is not None:
                    manifest[entry.path] = file
                    if remaining_bytes <= 0:
                        left_out.append((text_of(entry.path), "much"))
            for path, why in listing.left_out:
                file = None if why == "special" else self._record(path, last.get(path), why)
                if file is not None:
                    manifest[path] = file
                    if why != "link":
                        left_out.append((text_of(path), why))
            id = self._write_manifest(manifest)
        except OSError as error:
            raise NoTree(f"the files cannot be recorded: {reason(error)}") from None
        changes = None
        if self._last is not None:
            changes = tuple(Change(letter, text_of(path)) for letter, path in _compare(last, manifest))
        self._last = id, manifest
        return Tree(MANIFEST, id, changes, tuple(left_out))

    def _record(self, path: bytes, previous: _File | None, why: str) -> _File | None:
        """Record a file; None if it does not exist any more.

        previous: its entry in the last tree. why: why its content is not stored; "" to store it.
        """
        full_path = os.path.join(self._base, path)
        try:
            state = files.lstat(full_path)
            facts = state.st_size, state.st_mtime_ns
            if stat.S_ISLNK(state.st_mode):
                return _File("120000", *facts, self._store(files.readlink(full_path)))
            mode = "100755" if state.st_mode & 0o100 else "100644"
            if previous is not None and previous[:3] == (mode, *facts):
                return previous
            if why:
                return _File(mode, *facts, self._store(placeholder(why, *facts)))
            with files.open(full_path, "rb") as file:
                return _File(mode, *facts, self._store(file.read()))
        except OSError:
            return None

    def _store(self, content: bytes) -> str:
        id = hashlib.sha256(content).hexdigest()
        path = os.path.join(self.path, "objects", id)
        if not files.exists(path):
            with files.open(path + ".new", "wb") as file:
                file.write(content)
            files.rename(path + ".new", path)
        return id

    def _write_manifest(self, manifest: dict[bytes, _File]) -> str:
        """Store a manifest; return its id, a digest of paths, modes and contents."""
        digest = hashlib.sha256()
        for path, file in sorted(manifest.items()):
            digest.update(b"%b\0%b %b\n" % (path, file.mode.encode(), file.id.encode()))
        target = os.path.join(self.path, digest.hexdigest() + ".json")
        if not files.exists(target):
            rows = [[text_of(path), *file] for path, file in sorted(manifest.items())]
            with files.open(target + ".new", "w", encoding="ascii") as out:
                json.dump(rows, out)
            files.rename(target + ".new", target)
        return digest.hexdigest()

    # --- excerpts ---------------------------------------------------------------------------------

    def excerpt(self, old: str, new: str) -> bytes:
        """The data that a comparison of two trees needs, for `add`. Raises NoTree."""
        before, after = self._read(old), self._read(new)
        paths = [path for _, path in _compare(before, after)]
        ids = {file.id for path in paths for file in (before.get(path), after.get(path)) if file is not None}
        packed = io.BytesIO()
        try:
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as excerpt:
                for name in (f"{old}.json", f"{new}.json", *(f"objects/{id}" for id in sorted(ids))):
                    excerpt.writestr(name, read_regular(os.path.join(self.path, name)))
        except OSError as error:
            raise NoTree(reason(error)) from None
        return packed.getvalue()

    def add(self, excerpt: bytes) -> None:
        """Add the manifests and contents of an excerpt. Raises NoTree."""
        try:
            with zipfile.ZipFile(io.BytesIO(excerpt)) as packed:
                entries = packed.infolist()
                if sum(entry.file_size for entry in entries) > MAX_TREE_BYTES:
                    raise NoTree("an excerpt is too large")
                for entry in entries:
                    if _EXCERPT_NAME.fullmatch(entry.filename):
                        with files.open(os.path.join(self.path, entry.filename), "wb") as file:
                            file.write(packed.read(entry))
        except OSError as error:
            raise NoTree(reason(error)) from None
        # `zipfile` raises NotImplementedError for an unknown compression method, RuntimeError for encryption.
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError):
            raise NoTree("an excerpt is damaged") from None

    # --- reading trees ----------------------------------------------------------------------------

    def diff(self, old: str, new: str, *options: str) -> bytes:
        """The output of `git diff` for two trees. options: those of `llc diff`. Raises NoTree."""
        if old == new:
            return b""
        before, after = self._read(old), self._read(new)
        changes = _renamed(_compare(before, after), before, after)
        diffs = [_FileDiff(self, change, before, after) for change in changes]
        if "--name-only" in options:
            return b"".join(_quoted(diff.path) + b"\n" for diff in diffs)
        if "--name-status" in options:
            return b"".join(b"%b\0" % b"\0".join(diff.names) for diff in diffs)
        if "--numstat" in options:
            return b"".join(diff.numstat() for diff in diffs)
        if "--stat" in options:
            return _stat(diffs)
        return b"".join(line for diff in diffs for line in diff.patch())

    def _read(self, id: str) -> dict[bytes, _File]:
        if len(id) != 64 or not id.isalnum():
            raise NoTree("the journal names a tree by an invalid id")
        try:
            rows = json.loads(read_regular(os.path.join(self.path, id + ".json")))
            return {
                row[0].encode("utf-8", "surrogateescape"): _File(str(row[1]), row[2], row[3], str(row[4]))
                for row in rows
            }
        except OSError as error:
            raise NoTree(reason(error)) from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise NoTree("a manifest is damaged") from None

    @property
    def base(self) -> bytes:
        return self._base

    def between(self, old: str, new: str) -> list[Difference]:
        """The files that differ, with their mode and content id in the tree `old`. Raises NoTree."""
        before = self._read(old)
        return [
            Difference(letter, path, was.mode if was else "", was.id if was else "")
            for letter, path in _compare(before, self._read(new))
            for was in (before.get(path),)
        ]

    def content(self, id: str) -> bytes:
        """The recorded content with an id. Raises NoTree."""
        if len(id) != 64 or not id.isalnum():
            raise NoTree("a manifest is damaged")
        try:
            return read_regular(os.path.join(self.path, "objects", id))
        except OSError as error:
            raise NoTree(reason(error)) from None


def _compare(before: dict[bytes, _File], after: dict[bytes, _File]) -> Iterator[tuple[str, bytes]]:
    """Yield letter and path of each file that differs, in the order of the paths."""
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            yield ("A" if old is None else "D"), path
        elif (old.mode == "120000") != (new.mode == "120000"):
            yield "T", path
        elif (old.mode, old.id) != (new.mode, new.id):
            yield "M", path


def _renamed(
    changes: Iterator[tuple[str, bytes]], before: dict[bytes, _File], after: dict[bytes, _File]
) -> list[tuple[str, bytes, bytes]]:
    """(letter, old path, new path) of each change; a deletion and an addition of equal content become "R"."""
    all_changes = list(changes)
    deleted = {before[path].id: path for letter, path in all_changes if letter == "D" and before[path].size}
    added = [path for letter, path in all_changes if letter == "A"]
    pairs = {path: deleted.pop(after[path].id) for path in added if after[path].id in deleted}
    old_paths = set(pairs.values())
    return [
        ("R", pairs[path], path) if path in pairs else (letter, path, path)
        for letter, path in all_changes
        if not (letter == "D" and path in old_paths)
    ]


class _FileDiff:
    """The difference of one file. names: the fields of `--name-status`."""

    def __init__(
        self,
        trees: ManifestTrees,
        change: tuple[str, bytes, bytes],
        before: dict[bytes, _File],
        after: dict[bytes, _File],
    ) -> None:
        self.letter, self.old_path, self.path = change
        self.old, self.new = before.get(self.old_path), after.get(self.path)
        self._contents = [trees.content(file.id) if file else b"" for file in (self.old, self.new)]
        self.is_binary = any(b"\0" in content[:_BINARY_CHECK_BYTES] for content in self._contents)
        self.lines = [content.splitlines(keepends=True) for content in self._contents]
        # Comparing very long files takes minutes, so all their lines count as changed.
        self.is_long = any(len(lines) > _MAX_COMPARED_LINES for lines in self.lines)

    @property
    def names(self) -> list[bytes]:
        if self.letter == "R":
            return [b"R100", self.old_path, self.path]
        return [self.letter.encode(), self.path]

    def hunks(self) -> Iterator[bytes]:
        """Yield the lines of the patch after its header."""
        old, new = self.lines
        if self.is_long and old != new:
            yield b"@@ -1,%d +1,%d @@\n" % (len(old), len(new))
            yield from (_line(b"-", line) for line in old)
            yield from (_line(b"+", line) for line in new)
            return
        lines = difflib.diff_bytes(difflib.unified_diff, old, new, n=_CONTEXT_LINES)
        for number, line in enumerate(lines):
            if number > 1:
                yield line if line.startswith(b"@@") else _line(line[:1], line[1:])

    def counts(self) -> tuple[int, int] | None:
        """The number of added and removed lines; None for binary files."""
        if self.is_binary:
            return None
        prefixes = [line[:1] for line in self.hunks()]
        return prefixes.count(b"+"), prefixes.count(b"-")

    def numstat(self) -> bytes:
        """The entry of `--numstat -z`."""
        counts = self.counts()
        head = b"-\t-\t" if counts is None else b"%d\t%d\t" % counts
        paths = b"\0%b\0%b" % (self.old_path, self.path) if self.letter == "R" else self.path
        return head + paths + b"\0"

    def patch(self) -> Iterator[bytes]:
        a, b = _quoted(b"a/" + self.old_path), _quoted(b"b/" + self.path)
        yield b"diff --git %b %b\n" % (a, b)
        if self.old is None and self.new is not None:
            yield b"new file mode %b\n" % self.new.mode.encode()
        elif self.new is None and self.old is not None:
            yield b"deleted file mode %b\n" % self.old.mode.encode()
        elif self.old is not None and self.new is not None and self.old.mode != self.new.mode:
            yield b"old mode %b\nnew mode %b\n" % (self.old.mode.encode(), self.new.mode.encode())
        if self.letter == "R":
            yield b"similarity index 100%\n"
            yield b"rename from %b\nrename to %b\n" % (_quoted(self.old_path), _quoted(self.path))
        a = a if self.old is not None else b"/dev/null"
        b = b if self.new is not None else b"/dev/null"
        if self._contents[0] == self._contents[1]:
            return
        if self.is_binary:
            yield b"Binary files %b and %b differ\n" % (a, b)
            return
        yield b"--- %b\n+++ %b\n" % (a, b)
        yield from self.hunks()


def _line(prefix: bytes, line: bytes) -> bytes:
    return prefix + (line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")


def _quoted(path: bytes) -> bytes:
    """A path as git prints it: quoted if it has control characters, quotes or backslashes."""
    if not any(byte < 32 or byte in b'"\\\x7f' for byte in path):
        return path
    escapes: dict[int, Any] = {9: b"\\t", 10: b"\\n", 34: b'\\"', 92: b"\\\\"}
    parts = (
        escapes.get(byte, b"\\%03o" % byte if byte < 32 or byte == 127 else bytes([byte])) for byte in path
    )
    return b'"' + b"".join(parts) + b'"'


def _stat(diffs: list[_FileDiff]) -> bytes:
    """The output of `--stat`."""
    if not diffs:
        return b""
    names = [
        b" => ".join(map(_quoted, (diff.old_path, diff.path))) if diff.letter == "R" else _quoted(diff.path)
        for diff in diffs
    ]
    width = max(map(len, names))
    counts = [diff.counts() for diff in diffs]
    largest = max((sum(count) for count in counts if count), default=1)
    lines = []
    added = removed = 0
    for name, count in zip(names, counts, strict=True):
        if count is None:
            lines.append(b" %b | Bin\n" % name.ljust(width))
            continue
        added, removed = added + count[0], removed + count[1]
        scale = min(1.0, _MAX_BAR_WIDTH / max(largest, 1))
        plus, minus = (-(-round(part * scale * 100) // 100) for part in count)
        lines.append(b" %b | %d %b\n" % (name.ljust(width), sum(count), b"+" * plus + b"-" * minus))
    facts = [b"%d file%b changed" % (len(diffs), b"" if len(diffs) == 1 else b"s")]
    facts += [b"%d insertion%b(+)" % (added, b"" if added == 1 else b"s")] if added else []
    facts += [b"%d deletion%b(-)" % (removed, b"" if removed == 1 else b"s")] if removed else []
    return b"".join(lines) + b" " + b", ".join(facts) + b"\n"
