"""Trees of a run as git objects, in a repository of its own in the run's folder.

The user's repository is only read: its objects are an alternate of ours, its index is copied once so that
unchanged files are not read. Index, refs, stash, HEAD and configuration are never written. Only plumbing
commands run, without hooks, filters and file system monitors: no program that the project names is started.

New objects lie in the run's folder, and objects of the user that a difference between two trees of the run
needs are copied there, so that neither `git gc` nor a rewritten history loses them.
"""

from __future__ import annotations

import contextlib
import os.path

from ..host import environment, files, processes
from ..host.errors import reason
from ..host.paths import open_regular
from .guard import Difference
from .tree import GIT, MOST_BYTES, Change, Links, NoTree, Tree, look, placeholder, text_of

# Seconds for one git command.
TIMEOUT = 120.0
# A file that changes while it is read is read again.
_TRIES = 3
# Settings of the user's repository that decide which bytes are recorded for a file.
_SETTINGS = (
    *("core.autocrlf", "core.eol", "core.excludesfile", "core.filemode", "core.ignorecase"),
    *("core.precomposeunicode", "core.sparsecheckout", "core.sparsecheckoutcone", "core.symlinks"),
)
# What `rev-parse` tells of the user's repository, in this order.
_PLACES = (
    *("--show-toplevel", "--show-object-format", "--git-path", "objects", "--git-path", "index"),
    *("--git-path", "info/exclude", "--git-path", "info/sparse-checkout"),
)
# Nothing that the project or the user configures is executed.
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={files.devnull}", "-c", "core.safecrlf=false"),
    *("-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "core.quotePath=false"),
    *("-c", "gc.auto=0", "-c", "core.bigFileThreshold=16m", "-c", "core.looseCompression=1"),
)
_ATTRIBUTES = "* -filter -ident -working-tree-encoding\n"
_DELETED = b"0 %s\t%s\0"


class _Changing(NoTree):
    """A file changed while it was read."""


