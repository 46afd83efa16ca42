"""Files and folders: handles, file objects, names, locks.

`open` is the built-in function, which also takes a handle; `open_handle` is `os.open`. Child processes do
not inherit handles, whatever the flags say (PEP 446). Files of the store are opened by `open_regular` or
`open_regular_handle`, which never block.
"""

from __future__ import annotations

import builtins
import errno
from os import (
    O_APPEND,
    O_CREAT,
    O_DIRECTORY,
    O_EXCL,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_RDONLY,
    O_RDWR,
    O_TRUNC,
    O_WRONLY,
    SEEK_END,
    X_OK,
    DirEntry,
    PathLike,
    access,
    chmod,
    close,
    devnull,
    fchmod,
    fsdecode,
    fsencode,
    fspath,
    fstat,
    fsync,
    ftruncate,
    get_inheritable,
    link,
    listdir,
    lstat,
    makedirs,
    mkdir,
    pwrite,
    read,
    readlink,
    rename,
    replace,
    rmdir,
    scandir,
    set_inheritable,
    stat,
    unlink,
    walk,
    write,
)
from os import open as open_handle
from os.path import exists, getmtime, getsize, isdir, isfile, islink, lexists, realpath, samefile
from stat import S_ISBLK, S_ISCHR, S_ISDIR, S_ISFIFO, S_ISLNK, S_ISREG, S_ISSOCK

from .deferred import load

try:
    from os import fdatasync
except ImportError:  # macOS
    fdatasync = fsync

open = builtins.open

_KINDS = (
    (S_ISFIFO, "a named pipe"),
    (S_ISDIR, "a folder"),
    (S_ISLNK, "a symbolic link"),
    (S_ISSOCK, "a socket"),
    (S_ISCHR, "a device"),
    (S_ISBLK, "a device"),
)


def irregular(mode: int) -> str | None:
    """The kind of a file that is not regular, from its mode; None for a regular one."""
    if S_ISREG(mode):
        return None
    return next((says for is_kind, says in _KINDS if is_kind(mode)), "a special file")


def open_regular_handle(path: str, flags: int, mode: int = 0o600) -> int:
    """As `open_handle`, for regular files only: OSError for a pipe, a link and others; never blocks."""
    try:
        handle = open_handle(path, flags | O_NONBLOCK | O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe without a reader, a socket
            kind = irregular(lstat(path).st_mode)
            if kind is not None:
                raise OSError(error.errno, f"it is {kind}, not a regular file") from None
        raise
    kind = irregular(fstat(handle).st_mode)
    if kind is not None:
        close(handle)
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")
    return handle


def open_regular(path: str, mode: Literal["rb", "r+b"] = "rb") -> BinaryIO:
    """As `open`, for regular files only; see `open_regular_handle`."""
    return open(open_regular_handle(path, O_RDONLY if mode == "rb" else O_RDWR), mode)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
    from shutil import copyfile, rmtree
    from tempfile import TemporaryFile, mkstemp
    from typing import Any, BinaryIO, Literal
else:

    def __getattr__(name: str) -> Any:
        return load(globals(), _DEFERRED, name)


_DEFERRED = {
    "fcntl": ("LOCK_EX", "LOCK_NB", "LOCK_SH", "flock"),
    "shutil": ("copyfile", "rmtree"),
    "tempfile": ("TemporaryFile", "mkstemp"),
}

__all__ = [
    "LOCK_EX",
    "LOCK_NB",
    "LOCK_SH",
    "O_APPEND",
    "O_CREAT",
    "O_DIRECTORY",
    "O_EXCL",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "O_RDONLY",
    "O_RDWR",
    "O_TRUNC",
    "O_WRONLY",
    "SEEK_END",
    "X_OK",
    "DirEntry",
    "PathLike",
    "TemporaryFile",
    "access",
    "chmod",
    "close",
    "copyfile",
    "devnull",
    "exists",
    "fchmod",
    "fdatasync",
    "flock",
    "fsdecode",
    "fsencode",
    "fspath",
    "fstat",
    "fsync",
    "ftruncate",
    "get_inheritable",
    "getmtime",
    "getsize",
    "irregular",
    "isdir",
    "isfile",
    "islink",
    "lexists",
    "link",
    "listdir",
    "lstat",
    "makedirs",
    "mkdir",
    "mkstemp",
    "open",
    "open_handle",
    "open_regular",
    "open_regular_handle",
    "pwrite",
    "read",
    "readlink",
    "realpath",
    "rename",
    "replace",
    "rmdir",
    "rmtree",
    "samefile",
    "scandir",
    "set_inheritable",
    "stat",
    "unlink",
    "walk",
    "write",
]
