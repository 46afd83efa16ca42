"""Which files there are: what the frontend asks the file system, apart from what `documents` reads."""

from __future__ import annotations

import os


def real(path: str) -> str:
    """The path behind all links: one for every name of a file."""
    return os.path.realpath(path)


def is_there(path: str) -> bool:
    """Whether something stands at a path, be it a link that leads nowhere."""
    return os.path.lexists(path)


def is_file(path: str) -> bool:
    """Whether a path leads to a plain file, which can be read without waiting."""
    return os.path.isfile(path)


def names_in(folder: str) -> list[str]:
    """The names in a folder, in order; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder or "."))
    except OSError:
        return []
