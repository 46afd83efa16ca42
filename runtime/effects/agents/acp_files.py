"""Files of the project for an agent of the Agent Client Protocol: `fs/read_text_file`, `fs/write_text_file`.

Only files below the working directory are accessible: links are resolved first, and the resolved path is
opened folder by folder without following links, so that a link created in between cannot lead outside.
"""

from __future__ import annotations

import json
import os.path
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ...host import environment, files

MAX_FILE_BYTES = 16 << 20
_FOLDER_FLAGS = files.O_RDONLY | files.O_DIRECTORY | files.O_NOFOLLOW


class Outside(Exception):
    """A path that does not lead to a file of the project."""


def is_inside(path: str) -> bool:
    """Whether a path leads into the working directory after links are resolved."""
    try:
        _parts(path)
    except Outside:
        return False
    return True


def read_text(path: str, line: int = 1, limit: int | None = None) -> str:
    """The text of a file from `line` on (counted from 1), at most `limit` lines.

    Raises `Outside`, and `OSError` or `ValueError` if the file cannot be read.
    """
    with _parent(path) as (folder, name):
        handle = files.open_handle(name, files.O_RDONLY | files.O_NOFOLLOW | files.O_NONBLOCK, dir_fd=folder)
        with files.open(handle, "rb") as file:
            if not stat.S_ISREG(files.fstat(handle).st_mode):
                raise ValueError("it is not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB")
    text = data.decode("utf-8", "replace")
    if line <= 1 and limit is None:
        return text
    lines = text.splitlines(keepends=True)[max(line, 1) - 1 :]
    return "".join(lines if limit is None else lines[: max(limit, 0)])


def write_text(path: str, text: str) -> None:
    """Replace the text of a file; create the file and its folders if necessary.

    Raises `Outside`, and `OSError` or `ValueError` if the file cannot be written.
    """
    flags = files.O_WRONLY | files.O_CREAT | files.O_NOFOLLOW | files.O_NONBLOCK
    with _parent(path, makes_folders=True) as (folder, name):
        handle = files.open_handle(name, flags, 0o666, dir_fd=folder)
        with files.open(handle, "wb") as file:
            if not stat.S_ISREG(files.fstat(handle).st_mode):
                raise ValueError("it is not a regular file")
            files.ftruncate(handle, 0)
            file.write(text.encode("utf-8", "replace"))


def read_answer(path: str) -> str | None:
    """The answer of a person; None if there is no answer yet."""
    try:
        with files.open(path, "rb") as file:
            fields = json.loads(file.read(MAX_FILE_BYTES))
        return str(fields["answer"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


@contextmanager
def _parent(path: str, makes_folders: bool = False) -> Iterator[tuple[int, str]]:
    """Context manager: a handle of a file's folder, and the name of the file."""
    *folders, name = _parts(path)
    handle = files.open_handle(".", files.O_RDONLY | files.O_DIRECTORY)
    try:
        for folder in folders:
            if makes_folders:
                with suppress(FileExistsError):
                    files.mkdir(folder, dir_fd=handle)
            below = files.open_handle(folder, _FOLDER_FLAGS, dir_fd=handle)
            files.close(handle)
            handle = below
        yield handle, name
    finally:
        files.close(handle)


def _parts(path: str) -> list[str]:
    """The names on the path from the working directory to a file, without links. Raises `Outside`."""
    root = files.realpath(environment.getcwd())
    try:
        target = files.realpath(os.path.join(root, path))
    except (OSError, ValueError):
        raise Outside(path) from None
    prefix = os.path.join(root, "")
    if not target.startswith(prefix):
        raise Outside(path)
    return target[len(prefix) :].split("/")
