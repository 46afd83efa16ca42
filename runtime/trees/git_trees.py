"""Trees of a run as git objects, in a private repository in the run's folder.

The user's repository is only read: its objects are an alternate of the private repository, and its index is
copied once so that unchanged files are not read. Index, refs, stash, HEAD and configuration of the user are
never written. Only plumbing commands run, without hooks, filters and file system monitors, so no program that
the project names is started.

New objects are stored in the run's folder. The user's objects that a comparison of two trees needs are copied
there, so that neither `git gc` nor a rewritten history loses them.
"""

from __future__ import annotations

import contextlib
import os.path

from ..host import environment, files, processes
from ..host.errors import reason
from ..host.paths import open_regular
from .guard import Difference
from .tree import GIT, MAX_TREE_BYTES, Change, Links, NoTree, Tree, look, placeholder, text_of

# Seconds for one git command.
TIMEOUT = 120.0
# Attempts to take a tree while files change.
_MAX_ATTEMPTS = 3
# Settings of the user's repository that affect the recorded bytes of a file.
_SETTINGS = (
    *("core.autocrlf", "core.eol", "core.excludesfile", "core.filemode", "core.ignorecase"),
    *("core.precomposeunicode", "core.sparsecheckout", "core.sparsecheckoutcone", "core.symlinks"),
)
# Arguments of `rev-parse` that print the paths of the user's repository, in this order.
_REV_PARSE_PATHS = (
    *("--show-toplevel", "--show-object-format", "--git-path", "objects", "--git-path", "index"),
    *("--git-path", "info/exclude", "--git-path", "info/sparse-checkout"),
)
# Options that prevent git from running programs that the project or the user configures.
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={files.devnull}", "-c", "core.safecrlf=false"),
    *("-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "core.quotePath=false"),
    *("-c", "gc.auto=0", "-c", "core.bigFileThreshold=16m", "-c", "core.looseCompression=1"),
)
_ATTRIBUTES = "* -filter -ident -working-tree-encoding\n"
_DELETED_ENTRY = b"0 %s\t%s\0"


class _Changing(NoTree):
    """A file changed while it was read."""