class GitTrees:
    """The trees of one run. path: of its repository; worktree: of the user's, as bytes."""

    def __init__(self, path: str, worktree: bytes, none: bytes = b"") -> None:
        self.path = path
        self.worktree = worktree
        self._none = none  # the id of nothing
        self._last: bytes | None = None
        # Paths without content; those that were one stay so, that a tree differs by its files only.
        self._without: set[bytes] = set()

    @classmethod
    def create(cls, path: str, folder: str) -> GitTrees:
        """The repository at `path` for the repository around `folder`; made if missing. Raises NoTree."""
        found = git(("rev-parse", *_PLACES), cwd=folder or None).split(b"\n")
        if len(found) != 7:
            raise NoTree("the path of the repository has a line break")
        base = files.fsencode(os.path.abspath(folder))
        worktree, form, *places = (os.path.join(base, name) if name else name for name in found[:6])
        trees = cls(path, worktree, b"0" * (40 if os.path.basename(form) == b"sha1" else 64))
        if not files.exists(os.path.join(path, "HEAD")):
            try:
                trees._make(os.path.basename(form), places, folder)
            except OSError as error:
                raise NoTree(f"cannot write {path}: {reason(error)}") from None
        return trees

    def _make(self, form: bytes, places: list[bytes], folder: str) -> None:
        objects, index, exclude, sparse = places
        for name in ("objects/info", "objects/pack", "refs", "info"):
            files.makedirs(os.path.join(self.path, name), mode=0o700, exist_ok=True)
        lines = ["[core]", f"\trepositoryformatversion = {int(form != b'sha1')}", "\tbare = false"]
        for name, value in _settings(folder).items():
            lines.append(f"\t{name.partition('.')[2]} = {_quoted(value)}")
        if form != b"sha1":
            lines += ["[extensions]", f"\tobjectFormat = {form.decode('ascii', 'replace')}"]
        self._write("config", "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n")
        self._write("info/attributes", _ATTRIBUTES.encode())
        self._write("objects/info/alternates", files.realpath(objects) + b"\n")
        for name, place in (("info/exclude", exclude), ("info/sparse-checkout", sparse), ("index", index)):
            with contextlib.suppress(FileNotFoundError):
                # With its time: git compares the times of files with that of the index.
                files.copy2(place, os.path.join(files.fsencode(self.path), name.encode()))
        # Last: a repository without it is made again.
        self._write("HEAD", b"ref: refs/heads/none\n")
        if self._fails("ls-files", "-z", "--", ":(top)none"):
            self._rebuild(folder)

    def _rebuild(self, folder: str) -> None:
        """An index from HEAD: the user's is damaged, or in parts."""
        with contextlib.suppress(OSError):
            files.unlink(os.path.join(self.path, "index"))
        tree = tree_of_head(folder)
        if tree is not None:
            with contextlib.suppress(NoTree):
                self._git("read-tree", tree)

    def _write(self, name: str, content: bytes) -> None:
        with files.open(os.path.join(self.path, name), "wb") as file:
            file.write(content)

    # --- taking -----------------------------------------------------------------------------------

    def take(self) -> Tree:
        """The tree of the files as they are now. Raises NoTree."""
        for left in reversed(range(_TRIES)):
            try:
                is_changed, left_out = self._update()
                break
            except _Changing:
                if not left:
                    raise
        last = self._last or self._saved()
        tree = last if last and not is_changed else self._git("write-tree", "--missing-ok").strip()
        self._last = tree
        changes = None
        if last is not None:
            changes = self._keep(last, tree) if last != tree else ()
        if last != tree:
            self._write("last", tree)
        return Tree(GIT, tree.decode("ascii"), changes, tuple(left_out))

    def _saved(self) -> bytes | None:
        """The last tree of an earlier process."""
        try:
            with open_regular(os.path.join(self.path, "last")) as file:
                return file.read(64) or None
        except OSError:
            return None

    def _update(self) -> tuple[bool, list[tuple[str, str]]]:
        """Make the private index equal to the files: whether it may differ, and what has no content in it."""
        listed = self._git("ls-files", "-z", "--others", "--modified", "--exclude-standard")
        links = Links(self.worktree)
        room = MOST_BYTES
        read: list[bytes] = []
        without: list[tuple[bytes, bytes]] = []
        gone: list[bytes] = []
        left_out: list[tuple[str, str]] = []
        for path in dict.fromkeys(listed.split(b"\0")):
            if not path:
                continue
            place = os.path.join(self.worktree, path)
            kind, size, mtime_ns = ("gone", 0, 0) if links.lead_to(path) else look(place)
            if kind == "gone":
                gone.append(path)
            elif path.endswith(b"/"):
                left_out.append((text_of(path), "repository"))
            elif kind == "folder":
                (read if files.lexists(os.path.join(place, b".git")) else gone).append(path)
            elif kind == "file" and (path in self._without or size > room):
                self._without.add(path)
                left_out.append((text_of(path), "much"))
                without.append((path, placeholder("further", size, mtime_ns)))
            elif kind in ("file", "link"):
                room -= size
                read.append(path)
            elif kind == "special":
                gone.append(path)
            else:
                left_out.append((text_of(path), kind))
                without.append((path, placeholder(kind, size, mtime_ns)))
        self._set_entries(gone, without)
        if read:
            given = b"".join(path + b"\0" for path in read)
            try:
                self._git("update-index", "-z", "--add", "--remove", "--replace", "--stdin", given=given)
            except NoTree as error:
                raise _Changing(*error.args) from None
        return bool(gone or without or read), left_out

    def _set_entries(self, gone: list[bytes], without: list[tuple[bytes, bytes]]) -> None:
        """Remove entries of the index, and set those of files whose content is not recorded."""
        if not gone and not without:
            return
        ids: list[bytes] = []
        if without:
            scratch = [os.path.join(self.path, f"placeholder-{number}") for number in range(len(without))]
            for place, (_, content) in zip(scratch, without, strict=True):
                self._write(os.path.basename(place), content)
            names = "".join(os.path.abspath(place) + "\n" for place in scratch)
            given = names.encode("utf-8", "surrogateescape")
            ids = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", given=given).split()
            for place in scratch:
                files.unlink(place)
        lines = [_DELETED % (self._none, path) for path in gone]
        # An entry is removed first: a folder may have had its name.
        for (path, _), id in zip(without, ids, strict=True):
            lines.append(_DELETED % (self._none, path))
            lines.append(b"100644 %s\t%s\0" % (id, path))
        self._git("update-index", "-z", "--index-info", given=b"".join(lines))

    def _keep(self, old: bytes, new: bytes) -> tuple[Change, ...]:
        """Copy to our objects what a difference of the trees reads; the difference by files."""
        needed, changes = self._read_by(old, new)
        foreign = sorted(id for id in needed if not self._has(id.decode()))
        if foreign:
            with contextlib.suppress(NoTree):  # a partial clone lacks objects
                place = os.path.abspath(os.path.join(self.path, "objects", "pack", "pack"))
                self._git("pack-objects", "-q", "--window=0", place, given=b"\n".join(foreign) + b"\n")
        return changes

    def _read_by(self, old: bytes, new: bytes) -> tuple[set[bytes], tuple[Change, ...]]:
        """The objects that a difference of the trees reads; the difference by files."""
        raw = self._git("diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", old.decode(), new.decode())
        needed = {old, new}
        changes: list[Change] = []
        fields = raw.split(b"\0")
        for at in range(0, len(fields) - 1, 2):
            before, after, *ids, letter = fields[at].lstrip(b":").split()
            modes = (before, after)
            needed.update(
                id for mode, id in zip(modes, ids, strict=True) if mode != b"160000" and id.strip(b"0")
            )
            if b"040000" not in modes:
                changes.append(Change(letter.decode("ascii", "replace"), text_of(fields[at + 1])))
        return needed, tuple(changes)

    def excerpt(self, old: str, new: str) -> bytes:
        """What a difference of two trees reads, for `add`. Raises NoTree."""
        needed, _ = self._read_by(old.encode(), new.encode())
        return self._git("pack-objects", "-q", "--stdout", given=b"\n".join(sorted(needed)) + b"\n")

    def add(self, excerpt: bytes) -> None:
        """Add the objects of an excerpt. Raises NoTree."""
        self._git("index-pack", "--stdin", given=excerpt)

    def _has(self, id: str) -> bool:
        return files.exists(os.path.join(self.path, "objects", id[:2], id[2:]))

    # --- reading ----------------------------------------------------------------------------------

    def diff(self, old: str, new: str, *options: str) -> bytes:
        """What `git diff` prints for two trees. Raises NoTree."""
        if not all(len(id) in (40, 64) and id.isalnum() for id in (old, new)):
            raise NoTree("the journal names a tree by no usable id")
        if old == new:
            return b""
        return self._git("diff", "--no-ext-diff", "--no-textconv", "-M", *options, old, new, "--")

    @property
    def base(self) -> bytes:
        return self.worktree

    def between(self, old: str, new: str) -> list[Difference]:
        """The files that differ, with what they were in the tree `old`. Raises NoTree."""
        raw = self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new).split(b"\0")
        found = []
        for at in range(0, len(raw) - 1, 2):
            mode, _, id, _, letter = raw[at].lstrip(b":").decode("ascii", "replace").split()
            is_new = letter == "A"
            found.append(Difference(letter, raw[at + 1], "" if is_new else mode, "" if is_new else id))
        return found

    def content(self, id: str) -> bytes:
        """A recorded content. Raises NoTree."""
        return self._git("cat-file", "blob", id)

    def _fails(self, *words: str) -> bool:
        try:
            self._git(*words)
        except NoTree:
            return True
        return False

    def _git(self, *words: str, given: bytes = b"") -> bytes:
        return git((*_SAFE, *words), self.path, self.worktree, given)


