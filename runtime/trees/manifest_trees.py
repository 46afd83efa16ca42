"""Trees of a run without git: manifests of path, mode, size, time and SHA-256, contents by their hash.

Used outside of a repository, and where git is not installed. Which files belong to the project is decided
as for its search index (`memory.ignore`). A difference is printed as `git diff` prints it.
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
from .tree import MANIFEST, MOST_BYTES, Change, NoTree, Tree, placeholder, text_of

# Lines around a change, and lines of one file that are compared.
_CONTEXT = 3
_MOST_LINES = 50_000
_BINARY = 8000
_WIDEST_BAR = 40
# The files of an excerpt.
_NAME = re.compile(r"[0-9a-f]{64}\.json|objects/[0-9a-f]{64}")


class _File(NamedTuple):
    """A file of a manifest; `id` is the SHA-256 of its content or placeholder."""

    mode: str
    size: int
    mtime_ns: int
    id: str


class ManifestTrees:
    """The trees of one run. path: of their folder; base: of the project's."""

    def __init__(self, path: str, base: bytes) -> None:
        self.path = path
        self._base = base
        self._last: tuple[str, dict[bytes, _File]] | None = None

    @classmethod
    def create(cls, path: str, folder: str) -> ManifestTrees:
        """The store at `path`, made if missing, for the files in `folder`. Raises NoTree."""
        try:
            files.makedirs(os.path.join(path, "objects"), mode=0o700, exist_ok=True)
        except OSError as error:
            raise NoTree(f"cannot write {path}: {reason(error)}") from None
        return cls(path, files.fsencode(os.path.abspath(folder)))

    # --- taking -----------------------------------------------------------------------------------

    def take(self) -> Tree:
        """The tree of the files as they are now. Raises NoTree."""
        known = self._last[1] if self._last is not None else {}
        try:
            listing = list_files(text_of(self._base), lambda: None)
            found: dict[bytes, _File] = {}
            left_out: list[tuple[str, str]] = []
            room = MOST_BYTES
            for entry in listing.entries:
                room -= entry.size
                file = self._record(entry.path, known.get(entry.path), "" if room > 0 else "further")
                if file is not None:
                    found[entry.path] = file
                    if room <= 0:
                        left_out.append((text_of(entry.path), "much"))
            for path, why in listing.left_out:
                file = None if why == "special" else self._record(path, known.get(path), why)
                if file is not None:
                    found[path] = file
                    if why != "link":
                        left_out.append((text_of(path), why))
            id = self._write_manifest(found)
        except OSError as error:
            raise NoTree(f"the files cannot be recorded: {reason(error)}") from None
        changes = None
        if self._last is not None:
            changes = tuple(Change(letter, text_of(path)) for letter, path in _compare(known, found))
        self._last = id, found
        return Tree(MANIFEST, id, changes, tuple(left_out))

    def _record(self, path: bytes, known: _File | None, why: str) -> _File | None:
        """The entry of a file, None if it is gone; `why` its content is not stored, "" if it is."""
        place = os.path.join(self._base, path)
        try:
            state = files.lstat(place)
            facts = state.st_size, state.st_mtime_ns
            if stat.S_ISLNK(state.st_mode):
                return _File("120000", *facts, self._store(files.readlink(place)))
            mode = "100755" if state.st_mode & 0o100 else "100644"
            if known is not None and known[:3] == (mode, *facts):
                return known
            if why:
                return _File(mode, *facts, self._store(placeholder(why, *facts)))
            with files.open(place, "rb") as file:
                return _File(mode, *facts, self._store(file.read()))
        except OSError:
            return None

    def _store(self, content: bytes) -> str:
        id = hashlib.sha256(content).hexdigest()
        place = os.path.join(self.path, "objects", id)
        if not files.exists(place):
            with files.open(place + ".new", "wb") as file:
                file.write(content)
            files.rename(place + ".new", place)
        return id

    def _write_manifest(self, found: dict[bytes, _File]) -> str:
        """Store a manifest; its id, which depends on paths, modes and contents."""
        digest = hashlib.sha256()
        for path, file in sorted(found.items()):
            digest.update(b"%b\0%b %b\n" % (path, file.mode.encode(), file.id.encode()))
        place = os.path.join(self.path, digest.hexdigest() + ".json")
        if not files.exists(place):
            rows = [[text_of(path), *file] for path, file in sorted(found.items())]
            with files.open(place + ".new", "w", encoding="ascii") as out:
                json.dump(rows, out)
            files.rename(place + ".new", place)
        return digest.hexdigest()

    # --- excerpts ---------------------------------------------------------------------------------

    def excerpt(self, old: str, new: str) -> bytes:
        """What a difference of two trees reads, for `add`. Raises NoTree."""
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
                if sum(entry.file_size for entry in entries) > MOST_BYTES:
                    raise NoTree("an excerpt is too large")
                for entry in entries:
                    if _NAME.fullmatch(entry.filename):
                        with files.open(os.path.join(self.path, entry.filename), "wb") as file:
                            file.write(packed.read(entry))
        except OSError as error:
            raise NoTree(reason(error)) from None
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError):
            raise NoTree("an excerpt is damaged") from None

    # --- reading ----------------------------------------------------------------------------------

    def diff(self, old: str, new: str, *options: str) -> bytes:
        """What `git diff` prints for two trees, with the options of `llc diff`. Raises NoTree."""
        if old == new:
            return b""
        before, after = self._read(old), self._read(new)
        changes = _renamed(_compare(before, after), before, after)
        shown = [_Shown(self, change, before, after) for change in changes]
        if "--name-only" in options:
            return b"".join(_quoted(one.path) + b"\n" for one in shown)
        if "--name-status" in options:
            return b"".join(b"%b\0" % b"\0".join(one.names) for one in shown)
        if "--numstat" in options:
            return b"".join(one.counted() for one in shown)
        if "--stat" in options:
            return _stat(shown)
        return b"".join(line for one in shown for line in one.patch())

    def _read(self, id: str) -> dict[bytes, _File]:
        if len(id) != 64 or not id.isalnum():
            raise NoTree("the journal names a tree by no usable id")
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
        """The files that differ, with what they were in the tree `old`. Raises NoTree."""
        before = self._read(old)
        return [
            Difference(letter, path, was.mode if was else "", was.id if was else "")
            for letter, path in _compare(before, self._read(new))
            for was in (before.get(path),)
        ]

    def content(self, id: str) -> bytes:
        """A recorded content. Raises NoTree."""
        if len(id) != 64 or not id.isalnum():
            raise NoTree("a manifest is damaged")
        try:
            return read_regular(os.path.join(self.path, "objects", id))
        except OSError as error:
            raise NoTree(reason(error)) from None