class GitTrees:
    """The trees of one run. path: the run's private repository. worktree: folder of the user's files."""

    def __init__(self, path: str, worktree: bytes, null_id: bytes = b"") -> None:
        self.path = path
        self.worktree = worktree
        self._null_id = null_id
        self._last: bytes | None = None
        # Paths without content. A path stays in this set, so that two trees differ only if their files
        # differ.
        self._without_content: set[bytes] = set()

    @classmethod
    def create(cls, path: str, folder: str) -> GitTrees:
        """Open or create the repository at `path` for the user's repository of `folder`. Raises NoTree."""
        lines = git(("rev-parse", *_REV_PARSE_PATHS), cwd=folder or None).split(b"\n")
        if len(lines) != 7:
            raise NoTree("the path of the repository has a line break")
        base = files.fsencode(os.path.abspath(folder))
        worktree, hash_name, *paths = (os.path.join(base, name) if name else name for name in lines[:6])
        hash_name = os.path.basename(hash_name)
        trees = cls(path, worktree, b"0" * (40 if hash_name == b"sha1" else 64))
        if not files.exists(os.path.join(path, "HEAD")):
            try:
                trees._initialise(hash_name, paths, folder)
            except OSError as error:
                raise NoTree(f"cannot write {path}: {reason(error)}") from None
        return trees

    def _initialise(self, hash_name: bytes, paths: list[bytes], folder: str) -> None:
        objects, index, exclude, sparse = paths
        for name in ("objects/info", "objects/pack", "refs", "info"):
            files.makedirs(os.path.join(self.path, name), mode=0o700, exist_ok=True)
        lines = ["[core]", f"\trepositoryformatversion = {int(hash_name != b'sha1')}", "\tbare = false"]
        for name, value in _settings(folder).items():
            lines.append(f"\t{name.partition('.')[2]} = {_quoted(value)}")
        if hash_name != b"sha1":
            lines += ["[extensions]", f"\tobjectFormat = {hash_name.decode('ascii', 'replace')}"]
        self._write("config", "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n")
        self._write("info/attributes", _ATTRIBUTES.encode())
        self._write("objects/info/alternates", files.realpath(objects) + b"\n")
        for name, source in (("info/exclude", exclude), ("info/sparse-checkout", sparse), ("index", index)):
            with contextlib.suppress(FileNotFoundError):
                # With its modification time, which git compares with those of the files.
                files.copy2(source, os.path.join(files.fsencode(self.path), name.encode()))
        # HEAD is written last: a repository without it is initialised again.
        self._write("HEAD", b"ref: refs/heads/none\n")
        if self._fails("ls-files", "-z", "--", ":(top)none"):
            self._rebuild_index(folder)

    def _rebuild_index(self, folder: str) -> None:
        """Create the index from HEAD, because the user's index is damaged or split."""
        with contextlib.suppress(OSError):
            files.unlink(os.path.join(self.path, "index"))
        tree = tree_of_head(folder)
        if tree is not None:
            with contextlib.suppress(NoTree):
                self._git("read-tree", tree)

    def _write(self, name: str, content: bytes) -> None:
        with files.open(os.path.join(self.path, name), "wb") as file:
            file.write(content)

    # --- taking trees -----------------------------------------------------------------------------

    def take(self) -> Tree:
        """Record the current files as a tree. Raises NoTree."""
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            try:
                is_changed, left_out = self._update()
                break
            except _Changing:
                if not attempts_left:
                    raise
        last = self._last or self._saved()
        tree = last if last and not is_changed else self._git("write-tree", "--missing-ok").strip()
        self._last = tree
        changes = None
        if last is not None:
            changes = self._copy_objects(last, tree) if last != tree else ()
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
        """Update the private index; return whether it may have changed, and the files without content."""
        listed = self._git("ls-files", "-z", "--others", "--modified", "--exclude-standard")
        links = Links(self.worktree)
        remaining_bytes = MAX_TREE_BYTES
        read: list[bytes] = []
        placeholders: list[tuple[bytes, bytes]] = []
        gone: list[bytes] = []
        left_out: list[tuple[str, str]] = []
        for path in dict.fromkeys(listed.split(b"\0")):
            if not path:
                continue
            full_path = os.path.join(self.worktree, path)
            kind, size, mtime_ns = ("gone", 0, 0) if links.lead_to(path) else look(full_path)
            if kind == "gone":
                gone.append(path)
            elif path.endswith(b"/"):
                left_out.append((text_of(path), "repository"))
            elif kind == "folder":
                (read if files.lexists(os.path.join(full_path, b".git")) else gone).append(path)
            elif kind == "file" and (path in self._without_content or size > remaining_bytes):
                self._without_content.add(path)
                left_out.append((text_of(path), "much"))
                placeholders.append((path, placeholder("further", size, mtime_ns)))
            elif kind in ("file", "link"):
                remaining_bytes -= size
                read.append(path)
            elif kind == "special":
                gone.append(path)
            else:
                left_out.append((text_of(path), kind))
                placeholders.append((path, placeholder(kind, size, mtime_ns)))
        self._set_entries(gone, placeholders)
        if read:
            paths = b"".join(path + b"\0" for path in read)
            try:
                self._git("update-index", "-z", "--add", "--remove", "--replace", "--stdin", stdin=paths)
            except NoTree as error:
                raise _Changing(*error.args) from None
        return bool(gone or placeholders or read), left_out

    def _set_entries(self, gone: list[bytes], placeholders: list[tuple[bytes, bytes]]) -> None:
        """Remove entries of the index, and set the entries of files whose content is not recorded.

        placeholders: path and content of each placeholder.
        """
        if not gone and not placeholders:
            return
        ids: list[bytes] = []
        if placeholders:
            temporary = [os.path.join(self.path, f"placeholder-{i}") for i in range(len(placeholders))]
            for path, (_, content) in zip(temporary, placeholders, strict=True):
                self._write(os.path.basename(path), content)
            names = "".join(os.path.abspath(path) + "\n" for path in temporary)
            paths = names.encode("utf-8", "surrogateescape")
            ids = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=paths).split()
            for path in temporary:
                files.unlink(path)
        lines = [_DELETED_ENTRY % (self._null_id, name) for name in gone]
        # An entry is removed before it is set, because the index may have a folder with its name.
        for (name, _), id in zip(placeholders, ids, strict=True):
            lines.append(_DELETED_ENTRY % (self._null_id, name))
            lines.append(b"100644 %s\t%s\0" % (id, name))
        self._git("update-index", "-z", "--index-info", stdin=b"".join(lines))

    def _copy_objects(self, old: bytes, new: bytes) -> tuple[Change, ...]:
        """Copy the objects that a comparison of two trees needs to this repository; return the changes."""
        needed, changes = self._compare(old, new)
        foreign = sorted(id for id in needed if not self._has(id.decode()))
        if foreign:
            with contextlib.suppress(NoTree):  # a partial clone lacks objects
                pack = os.path.abspath(os.path.join(self.path, "objects", "pack", "pack"))
                self._git("pack-objects", "-q", "--window=0", pack, stdin=b"\n".join(foreign) + b"\n")
        return changes

    def _compare(self, old: bytes, new: bytes) -> tuple[set[bytes], tuple[Change, ...]]:
        """The objects that a comparison of two trees needs, and the changed files."""
        raw = self._git("diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", old.decode(), new.decode())
        needed = {old, new}
        changes: list[Change] = []
        fields = raw.split(b"\0")
        for index in range(0, len(fields) - 1, 2):
            before, after, *ids, letter = fields[index].lstrip(b":").split()
            modes = (before, after)
            needed.update(
                id for mode, id in zip(modes, ids, strict=True) if mode != b"160000" and id.strip(b"0")
            )
            if b"040000" not in modes:
                changes.append(Change(letter.decode("ascii", "replace"), text_of(fields[index + 1])))
        return needed, tuple(changes)

    def excerpt(self, old: str, new: str) -> bytes:
        """The data that a comparison of two trees needs, for `add`. Raises NoTree."""
        needed, _ = self._compare(old.encode(), new.encode())
        return self._git("pack-objects", "-q", "--stdout", stdin=b"\n".join(sorted(needed)) + b"\n")

    def add(self, excerpt: bytes) -> None:
        """Add the objects of an excerpt. Raises NoTree."""
        self._git("index-pack", "--stdin", stdin=excerpt)

    def _has(self, id: str) -> bool:
        return files.exists(os.path.join(self.path, "objects", id[:2], id[2:]))

    # --- reading trees ----------------------------------------------------------------------------

    def diff(self, old: str, new: str, *options: str) -> bytes:
        """The output of `git diff` for two trees. Raises NoTree."""
        if not all(len(id) in (40, 64) and id.isalnum() for id in (old, new)):
            raise NoTree("the journal names a tree by an invalid id")
        if old == new:
            return b""
        return self._git("diff", "--no-ext-diff", "--no-textconv", "-M", *options, old, new, "--")

    @property
    def base(self) -> bytes:
        return self.worktree

    def between(self, old: str, new: str) -> list[Difference]:
        """The files that differ, with their mode and content id in the tree `old`. Raises NoTree."""
        raw = self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new).split(b"\0")
        differences = []
        for index in range(0, len(raw) - 1, 2):
            mode, _, id, _, letter = raw[index].lstrip(b":").decode("ascii", "replace").split()
            is_new = letter == "A"
            path = raw[index + 1]
            differences.append(Difference(letter, path, "" if is_new else mode, "" if is_new else id))
        return differences

    def content(self, id: str) -> bytes:
        """The recorded content with an id. Raises NoTree."""
        return self._git("cat-file", "blob", id)

    def _fails(self, *words: str) -> bool:
        try:
            self._git(*words)
        except NoTree:
            return True
        return False

    def _git(self, *words: str, stdin: bytes = b"") -> bytes:
        return git((*_SAFE, *words), self.path, self.worktree, stdin)