def present_tree(path: str, scratch: str, folder: str) -> tuple[GitTrees, str]:
    """The trees at `path` and one of the files as they are now, with its id; that one is made in `scratch`.

    The run may be working: its own index is not touched. Raises NoTree.
    """
    trees = GitTrees.create(scratch, folder)
    try:
        with files.open(os.path.join(scratch, "objects/info/alternates"), "ab") as file:
            file.write(files.fsencode(os.path.abspath(os.path.join(path, "objects"))) + b"\n")
    except OSError as error:
        raise NoTree(f"cannot write {scratch}: {reason(error)}") from None
    return trees, trees.take().id


def branches(folder: str = "") -> str:
    """The commits of HEAD and of all branches in the user's repository; "" where there is none."""
    try:
        listed = git(("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads"), cwd=folder or None)
        with contextlib.suppress(NoTree):  # no commit yet
            listed += git(("rev-parse", "--verify", "-q", "HEAD"), cwd=folder or None)
    except NoTree:
        return ""
    return listed.decode("utf-8", "replace")


def tree_of_head(folder: str = "") -> str | None:
    """The tree of the commit that is checked out; None without a commit."""
    with contextlib.suppress(NoTree):
        return git(("rev-parse", "--verify", "-q", "HEAD^{tree}"), cwd=folder or None).decode().strip()
    return None


