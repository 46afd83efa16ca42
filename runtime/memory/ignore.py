"""Listing of a project's readable files: those that git does not ignore.

In a repository, git lists them. Without one, or if git fails, the folders are walked and the same ignore
files are applied with `pathspec`. Links are never followed, so no file outside the project is read. Paths
are bytes, as in the system: a name may be anything.
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

MOST_FILES = 100_000
LARGEST_FILE = 1 << 20
# Longer than any path.
_LONGEST_PATTERN = 8 << 10
# A character for each byte: to git, names and patterns are bytes.
_BYTES = "latin-1"
# Patterns compiled together; the regular expression engine cannot handle more than some thousands.
_PORTION = 500
# Stars of a pattern where RE2 is not installed: each multiplies the time by the length of the path.
_MOST_STARS = 4
# Seconds between two checks for an interrupt.
_LOOK = 0.1

# Files of llc: no text of the project.
_NEVER = (b".loops/.cache/", b".loops/.running/", b".loops/.history/")


class Entry(NamedTuple):
    """A file to read: its path from the project's root, and the facts by which a change is detected."""

    path: bytes
    size: int
    mtime_ns: int
    inode: int


class Listing(NamedTuple):
    """The files, by path. left_out: (path, reason) of each excluded file. by: `git` or `folders`."""

    entries: list[Entry]
    left_out: list[tuple[bytes, str]]
    by: str


def list_files(root: str, check: Callable[[], object]) -> Listing:
    """The project's files. check: called regularly; may raise to stop. Raises OSError for the root."""
    base = files.fsencode(root) if root else environment.getcwdb()  # raises if the folder was removed
    by = "git"
    paths: Iterable[bytes] | None = _git_paths(base, check)
    if paths is None:
        paths, by = _walk(base, check), "folders"
    guard = _Guard(base)
    found: dict[bytes, Entry | str] = {}
    todo = [paths]
    while todo:
        for path in todo.pop():
            check()
            seen = None if path in found or _is_never(path) else _look(base, path, guard)
            if seen == "folder":
                # A repository in the repository, which git lists as one name.
                inner = os.path.join(base, path)
                if by == "git" and files.lexists(os.path.join(inner, b".git")):
                    todo.append([os.path.join(path, name) for name in _git_paths(inner, check) or ()])
            elif seen is not None:
                found[path] = seen
    entries: list[Entry] = []
    left_out: list[tuple[bytes, str]] = []
    for path, seen in sorted(found.items(), key=itemgetter(0)):
        if isinstance(seen, str):
            left_out.append((path, seen))
        elif len(entries) >= MOST_FILES:
            left_out.append((path, "too-many"))
        else:
            entries.append(seen)
    return Listing(entries, left_out, by)


def _look(base: bytes, path: bytes, guard: _Guard) -> Entry | str | None:
    """The entry for a path, the reason for its exclusion, `folder`, or None if it does not exist."""
    if not guard.is_inside(path.rpartition(b"/")[0]):
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
    if state.st_size > LARGEST_FILE:
        return "large"
    return Entry(path, state.st_size, state.st_mtime_ns, state.st_ino)


class _Guard:
    """Which folders are the project's own, none of them reached through a link."""

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
            return True  # it is gone: looking at the file will say so


