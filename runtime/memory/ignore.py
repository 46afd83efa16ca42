"""Listing of a project's readable files that git does not ignore.

In a repository, git lists the files. Without a repository, or if git fails, the folders are walked and the
same ignore files are applied with `pathspec`. Links are never followed, so no file outside the project is
read. Paths are bytes, because a file name need not be valid text.
"""

from __future__ import annotations

import os.path
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from ...ir.regex import load_re2
from ..host import environment, files, processes
from ..host.secret_files import is_secret

MAX_FILES = 100_000
MAX_FILE_BYTES = 1 << 20
# Maximum length of a pattern, in characters; longer than any path.
_MAX_PATTERN = 8 << 10
# Encoding with one character per byte, because names and patterns are bytes to git.
_BYTES = "latin-1"
# Patterns compiled together; the regular expression engine cannot handle more than some thousands.
_PATTERNS_PER_SPEC = 500
# Stars of a pattern without RE2, because each star multiplies the time by the length of the path.
_MAX_STARS = 4
# Seconds between two checks for an interrupt.
_CHECK_INTERVAL = 0.1

# Folders of llc, which contain no text of the project.
_EXCLUDED_FOLDERS = (b".loops/.cache/", b".loops/.running/", b".loops/.history/")


class Entry(NamedTuple):
    """A file to index: its path from the project's root, and the facts that detect a change."""

    path: bytes
    size: int
    mtime_ns: int
    inode: int


class Listing(NamedTuple):
    """The files, sorted by path. left_out: (path, reason) of each excluded file. by: `git` or `folders`."""

    entries: list[Entry]
    left_out: list[tuple[bytes, str]]
    by: str


def list_files(root: str, check: Callable[[], object]) -> Listing:
    """List the project's files. check: called regularly; may raise to stop. Raises OSError for the root."""
    base = files.fsencode(root) if root else environment.getcwdb()  # raises if the folder was removed
    by = "git"
    paths: Iterable[bytes] | None = _git_paths(base, check)
    if paths is None:
        paths, by = _walk(base, check), "folders"
    folders = _FolderCheck(base)
    found: dict[bytes, Entry | str] = {}
    todo = [paths]
    while todo:
        for path in todo.pop():
            check()
            entry = None if path in found or _is_excluded(path) else _examine(base, path, folders)
            if entry == "folder":
                # An inner repository, which git lists as one name.
                inner = os.path.join(base, path)
                if by == "git" and files.lexists(os.path.join(inner, b".git")):
                    todo.append([os.path.join(path, name) for name in _git_paths(inner, check) or ()])
            elif entry is not None:
                found[path] = entry
    entries: list[Entry] = []
    left_out: list[tuple[bytes, str]] = []
    for path, entry in sorted(found.items(), key=itemgetter(0)):
        if isinstance(entry, str):
            left_out.append((path, entry))
        elif len(entries) >= MAX_FILES:
            left_out.append((path, "too-many"))
        else:
            entries.append(entry)
    return Listing(entries, left_out, by)


def _examine(base: bytes, path: bytes, folders: _FolderCheck) -> Entry | str | None:
    """The entry for a path, the reason for its exclusion, `folder`, or None if it does not exist."""
    if not folders.is_inside(path.rpartition(b"/")[0]):
        return "link"
    try:
        state = files.lstat(base + b"/" + path)
    except OSError as error:
        return None if isinstance(error, FileNotFoundError | NotADirectoryError) else "unreadable"
    mode = state.st_mode
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    if not stat.S_ISREG(mode):
        return "special"
    if is_secret(path):
        return "secret"
    if state.st_size > MAX_FILE_BYTES:
        return "large"
    return Entry(path, state.st_size, state.st_mtime_ns, state.st_ino)


class _FolderCheck:
    """Checks that folders are inside the project and are not reached through a link; caches the results."""

    def __init__(self, base: bytes) -> None:
        self._base = base
        self._known: dict[bytes, bool] = {b"": True}

    def is_inside(self, folder: bytes) -> bool:
        known = self._known.get(folder)
        if known is None:
            known = self.is_inside(os.path.dirname(folder)) and self._is_folder(folder)
            self._known[folder] = known
        return known

    def _is_folder(self, folder: bytes) -> bool:
        try:
            return not stat.S_ISLNK(files.lstat(os.path.join(self._base, folder)).st_mode)
        except OSError:
            return True  # the folder is gone, which examining the file reports