def make_empty(path: str, id: str) -> GitTrees:
    """An empty repository for excerpts with ids like this. Raises NoTree."""
    form = "sha1" if len(id) == 40 else "sha256"
    git((*_SAFE, "init", "-q", "--bare", "--template=", f"--object-format={form}", path), settings={})
    return open_trees(path)


def open_trees(path: str) -> GitTrees:
    """The trees at `path`, to read. Raises NoTree."""
    if not files.exists(os.path.join(path, "HEAD")):
        raise NoTree("the run's trees are not there any more")
    return GitTrees(path, files.fsencode(os.path.abspath(path)))


def _settings(folder: str) -> dict[str, str]:
    """Those of `_SETTINGS` that the user's repository has."""
    found: dict[str, str] = {}
    for entry in git(("config", "--list", "-z"), cwd=folder or None).split(b"\0"):
        name, _, value = entry.decode("utf-8", "surrogateescape").partition("\n")
        if name in _SETTINGS:
            found[name] = value
    return found


def _quoted(value: str) -> str:
    """A value as in a git configuration file."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def git(
    words: tuple[str, ...],
    own: str | None = None,
    cwd: str | bytes | None = None,
    given: bytes = b"",
    settings: dict[bytes, bytes] | None = None,
) -> bytes:
    """The output of a git command; `own` is the repository that it uses instead of the one around it.

    settings: its variables `GIT_…`, instead of those of the environment. Raises NoTree.
    """
    env = dict(environment.environb)
    if own is not None or settings is not None:
        env = {name: value for name, value in env.items() if not name.startswith(b"GIT_")}
        env.update(settings or {})
    if own is not None:
        env[b"GIT_DIR"] = files.fsencode(os.path.abspath(own))
        env[b"GIT_WORK_TREE"] = files.fsencode(cwd or b".")
    env.update({b"GIT_OPTIONAL_LOCKS": b"0", b"GIT_TERMINAL_PROMPT": b"0", b"LC_ALL": b"C"})
    try:
        # A session of its own: Ctrl-C stops the effect, not the record of what it did.
        child = processes.Popen(
            ("git", *words),
            stdin=processes.PIPE if given else processes.DEVNULL,
            stdout=processes.PIPE,
            stderr=processes.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise NoTree("git is not installed") from None
    except (OSError, ValueError) as error:
        raise NoTree(f"git cannot be started: {error}") from None
    try:
        output, errors = child.communicate(given, timeout=TIMEOUT)
    except processes.TimeoutExpired:
        child.kill()
        child.communicate()
        raise NoTree(f"`git {words[-1]}` took longer than {TIMEOUT:.0f} s") from None
    if child.returncode:
        told = errors.decode("utf-8", "replace").strip().splitlines() or [f"exit code {child.returncode}"]
        raise NoTree(f"git: {told[0][:300]}")
    return bytes(output)
