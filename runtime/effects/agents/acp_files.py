"""Files of the project for an agent of the Agent Client Protocol: `fs/read_text_file`, `fs/write_text_file`.

Only files below the working folder can be reached: links are resolved first, and the resolved path is opened
folder by folder without following a link, so that a link that is made in between does not lead outside.
"""

from __future__ import annotations

import json
import os.path
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ...host import environment, files

# Bytes of a file that is read.
LONGEST = 16 << 20
_FOLDER = files.O_RDONLY | files.O_DIRECTORY | files.O_NOFOLLOW


class Outside(Exception):
    """A path that does not lead to a file of the project."""


def is_inside(path: str) -> bool:
    """Whether a path leads into the working folder, with links resolved."""
    try:
        _parts(path)
    except Outside:
        return False
    return True


def read_text(path: str, line: int = 1, limit: int | None = None) -> str:
    """The text of a file, from a line on (counted from 1), at most `limit` lines.

    Raises `Outside`, and `OSError` or `ValueError` where it cannot be read.
    """
    with _parent(path) as (folder, name):
        handle = files.open_handle(name, files.O_RDONLY | files.O_NOFOLLOW | files.O_NONBLOCK, dir_fd=folder)
        with files.open(handle, "rb") as file:
            if not stat.S_ISREG(files.fstat(handle).st_mode):
                raise ValueError("it is no regular file")
            data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise ValueError(f"it has more than {LONGEST >> 20} MiB")
    text = data.decode("utf-8", "replace")
    if line <= 1 and limit is None:
        return text
    lines = text.splitlines(keepends=True)[max(line, 1) - 1 :]
    return "".join(lines if limit is None else lines[: max(limit, 0)])


def write_text(path: str, text: str) -> None:
    """Replace the text of a file, which is created with its folders where it does not exist.

    Raises `Outside`, and `OSError` or `ValueError` where it cannot be written.
    """
    flags = files.O_WRONLY | files.O_CREAT | files.O_NOFOLLOW | files.O_NONBLOCK
    with _parent(path, makes_folders=True) as (folder, name):
        handle = files.open_handle(name, flags, 0o666, dir_fd=folder)
        with files.open(handle, "wb") as file:
            if not stat.S_ISREG(files.fstat(handle).st_mode):
                raise ValueError("it is no regular file")
            files.ftruncate(handle, 0)
            file.write(text.encode("utf-8", "replace"))


def read_answer(path: str) -> str | None:
    """What a person has answered, None where there is no answer yet."""
    try:
        with files.open(path, "rb") as file:
            found = json.loads(file.read(LONGEST))
        return str(found["answer"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


@contextmanager
def _parent(path: str, makes_folders: bool = False) -> Iterator[tuple[int, str]]:
    """A handle of the folder of a file, and the file's name in it."""
    *folders, name = _parts(path)
    handle = files.open_handle(".", files.O_RDONLY | files.O_DIRECTORY)
    try:
        for folder in folders:
            if makes_folders:
                with suppress(FileExistsError):
                    files.mkdir(folder, dir_fd=handle)
            below = files.open_handle(folder, _FOLDER, dir_fd=handle)
            files.close(handle)
            handle = below
        yield handle, name
    finally:
        files.close(handle)


def _parts(path: str) -> list[str]:
    """The names from the working folder to a file, without links. Raises `Outside`."""
    root = files.realpath(environment.getcwd())
    try:
        found = files.realpath(os.path.join(root, path))
    except (OSError, ValueError):
        raise Outside(path) from None
    below = os.path.join(root, "")
    if not found.startswith(below):
        raise Outside(path)
    return found[len(below) :].split("/")
