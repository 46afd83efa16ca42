"""Files and folders: handles, file objects, names, locks.

`open` is the built-in function, which also accepts a handle; `open_handle` is `os.open`. Child processes do
not inherit handles, independent of the flags (PEP 446).
"""

from __future__ import annotations

import builtins
from errno import EDQUOT, EIO, EMFILE, ENFILE, ENOSPC
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
    R_OK,
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
    symlink,
    unlink,
    walk,
    write,
)
from os import open as open_handle
from os.path import exists, getmtime, getsize, isdir, isfile, islink, lexists, realpath, samefile

from . import load

try:
    from os import fdatasync
except ImportError:  # macOS
    fdatasync = fsync

open = builtins.open

# Errors that are independent of the file: it must be considered neither missing nor durable.
TRANSIENT = (EDQUOT, EIO, EMFILE, ENFILE, ENOSPC)


def sync_names(path: str) -> None:
    """Make the names in a folder durable, if the file system supports this. Raises OSError."""
    try:
        fd = open_handle(path or ".", O_RDONLY | O_DIRECTORY)
        try:
            fsync(fd)
        finally:
            close(fd)
    except OSError as error:
        if error.errno in TRANSIENT:
            raise


TYPE_CHECKING = False
if TYPE_CHECKING:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
    from shutil import copy2, copyfile, rmtree
    from tempfile import TemporaryFile, mkstemp
    from typing import Any
else:

    def __getattr__(name: str) -> Any:
        return load(globals(), _DEFERRED, name)


_DEFERRED = {
    "fcntl": ("LOCK_EX", "LOCK_NB", "LOCK_SH", "flock"),
    "shutil": ("copy2", "copyfile", "rmtree"),
    "tempfile": ("TemporaryFile", "mkstemp"),
}