def current_tree(path: str, temporary: str, folder: str) -> tuple[GitTrees, str]:
    """Take a tree of the current files; return its id and a store with it and the trees at `path`.

    The store is in the folder `temporary`; the index of the run, which may be active, is not changed. Raises
    NoTree.
    """
    trees = GitTrees.create(temporary, folder)
    try:
        with files.open(os.path.join(temporary, "objects/info/alternates"), "ab") as file:
            file.write(files.fsencode(os.path.abspath(os.path.join(path, "objects"))) + b"\n")
    except OSError as error:
        raise NoTree(f"cannot write {temporary}: {reason(error)}") from None
    return trees, trees.take().id


def branches(folder: str = "") -> str:
    """The commits of HEAD and of all branches in the user's repository; "" without a repository."""
    try:
        listed = git(("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads"), cwd=folder or None)
        with contextlib.suppress(NoTree):  # no commit yet
            listed += git(("rev-parse", "--verify", "-q", "HEAD"), cwd=folder or None)
    except NoTree:
        return ""
    return listed.decode("utf-8", "replace")


def tree_of_head(folder: str = "") -> str | None:
    """The tree of the checked-out commit; None without a commit."""
    with contextlib.suppress(NoTree):
        return git(("rev-parse", "--verify", "-q", "HEAD^{tree}"), cwd=folder or None).decode().strip()
    return None