def _compare(before: dict[bytes, _File], after: dict[bytes, _File]) -> Iterator[tuple[str, bytes]]:
    """The letter and the path of each file that differs, by path."""
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
    """The changes with old and new path; a deleted and an added file of the same content are one renamed."""
    found = list(changes)
    gone = {before[path].id: path for letter, path in found if letter == "D" and before[path].size}
    added = [path for letter, path in found if letter == "A"]
    pairs = {path: gone.pop(after[path].id) for path in added if after[path].id in gone}
    old_paths = set(pairs.values())
    return [
        ("R", pairs[path], path) if path in pairs else (letter, path, path)
        for letter, path in found
        if not (letter == "D" and path in old_paths)
    ]


class _Shown:
    """A change with its contents. names: the fields of `--name-status`."""

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
        self.is_binary = any(b"\0" in content[:_BINARY] for content in self._contents)
        self.lines = [content.splitlines(keepends=True) for content in self._contents]
        # A comparison of very long files takes minutes: all of their lines count as changed.
        self.is_long = any(len(lines) > _MOST_LINES for lines in self.lines)

    @property
    def names(self) -> list[bytes]:
        if self.letter == "R":
            return [b"R100", self.old_path, self.path]
        return [self.letter.encode(), self.path]

    def hunks(self) -> Iterator[bytes]:
        """The lines of the patch after its head."""
        old, new = self.lines
        if self.is_long and old != new:
            yield b"@@ -1,%d +1,%d @@\n" % (len(old), len(new))
            yield from (_line(b"-", line) for line in old)
            yield from (_line(b"+", line) for line in new)
            return
        made = difflib.diff_bytes(difflib.unified_diff, old, new, n=_CONTEXT)
        for number, line in enumerate(made):
            if number > 1:
                yield line if line.startswith(b"@@") else _line(line[:1], line[1:])

    def counts(self) -> tuple[int, int] | None:
        """Lines added and removed; None for binary files."""
        if self.is_binary:
            return None
        heads = [line[:1] for line in self.hunks()]
        return heads.count(b"+"), heads.count(b"-")

    def counted(self) -> bytes:
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


def _line(head: bytes, line: bytes) -> bytes:
    return head + (line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")


def _quoted(path: bytes) -> bytes:
    """A path as git prints it: quoted where it has control characters, quotes or backslashes."""
    if not any(byte < 32 or byte in b'"\\\x7f' for byte in path):
        return path
    escapes: dict[int, Any] = {9: b"\\t", 10: b"\\n", 34: b'\\"', 92: b"\\\\"}
    parts = (
        escapes.get(byte, b"\\%03o" % byte if byte < 32 or byte == 127 else bytes([byte])) for byte in path
    )
    return b'"' + b"".join(parts) + b'"'


def _stat(shown: list[_Shown]) -> bytes:
    """What `--stat` prints."""
    if not shown:
        return b""
    names = [
        b" => ".join(map(_quoted, (one.old_path, one.path))) if one.letter == "R" else _quoted(one.path)
        for one in shown
    ]
    width = max(map(len, names))
    counts = [one.counts() for one in shown]
    most = max((sum(count) for count in counts if count), default=1)
    lines = []
    added = removed = 0
    for name, count in zip(names, counts, strict=True):
        if count is None:
            lines.append(b" %b | Bin\n" % name.ljust(width))
            continue
        added, removed = added + count[0], removed + count[1]
        scale = min(1.0, _WIDEST_BAR / max(most, 1))
        plus, minus = (-(-round(part * scale * 100) // 100) for part in count)
        lines.append(b" %b | %d %b\n" % (name.ljust(width), sum(count), b"+" * plus + b"-" * minus))
    facts = [b"%d file%b changed" % (len(shown), b"" if len(shown) == 1 else b"s")]
    facts += [b"%d insertion%b(+)" % (added, b"" if added == 1 else b"s")] if added else []
    facts += [b"%d deletion%b(-)" % (removed, b"" if removed == 1 else b"s")] if removed else []
    return b"".join(lines) + b" " + b", ".join(facts) + b"\n"
