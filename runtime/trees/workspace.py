"""Workspace of a run in a cluster: the files that the run works on, in a checkout that any worker can create.

A workspace consists of a commit of a repository that all machines can reach, and the changes since. A
snapshot is a commit of all files that are not ignored; its parent is HEAD. The database stores snapshots as
git packs in documents `workspace/<number>.pack`. The first pack contains the user's changes; each other pack
is stored before the result of the effect that made the changes. A worker restores the newest snapshot whose
effect has a result, so that an effect in doubt is repeated on the files with which it began.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os.path
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..database.stored_run import PACKS, WORKSPACE, DatabaseRun
from ..host import files
from ..host.errors import Failure, UserError, clean
from ..host.secrets import MASK, password_in
from ..journal import run_history
from .git_trees import git
from .tree import NoTree

_SUFFIX = ".pack"
# Prefix of the branch with the results of a run; the id of the run follows.
BRANCH_PREFIX = "llc/"
_MAX_PACK_BYTES = 512 << 20
# Every n-th pack is full: it does not need the previous packs.
_FULL_PACK_INTERVAL = 32
_SETTINGS = {
    **{b"GIT_%s_NAME" % who: b"llc" for who in (b"AUTHOR", b"COMMITTER")},
    **{b"GIT_%s_EMAIL" % who: b"llc@localhost" for who in (b"AUTHOR", b"COMMITTER")},
}
_SAFE = ("-c", f"core.hooksPath={files.devnull}", "-c", "gc.auto=0", "-c", "advice.addEmbeddedRepo=false")
# A URL `https://…`, `file://…` or `user@host:path`; other texts are paths.
_URL = re.compile(r"[a-z+]+://|[^/:]+:")
_HEADS = "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"


class _Snapshot(NamedTuple):
    """A snapshot of the files. seq: the effect that made the changes, or 0. is_full: needs no other pack."""

    seq: int
    head: str
    commit: str
    tree: str
    is_full: bool


def submit(run: DatabaseRun, repo: str, ref: str, folder: str) -> None:
    """Store the workspace of a new run. Raises UserError.

    repo: URL or path of the repository; "" for the remote `origin` of the repository of `folder`. ref:
    branch, tag or commit; "" for HEAD with all current files, committed or not.
    """
    try:
        top = _ask(folder or ".", "rev-parse", "--show-toplevel")
        prefix = _ask(folder or ".", "rev-parse", "--show-prefix")
        repo = repo or _ask(top, "remote", "get-url", "origin")
        if not _URL.match(repo):
            repo = files.realpath(os.path.join(folder, repo))
        tips = _tips(repo)
        if ref:
            commit = _commit_of(ref, tips, repo)
            needs, pack = [commit], b""
            snapshot = _Snapshot(0, commit, commit, "", True)
        else:
            snapshot, needs, pack = _take_user(run, top, list(tips.values()))
    except NoTree as error:
        raise Failure(
            "bad-workspace",
            f"the workspace cannot be submitted: {error}",
            "`workspace:` in `.loops/config.yaml` needs a git repository with a commit, and as `repo` an "
            "address that all workers reach",
        ) from None
    facts = {"repo": repo, "ref": ref, "needs": needs, "prefix": prefix}
    run.put(WORKSPACE, json.dumps(facts).encode())
    run.put(_name(0), _packed(snapshot, pack))


def _tips(repo: str) -> dict[str, str]:
    """The commits of a repository by branch and tag name. Raises NoTree."""
    listed = git((*_SAFE, "ls-remote", "--", repo, "refs/heads/*", "refs/tags/*"), settings={})
    pairs = (line.split("\t", 1) for line in listed.decode("utf-8", "replace").splitlines())
    return {name: id for id, name in pairs}


def _commit_of(ref: str, tips: dict[str, str], repo: str) -> str:
    """The commit of a branch, tag or id. Raises NoTree."""
    for name in (ref, f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"):
        if name in tips:
            return tips[name]
    if _is_id(ref):
        return ref
    raise NoTree(f"{_printable_url(repo)} has neither a branch nor a tag `{clean(ref, 80)}`")


def _take_user(run: DatabaseRun, top: str, known: list[str]) -> tuple[_Snapshot, list[str], bytes]:
    """Take a snapshot of the user's files; return it, the commits that its pack needs, and the pack.

    The user's repository is only read. known: commits that workers can fetch. Raises NoTree.
    """
    own, index = run.place("workspace-objects"), run.place("workspace-index")
    paths = [os.path.join(top, _ask(top, "rev-parse", "--git-path", name)) for name in ("objects", "index")]
    settings = {
        **_SETTINGS,
        b"GIT_OBJECT_DIRECTORY": files.fsencode(own),
        b"GIT_ALTERNATE_OBJECT_DIRECTORIES": files.fsencode(paths[0]),
        b"GIT_INDEX_FILE": files.fsencode(index),
    }
    files.makedirs(own, exist_ok=True)
    try:
        with contextlib.suppress(FileNotFoundError):
            files.copy2(paths[1], index)  # with its modification time, so that unchanged files are not read
        snapshot = _take(top, settings, 0)._replace(is_full=True)
        checked = git(("cat-file", "--batch-check"), cwd=top, settings=settings, stdin=_lines(known))
        local = [line.split()[0].decode() for line in checked.splitlines() if not line.endswith(b" missing")]
        revisions = _lines([snapshot.commit, *(f"^{id}" for id in local)])
        listed = git(("rev-list", "--boundary", "--stdin"), cwd=top, settings=settings, stdin=revisions)
        needs = [line[1:].decode() for line in listed.splitlines() if line.startswith(b"-")]
        return snapshot, needs, _pack(top, settings, snapshot.commit, needs)
    finally:
        files.rmtree(own, ignore_errors=True)
        with contextlib.suppress(OSError):
            files.unlink(index)


def of_fork(run: DatabaseRun, done: Iterable[int]) -> list[tuple[str, bytes]]:
    """The documents of the workspace of a fork of `run`: the files after the effects `done`.

    Empty if the run has no workspace. Raises UserError.
    """
    facts = run.get(WORKSPACE)
    if facts is None:
        return []
    try:
        packs, shared = _stored(run), {0, *done}
        last = max(number for number, (snapshot, _) in packs.items() if snapshot.seq in shared)
        if last == 0 and packs.keys() > {0} and 1 not in packs:
            raise Failure(
                "bad-workspace",
                f"the files of {run.id} at this point are not stored any more",
                "fork at a later point",
            )
        copied = {name: json.loads(facts)[name] for name in ("repo", "ref", "needs", "prefix")}
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(run, error) from None
    chosen = [(_name(number), _packed(*packs[number])) for number in sorted(packs) if number <= last]
    return [(WORKSPACE, json.dumps(copied).encode()), *chosen]


def _stored(run: DatabaseRun) -> dict[int, tuple[_Snapshot, bytes]]:
    """The snapshots of a run with their packs, by number. Raises ValueError, TypeError."""
    snapshots = {}
    for name, data in run.documents(PACKS):
        head, _, pack = data.partition(b"\n")
        snapshot = _Snapshot(**json.loads(head))
        if not _is_id(snapshot.head) or not _is_id(snapshot.commit):
            raise ValueError("the id of a commit")
        snapshots[int(name[len(PACKS) : -len(_SUFFIX)])] = snapshot, pack
    return snapshots


def _damaged(run: DatabaseRun, error: Exception) -> UserError:
    return UserError(
        "bad-workspace", f"the record of the workspace of {run.id} is damaged: {clean(str(error), 200)}"
    )


class Workspace:
    """The checkout of one run on this worker.

    cache: folder with mirrors of repositories, which several workers can share. path: folder of the checkout.
    folder: working directory of the run, in the checkout.
    """

    def __init__(self, run: DatabaseRun, cache: str, path: str) -> None:
        """Create the checkout with the newest stored files. Raises UserError."""
        self._run = run
        self._path = path
        self._facts: dict[str, Any] = {}
        try:
            self._facts = json.loads(run.get(WORKSPACE) or b"")
            self._check_out(cache)
            self.folder = os.path.join(path, self._facts["prefix"])
        except (NoTree, OSError) as error:
            raise Failure(
                "bad-workspace",
                f"the workspace of {run.id} cannot be made here: {error}",
                f"check that this machine reaches {_printable_url(str(self._facts.get('repo')))}",
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(run, error) from None

    def _check_out(self, cache: str) -> None:
        packs = _stored(self._run)
        done = {0, *run_history.load(self._run.journal).order}
        self._number = max(number for number, (snapshot, _) in packs.items() if snapshot.seq in done)
        self._first, self._last = packs[0][0], packs[self._number][0]
        mirror = self._mirror(cache)
        if not files.exists(os.path.join(self._path, ".git")):
            files.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            git((*_SAFE, "clone", "-q", "--shared", "--no-checkout", mirror, self._path), settings={})
            self._git("remote", "set-url", "origin", self._facts["repo"])
            with files.open(os.path.join(self._path, ".git/info/exclude"), "a") as file:
                file.write(f"/{self._facts['prefix']}.loops/.*\n")
        first_needed = max(
            number for number, (snapshot, _) in packs.items() if snapshot.is_full and number <= self._number
        )
        for number in sorted({0, *range(first_needed, self._number + 1)}):
            if packs[number][1]:
                self._git("index-pack", "--stdin", "--fix-thin", stdin=packs[number][1])
        head, commit = self._last.head, self._last.commit
        self._git("checkout", "-q", "-f", "-B", BRANCH_PREFIX + self._run.id, head)
        self._git("read-tree", "-u", "--reset", commit)
        self._git("clean", "-q", "-f", "-d")
        self._git("read-tree", head)

    def _mirror(self, cache: str) -> str:
        """Path of this machine's mirror of the repository, with the commits of the packs. Raises NoTree."""
        repo, needs, prefix = (self._facts[name] for name in ("repo", "needs", "prefix"))
        if not isinstance(repo, str) or not all(map(_is_id, needs)):
            raise ValueError("the address of the repository")
        if os.path.isabs(prefix) or ".." in prefix.split("/"):
            raise ValueError("the folder of the project")
        path = os.path.join(cache, hashlib.sha256(repo.encode()).hexdigest()[:24] + ".git")
        files.makedirs(cache, mode=0o700, exist_ok=True)
        with files.open(f"{path}.lock", "a") as lock:
            files.flock(lock.fileno(), files.LOCK_EX)
            if not files.exists(os.path.join(path, "HEAD")):
                git((*_SAFE, "init", "-q", "--bare", path), settings={})
            checked = git(("cat-file", "--batch-check"), path, stdin=_lines(needs)) if needs else b""
            if b" missing" in checked or not needs:
                git((*_SAFE, "fetch", "-q", "--force", "--", repo, *_HEADS), path)
        return path

    def save(self, seq: int) -> None:
        """Store the files after the effect `seq`. Raises UserError and JournalError."""
        try:
            snapshot = _take(self._path, self._settings, seq)
            last = self._last
            if (snapshot.tree, snapshot.head) == (last.tree, last.head):
                return
            if last.is_full and self._number > 1:
                self._run.commit()  # the result of the full pack; afterwards no older pack is needed
                self._run.drop([_name(number) for number in range(1, self._number)])
            self._number += 1
            is_full = self._number % _FULL_PACK_INTERVAL == 0
            known = self._facts["needs"] + ([] if is_full else [last.commit])
            pack = _pack(self._path, self._settings, snapshot.commit, known)
        except NoTree as error:
            raise Failure("bad-workspace", f"the files of {self._run.id} cannot be stored: {error}") from None
        self._last = snapshot._replace(is_full=is_full)
        self._run.put(_name(self._number), _packed(self._last, pack))

    def finish(self, status: str) -> None:
        """Push the files as a branch if the run has changed any; store the branch or the error.

        Raises JournalError.
        """
        self._facts.pop("error", None)  # of an earlier attempt
        try:
            final = _take(self._path, self._settings, 0)
            first = self._first
            if final.head == first.head and final.tree == (first.tree or self._tree(first.commit)):
                return
            commit = final.head
            if final.tree != self._tree(final.head):
                message = f"llc: {self._run.id}: {status}"
                words = ("commit-tree", final.tree, "-p", final.head, "-m", message)
                commit = self._git(*words).decode().strip()
            branch = BRANCH_PREFIX + self._run.id
            self._git("push", "-q", "--force", "--", self._facts["repo"], f"{commit}:refs/heads/{branch}")
            self._facts |= {"branch": branch, "result": commit}
        except NoTree as error:
            self._facts["error"] = str(error)
        self._run.put(WORKSPACE, json.dumps(self._facts).encode())

    @property
    def outcome(self) -> str:
        """A message about the pushed files; "" if there was nothing to push."""
        if "error" in self._facts:
            return f"its files were not returned: {self._facts['error']}"
        return f"its files are in the branch {self._facts['branch']}" if "branch" in self._facts else ""

    @property
    def _settings(self) -> dict[bytes, bytes]:
        return {**_SETTINGS, b"GIT_INDEX_FILE": files.fsencode(os.path.join(self._path, ".git/llc-index"))}

    def _tree(self, commit: str) -> str:
        return self._git("rev-parse", f"{commit}^{{tree}}").decode().strip()

    def _git(self, *words: str, stdin: bytes = b"") -> bytes:
        return git((*_SAFE, *words), cwd=self._path, stdin=stdin, settings=_SETTINGS)