def make_empty(path: str, id: str) -> GitTrees:
    """Create an empty repository for excerpts. id: a tree id, which determines the hash. Raises NoTree."""
    hash_name = "sha1" if len(id) == 40 else "sha256"
    git((*_SAFE, "init", "-q", "--bare", "--template=", f"--object-format={hash_name}", path), settings={})
    return open_trees(path)


def open_trees(path: str) -> GitTrees:
    """Open the trees at `path` for reading. Raises NoTree."""
    if not files.exists(os.path.join(path, "HEAD")):
        raise NoTree("the run's trees do not exist any more")
    return GitTrees(path, files.fsencode(os.path.abspath(path)))


def _settings(folder: str) -> dict[str, str]:
    """The values of `_SETTINGS` in the user's repository."""
    values: dict[str, str] = {}
    for entry in git(("config", "--list", "-z"), cwd=folder or None).split(b"\0"):
        name, _, value = entry.decode("utf-8", "surrogateescape").partition("\n")
        if name in _SETTINGS:
            values[name] = value
    return values


def _quoted(value: str) -> str:
    """A value in the quoting of a git configuration file."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def git(
    words: tuple[str, ...],
    repository: str | None = None,
    cwd: str | bytes | None = None,
    stdin: bytes = b"",
    settings: dict[bytes, bytes] | None = None,
) -> bytes:
    """Run a git command and return its output. Raises NoTree.

    Args:
        words: arguments of git.
        repository: path of the repository; None for the repository of the working directory.
        cwd: working directory, and with `repository` the work tree; None for the current directory.
        stdin: standard input.
        settings: variables `GIT_…` that replace those of the environment; None to keep the environment's.
    """
    env = dict(environment.environb)
    if repository is not None or settings is not None:
        env = {name: value for name, value in env.items() if not name.startswith(b"GIT_")}
        env.update(settings or {})
    if repository is not None:
        env[b"GIT_DIR"] = files.fsencode(os.path.abspath(repository))
        env[b"GIT_WORK_TREE"] = files.fsencode(cwd or b".")
    env.update({b"GIT_OPTIONAL_LOCKS": b"0", b"GIT_TERMINAL_PROMPT": b"0", b"LC_ALL": b"C"})
    try:
        # In a new session, so that Ctrl-C stops the effect and not the recording of its changes.
        child = processes.Popen(
            ("git", *words),
            stdin=processes.PIPE if stdin else processes.DEVNULL,
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
        output, errors = child.communicate(stdin, timeout=TIMEOUT)
    except processes.TimeoutExpired:
        child.kill()
        child.communicate()
        raise NoTree(f"`git {words[-1]}` took longer than {TIMEOUT:.0f} s") from None
    if child.returncode:
        lines = errors.decode("utf-8", "replace").strip().splitlines() or [f"exit code {child.returncode}"]
        raise NoTree(f"git: {lines[0][:300]}")
    return bytes(output)