def read_entry(root: str, path: bytes) -> bytes | None:
    """A file's bytes, at most one more than may be indexed; None where it cannot be read any more."""
    base = files.fsencode(root or ".")
    if not _Guard(base).is_inside(os.path.dirname(path)):
        return None
    try:
        fd = files.open_handle(os.path.join(base, path), files.O_RDONLY | files.O_NOFOLLOW | files.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(files.fstat(fd).st_mode):
            return None
        pieces = []
        room = LARGEST_FILE + 1
        while room and (piece := files.read(fd, room)):
            pieces.append(piece)
            room -= len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        files.close(fd)


# --- by git -----------------------------------------------------------------------------------


def _git_paths(base: bytes, check: Callable[[], object]) -> list[bytes] | None:
    """What git lists below `base`; None where there is no git, no repository, or it does not say."""
    listed = _git(base, check, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        return None
    if not listed and _git(base, check, "check-ignore", "-q", ".") is not None:
        return None  # a project in a folder that a repository around it ignores
    return [path.rstrip(b"/") for path in listed.split(b"\0") if path]


def _git(base: bytes, check: Callable[[], object], *words: str) -> bytes | None:
    """What a git command prints; None where it fails."""
    program = environment.which("git")
    if program is None:
        return None
    # A repository's own settings must not start programs, and variables of a hook mean another one.
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
                    output, _ = process.communicate(timeout=_LOOK)
                    break
                except processes.TimeoutExpired:
                    check()
        except BaseException:
            process.kill()
            raise
    return output if process.returncode == 0 else None


# --- by walking -------------------------------------------------------------------------------


def _walk(base: bytes, check: Callable[[], object]) -> Iterator[bytes]:
    """The files below `base` that the ignore files in it leave."""
    files.stat(base)
    specs = {b"": _specs_of_user(base)}
    todo = [b""]
    while todo:
        folder = todo.pop()
        check()
        try:
            with files.scandir(os.path.join(base, folder)) as found:
                items = sorted(found, key=lambda item: item.name)
        except OSError:
            continue
        own = list(specs.pop(folder))
        own += [(folder, spec) for spec in _specs(os.path.join(base, folder, b".gitignore"))]
        for item in items:
            path = os.path.join(folder, item.name)
            if _is_never(path):
                continue
            is_folder = item.is_dir(follow_symlinks=False)
            if _is_ignored(path, is_folder, own):
                continue
            if is_folder:
                todo.append(path)
                specs[path] = own
            else:
                yield path


def _is_never(path: bytes) -> bool:
    return (path.endswith(b".git") and path[-5:-4] in (b"", b"/")) or path.startswith(_NEVER)


def _is_ignored(path: bytes, is_folder: bool, specs: list[tuple[bytes, Any]]) -> bool:
    """What the nearest ignore file that says something of a path says."""
    for folder, spec in reversed(specs):
        below = (path[len(folder) + 1 :] if folder else path).decode(_BYTES)
        said = spec.check_file(below + "/" if is_folder else below).include
        if said is not None:
            return bool(said)
    return False


def _specs_of_user(base: bytes) -> list[tuple[bytes, Any]]:
    """The ignore files that stand in no folder of the project: the user's own, and the repository's."""
    home = os.path.expanduser("~")
    config = environment.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    users = os.path.join(config, "git", "ignore")
    for path in (os.path.join(home, ".gitconfig"), os.path.join(config, "git", "config")):
        users = _excludes_file(path) or users
    found = [*_specs(files.fsencode(users)), *_specs(os.path.join(base, b".git", b"info", b"exclude"))]
    return [(b"", spec) for spec in found]


def _excludes_file(path: str) -> str | None:
    """`core.excludesFile` of a file of git's settings."""
    try:
        with files.open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(LARGEST_FILE)
    except (OSError, ValueError):
        return None
    found = None
    for section in re.finditer(r"^\s*\[core\]([^\[]*)", text, re.IGNORECASE | re.MULTILINE):
        for value in re.finditer(
            r'^\s*excludesfile\s*=\s*"?([^"\n]*)', section[1], re.IGNORECASE | re.MULTILINE
        ):
            found = os.path.expanduser(value[1].strip())
    return found


def _specs(path: bytes) -> list[Any]:
    """The patterns of an ignore file, in portions; what the last one says of a path counts."""
    try:
        with files.open(path, "rb") as file:
            lines = file.read(LARGEST_FILE).decode(_BYTES).split("\n")
    except (OSError, ValueError):
        return []
    found = []
    for start in range(0, len(lines), _PORTION):
        portion = [line for line in lines[start : start + _PORTION] if len(line) <= _LONGEST_PATTERN]
        spec = _compiled(portion)
        if spec is None:  # git takes no notice of a pattern that is none
            spec = _compiled([line for line in portion if _compiled([line]) is not None])
        found.append(spec)
    return [spec for spec in found if spec is not None]


def _compiled(lines: list[str]) -> Any:
    """The patterns of these lines; None where one of them is none."""
    import warnings

    from pathspec import GitIgnoreSpec

    # Of the engines that there may be the one that no pattern makes slow.
    backend: Literal["re2", "simple"] = "re2"
    wrong: type[Exception] = re.error
    re2 = load_re2()
    if re2 is not None:
        wrong = re2.error
    else:
        backend = "simple"
        lines = [bounded for line in lines if (bounded := _bounded(line)) is not None]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what looks odd may be what was meant
            return GitIgnoreSpec.from_lines(lines, backend=backend)
    except (ValueError, re.error, wrong):
        return None


def _bounded(line: str) -> str | None:
    """A pattern truncated after `_MOST_STARS` stars, so that it ignores more; None for a longer exception."""
    parts = line.split("*")
    if len(parts) - 1 <= _MOST_STARS:
        return line
    return None if line.startswith("!") else "*".join(parts[:_MOST_STARS]) + "*"