def _take(top: str, settings: dict[bytes, bytes], seq: int) -> _Snapshot:
    """Take a snapshot of the files in a repository. settings: name the index. Raises NoTree."""

    def ask(*words: str) -> str:
        return git((*_SAFE, *words), cwd=top, settings=settings).decode().strip()

    with contextlib.suppress(NoTree):  # a file cannot be read; all other files are added
        ask("add", "--all", "--ignore-errors")
    tree = ask("write-tree")
    head = ask("rev-parse", "--verify", "HEAD")
    return _Snapshot(seq, head, ask("commit-tree", tree, "-p", head, "-m", "llc"), tree, False)


def _pack(top: str, settings: dict[bytes, bytes], commit: str, known: list[str]) -> bytes:
    """A pack of a commit's objects without those of the commits `known`. Raises NoTree."""
    revisions = _lines([commit, *(f"^{id}" for id in known)])
    words = "pack-objects", "--revs", "--thin", "--stdout", "-q"
    pack = git((*_SAFE, *words), cwd=top, settings=settings, stdin=revisions)
    if len(pack) > _MAX_PACK_BYTES:
        raise NoTree(f"the changed files have {len(pack) >> 20} MB, more than {_MAX_PACK_BYTES >> 20} MB")
    return pack


def _packed(snapshot: _Snapshot, pack: bytes) -> bytes:
    return json.dumps(snapshot._asdict()).encode() + b"\n" + pack


def _name(number: int) -> str:
    return f"{PACKS}{number:06}{_SUFFIX}"


def _ask(folder: str, *words: str) -> str:
    return git(words, cwd=folder, settings={}).decode("utf-8", "surrogateescape").rstrip("\n")


def _lines(words: list[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def _printable_url(repo: str) -> str:
    """The URL of a repository with its password masked, for messages."""
    password = password_in(repo)
    return clean(repo.replace(password, MASK) if password else repo, 200)


def _is_id(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", text) is not None
