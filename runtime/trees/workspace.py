"""Workspaces: the files that a run of a cluster works on, in a checkout that any worker can make.

A workspace is a commit of a repository that all machines reach, and what was changed since. A snapshot is a
commit of all files that are not ignored; its parent is HEAD. The database stores snapshots as packs of
git, in documents `workspace/<number>.pack`: the first one is what the user had changed, each other one is
stored before the result of the effect that made it. A worker restores the newest snapshot whose effect has
a result, so that an effect in doubt is performed again on the files that it began with.
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
# Where results are: `<this><run>` in the repository.
BRANCH = "llc/"
# Bytes of one pack at most, and packs after which one is stored that does not need those before it.
_MOST_BYTES = 512 << 20
_MOST_PACKS = 32
_SETTINGS = {
    **{b"GIT_%s_NAME" % who: b"llc" for who in (b"AUTHOR", b"COMMITTER")},
    **{b"GIT_%s_EMAIL" % who: b"llc@localhost" for who in (b"AUTHOR", b"COMMITTER")},
}
_SAFE = ("-c", f"core.hooksPath={files.devnull}", "-c", "gc.auto=0", "-c", "advice.addEmbeddedRepo=false")
# An address: `https://…`, `file://…` or `user@host:path`; other texts are paths.
_URL = re.compile(r"[a-z+]+://|[^/:]+:")
_HEADS = "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"


class _Snapshot(NamedTuple):
    """A state of the files. seq: the effect that made it, or 0. is_full: no other pack is needed."""

    seq: int
    head: str
    commit: str
    tree: str
    is_full: bool


def submit(run: DatabaseRun, repo: str, ref: str, folder: str) -> None:
    """Store the workspace of a new run. Raises UserError.

    repo: address or path of the repository, "" for the remote `origin` of the one around `folder`. ref:
    branch, tag or commit to work on; "" for HEAD with all files as they are now, committed or not.
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
    """The commits of a repository by the names of its branches and tags. Raises NoTree."""
    listed = git((*_SAFE, "ls-remote", "--", repo, "refs/heads/*", "refs/tags/*"), settings={})
    pairs = (line.split("\t", 1) for line in listed.decode("utf-8", "replace").splitlines())
    return {name: id for id, name in pairs}