def read_entry(root: str, path: bytes) -> bytes | None:
    """A file's content, at most `MAX_FILE_BYTES` + 1 bytes; None if it cannot be read any more."""
    base = files.fsencode(root or ".")
    if not _FolderCheck(base).is_inside(os.path.dirname(path)):
        return None
    try:
        fd = files.open_handle(os.path.join(base, path), files.O_RDONLY | files.O_NOFOLLOW | files.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(files.fstat(fd).st_mode):
            return None
        chunks = []
        remaining = MAX_FILE_BYTES + 1
        while remaining and (chunk := files.read(fd, remaining)):
            chunks.append(chunk)
            remaining -= len(chunk)
        return b"".join(chunks)
    except OSError:
        return None
    finally:
        files.close(fd)


# --- listing by git ---------------------------------------------------------------------------


def _git_paths(base: bytes, check: Callable[[], object]) -> list[bytes] | None:
    """The paths that git lists below `base`; None without git or a repository, or if git fails."""
    listed = _git(base, check, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        return None
    if not listed and _git(base, check, "check-ignore", "-q", ".") is not None:
        return None  # an outer repository ignores the project's folder
    return [path.rstrip(b"/") for path in listed.split(b"\0") if path]


def _git(base: bytes, check: Callable[[], object], *words: str) -> bytes | None:
    """The output of a git command; None if it fails."""
    program = environment.which("git")
    if program is None:
        return None
    # The repository's configuration must not start programs. Variables of a git hook name another repository.
    env = {name: value for name, value in environment.environb.items() if not name.startswith(b"GIT_")}
    for name in (b"GIT_CONFIG_GLOBAL", b"GIT_CONFIG_SYSTEM", b"GIT_CONFIG_NOSYSTEM"):
        if name in environment.environb:
            env[name] = environment.environb[name]
    env |= {b"GIT_OPTIONAL_LOCKS": b"0", b"LC_ALL": b"C"}
    command = [program, "-c", "core.fsmonitor=false", *words]
    try:
        process = processes.Popen(
            command, cwd=base, env=env, stdin=processes.DEVNULL, stdout=processes.PIPE,
            stderr=processes.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None
    with process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_CHECK_INTERVAL)
                    break
                except processes.TimeoutExpired:
                    check()
        except BaseException:
            process.kill()
            raise
    return output if process.returncode == 0 else None


# --- listing by walking the folders -----------------------------------------------------------


def _walk(base: bytes, check: Callable[[], object]) -> Iterator[bytes]:
    """Yield the files below `base` that no ignore file excludes."""
    files.stat(base)
    specs = {b"": _specs_of_user(base)}
    todo = [b""]
    while todo:
        folder = todo.pop()
        check()
        try:
            with files.scandir(os.path.join(base, folder)) as iterator:
                items = sorted(iterator, key=lambda item: item.name)
        except OSError:
            continue
        own = list(specs.pop(folder))
        own += [(folder, spec) for spec in _specs(os.path.join(base, folder, b".gitignore"))]
        for item in items:
            path = os.path.join(folder, item.name)
            if _is_excluded(path):
                continue
            is_folder = item.is_dir(follow_symlinks=False)
            if _is_ignored(path, is_folder, own):
                continue
            if is_folder:
                todo.append(path)
                specs[path] = own
            else:
                yield path


def _is_excluded(path: bytes) -> bool:
    return (path.endswith(b".git") and path[-5:-4] in (b"", b"/")) or path.startswith(_EXCLUDED_FOLDERS)


def _is_ignored(path: bytes, is_folder: bool, specs: list[tuple[bytes, Any]]) -> bool:
    """Whether a path is ignored: the nearest ignore file with a matching pattern decides."""
    for folder, spec in reversed(specs):
        relative = (path[len(folder) + 1 :] if folder else path).decode(_BYTES)
        decision = spec.check_file(relative + "/" if is_folder else relative).include
        if decision is not None:
            return bool(decision)
    return False


def _specs_of_user(base: bytes) -> list[tuple[bytes, Any]]:
    """The ignore files outside the project's folders: the user's, and the repository's `info/exclude`."""
    home = os.path.expanduser("~")
    config = environment.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    users = os.path.join(config, "git", "ignore")
    for path in (os.path.join(home, ".gitconfig"), os.path.join(config, "git", "config")):
        users = _excludes_file(path) or users
    found = [*_specs(files.fsencode(users)), *_specs(os.path.join(base, b".git", b"info", b"exclude"))]
    return [(b"", spec) for spec in found]


def _excludes_file(path: str) -> str | None:
    """The value of `core.excludesFile` in a configuration file of git; None if it is not set."""
    try:
        with files.open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(MAX_FILE_BYTES)
    except (OSError, ValueError):
        return None
    value_path = None
    for section in re.finditer(r"^\s*\[core\]([^\[]*)", text, re.IGNORECASE | re.MULTILINE):
        for value in re.finditer(
            r'^\s*excludesfile\s*=\s*"?([^"\n]*)', section[1], re.IGNORECASE | re.MULTILINE
        ):
            value_path = os.path.expanduser(value[1].strip())
    return value_path


def _specs(path: bytes) -> list[Any]:
    """The patterns of an ignore file as several specs; the last spec that matches a path decides."""
    try:
        with files.open(path, "rb") as file:
            lines = file.read(MAX_FILE_BYTES).decode(_BYTES).split("\n")
    except (OSError, ValueError):
        return []
    specs = []
    for start in range(0, len(lines), _PATTERNS_PER_SPEC):
        batch = [line for line in lines[start : start + _PATTERNS_PER_SPEC] if len(line) <= _MAX_PATTERN]
        spec = _compile(batch)
        if spec is None:  # git ignores an invalid pattern
            spec = _compile([line for line in batch if _compile([line]) is not None])
        specs.append(spec)
    return [spec for spec in specs if spec is not None]


def _compile(lines: list[str]) -> Any:
    """Compile patterns; None if one of them is invalid."""
    import warnings

    from pathspec import GitIgnoreSpec

    # Prefer RE2, whose matching time is linear for every pattern.
    backend: Literal["re2", "simple"] = "re2"
    invalid: type[Exception] = re.error
    re2 = load_re2()
    if re2 is not None:
        invalid = re2.error
    else:
        backend = "simple"
        lines = [bounded for line in lines if (bounded := _bounded(line)) is not None]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # an unusual pattern may be intended
            return GitIgnoreSpec.from_lines(lines, backend=backend)
    except (ValueError, re.error, invalid):
        return None


def _bounded(line: str) -> str | None:
    """A pattern truncated after `_MAX_STARS` stars, so that it ignores more; None for a longer exception."""
    parts = line.split("*")
    if len(parts) - 1 <= _MAX_STARS:
        return line
    return None if line.startswith("!") else "*".join(parts[:_MAX_STARS]) + "*"