def _commit_of(ref: str, tips: dict[str, str], repo: str) -> str:
    """The commit that a branch, a tag or an id names. Raises NoTree."""
    for name in (ref, f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"):
        if name in tips:
            return tips[name]
    if _is_id(ref):
        return ref
    raise NoTree(f"{_shown(repo)} has neither a branch nor a tag `{clean(ref, 80)}`")


def _take_user(run: DatabaseRun, top: str, known: list[str]) -> tuple[_Snapshot, list[str], bytes]:
    """A snapshot of the user's files, whose repository is only read; the commits that its pack needs.

    known: ids of commits that workers can fetch. Raises NoTree.
    """
    own, index = run.place("workspace-objects"), run.place("workspace-index")
    places = [os.path.join(top, _ask(top, "rev-parse", "--git-path", name)) for name in ("objects", "index")]
    settings = {
        **_SETTINGS,
        b"GIT_OBJECT_DIRECTORY": files.fsencode(own),
        b"GIT_ALTERNATE_OBJECT_DIRECTORIES": files.fsencode(places[0]),
        b"GIT_INDEX_FILE": files.fsencode(index),
    }
    files.makedirs(own, exist_ok=True)
    try:
        with contextlib.suppress(FileNotFoundError):
            files.copy2(places[1], index)  # with its times: unchanged files are not read
        snapshot = _take(top, settings, 0)._replace(is_full=True)
        found = git(("cat-file", "--batch-check"), cwd=top, settings=settings, given=_lines(known))
        there = [line.split()[0].decode() for line in found.splitlines() if not line.endswith(b" missing")]
        given = _lines([snapshot.commit, *(f"^{id}" for id in there)])
        listed = git(("rev-list", "--boundary", "--stdin"), cwd=top, settings=settings, given=given)
        needs = [line[1:].decode() for line in listed.splitlines() if line.startswith(b"-")]
        return snapshot, needs, _pack(top, settings, snapshot.commit, needs)
    finally:
        files.rmtree(own, ignore_errors=True)
        with contextlib.suppress(OSError):
            files.unlink(index)


def of_fork(run: DatabaseRun, done: Iterable[int]) -> list[tuple[str, bytes]]:
    """The documents of the workspace of a fork of `run`: its files after the effects `done`.

    None if it has no workspace. Raises UserError.
    """
    facts = run.get(WORKSPACE)
    if facts is None:
        return []
    try:
        packs, shared = _stored(run), {0, *done}
        last = max(number for number, (one, _) in packs.items() if one.seq in shared)
        if last == 0 and packs.keys() > {0} and 1 not in packs:
            raise Failure(
                "bad-workspace", f"the files of {run.id} at this point are not kept", "fork it later"
            )
        kept = {name: json.loads(facts)[name] for name in ("repo", "ref", "needs", "prefix")}
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(run, error) from None
    chosen = [(_name(number), _packed(*packs[number])) for number in sorted(packs) if number <= last]
    return [(WORKSPACE, json.dumps(kept).encode()), *chosen]


def _stored(run: DatabaseRun) -> dict[int, tuple[_Snapshot, bytes]]:
    """The snapshots of a run by their numbers, with their packs. Raises ValueError, TypeError."""
    found = {}
    for name, data in run.documents(PACKS):
        head, _, pack = data.partition(b"\n")
        snapshot = _Snapshot(**json.loads(head))
        if not _is_id(snapshot.head) or not _is_id(snapshot.commit):
            raise ValueError("the id of a commit")
        found[int(name[len(PACKS) : -len(_SUFFIX)])] = snapshot, pack
    return found


def _damaged(run: DatabaseRun, error: Exception) -> UserError:
    return UserError(
        "bad-workspace",
        f"the record of the workspace of {run.id} is damaged: {clean(str(error), 200)}",
    )


class Workspace:
    """The checkout of one run on this worker.

    cache: folder with copies of repositories, for all workers that have it. path: of the checkout. folder: in
    it, where the run is performed.
    """

    def __init__(self, run: DatabaseRun, cache: str, path: str) -> None:
        """Make it, with the newest files on record. Raises UserError."""
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
                f"check that this machine reaches {_shown(str(self._facts.get('repo')))}",
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(run, error) from None

    def _check_out(self, cache: str) -> None:
        packs = _stored(self._run)
        done = {0, *run_history.load(self._run.journal).order}
        self._number = max(number for number, (one, _) in packs.items() if one.seq in done)
        self._first, self._last = packs[0][0], packs[self._number][0]
        mirror = self._mirror(cache)
        if not files.exists(os.path.join(self._path, ".git")):
            files.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            git((*_SAFE, "clone", "-q", "--shared", "--no-checkout", mirror, self._path), settings={})
            self._git("remote", "set-url", "origin", self._facts["repo"])
            with files.open(os.path.join(self._path, ".git/info/exclude"), "a") as file:
                file.write(f"/{self._facts['prefix']}.loops/.*\n")
        begin = max(number for number, (one, _) in packs.items() if one.is_full and number <= self._number)
        for number in sorted({0, *range(begin, self._number + 1)}):
            if packs[number][1]:
                self._git("index-pack", "--stdin", "--fix-thin", given=packs[number][1])
        head, commit = self._last.head, self._last.commit
        self._git("checkout", "-q", "-f", "-B", BRANCH + self._run.id, head)
        self._git("read-tree", "-u", "--reset", commit)
        self._git("clean", "-q", "-f", "-d")
        self._git("read-tree", head)

    def _mirror(self, cache: str) -> str:
        """The copy of the repository on this machine, with the commits that the packs need. Raises NoTree."""
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
            found = git(("cat-file", "--batch-check"), path, given=_lines(needs)) if needs else b""
            if b" missing" in found or not needs:
                git((*_SAFE, "fetch", "-q", "--force", "--", repo, *_HEADS), path)
        return path

    def save(self, seq: int) -> None:
        """Store the files as the effect `seq` has left them. Raises UserError and JournalError."""
        try:
            snapshot = _take(self._path, self._settings, seq)
            last = self._last
            if (snapshot.tree, snapshot.head) == (last.tree, last.head):
                return
            if last.is_full and self._number > 1:
                self._run.commit()  # the result that it belongs to; then no older one is needed
                self._run.drop([_name(number) for number in range(1, self._number)])
            self._number += 1
            is_full = self._number % _MOST_PACKS == 0
            known = self._facts["needs"] + ([] if is_full else [last.commit])
            pack = _pack(self._path, self._settings, snapshot.commit, known)
        except NoTree as error:
            raise Failure("bad-workspace", f"the files of {self._run.id} cannot be stored: {error}") from None
        self._last = snapshot._replace(is_full=is_full)
        self._run.put(_name(self._number), _packed(self._last, pack))

    def finish(self, status: str) -> None:
        """Push the files as a branch if the run has changed any. A refusal is kept in the document.

        Raises JournalError.
        """
        try:
            now = _take(self._path, self._settings, 0)
            first = self._first
            if now.head == first.head and now.tree == (first.tree or self._tree(first.commit)):
                return
            commit = now.head
            if now.tree != self._tree(now.head):
                message = f"llc: {self._run.id}: {status}"
                commit = self._git("commit-tree", now.tree, "-p", now.head, "-m", message).decode().strip()
            branch = BRANCH + self._run.id
            self._git("push", "-q", "--force", "--", self._facts["repo"], f"{commit}:refs/heads/{branch}")
            self._facts |= {"branch": branch, "result": commit}
        except NoTree as error:
            self._facts["error"] = str(error)
        self._run.put(WORKSPACE, json.dumps(self._facts).encode())

    @property
    def outcome(self) -> str:
        """What came of the result, for people; "" if there was nothing to return."""
        if "error" in self._facts:
            return f"its files were not returned: {self._facts['error']}"
        return f"its files are in the branch {self._facts['branch']}" if "branch" in self._facts else ""

    @property
    def _settings(self) -> dict[bytes, bytes]:
        return {**_SETTINGS, b"GIT_INDEX_FILE": files.fsencode(os.path.join(self._path, ".git/llc-index"))}

    def _tree(self, commit: str) -> str:
        return self._git("rev-parse", f"{commit}^{{tree}}").decode().strip()

    def _git(self, *words: str, given: bytes = b"") -> bytes:
        return git((*_SAFE, *words), cwd=self._path, given=given, settings=_SETTINGS)


def _take(top: str, settings: dict[bytes, bytes], seq: int) -> _Snapshot:
    """A snapshot of the files in a repository, with the index that the settings name. Raises NoTree."""

    def ask(*words: str) -> str:
        return git((*_SAFE, *words), cwd=top, settings=settings).decode().strip()

    with contextlib.suppress(NoTree):  # of a file that cannot be read; all others are added
        ask("add", "--all", "--ignore-errors")
    tree = ask("write-tree")
    head = ask("rev-parse", "--verify", "HEAD")
    return _Snapshot(seq, head, ask("commit-tree", tree, "-p", head, "-m", "llc"), tree, False)


def _pack(top: str, settings: dict[bytes, bytes], commit: str, known: list[str]) -> bytes:
    """The objects of a commit that others lack. Raises NoTree."""
    given = _lines([commit, *(f"^{id}" for id in known)])
    words = "pack-objects", "--revs", "--thin", "--stdout", "-q"
    pack = git((*_SAFE, *words), cwd=top, settings=settings, given=given)
    if len(pack) > _MOST_BYTES:
        raise NoTree(f"the changed files have {len(pack) >> 20} MB, more than {_MOST_BYTES >> 20} MB")
    return pack


def _packed(snapshot: _Snapshot, pack: bytes) -> bytes:
    return json.dumps(snapshot._asdict()).encode() + b"\n" + pack


def _name(number: int) -> str:
    return f"{PACKS}{number:06}{_SUFFIX}"


def _ask(folder: str, *words: str) -> str:
    return git(words, cwd=folder, settings={}).decode("utf-8", "surrogateescape").rstrip("\n")


def _lines(words: list[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def _shown(repo: str) -> str:
    """The address of a repository for people."""
    password = password_in(repo)
    return clean(repo.replace(password, MASK) if password else repo, 200)


def _is_id(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", text) is not None
