"""The files of a task: which there are, and what of them reaches the prompt.

A path that leads out of the project, by `..` or by a link, is refused before anything is asked. All
else that keeps a file from being shown is said in its place in the prompt, and in the notes.
"""

from __future__ import annotations

import os.path
import stat
from collections.abc import Iterable
from typing import NamedTuple

from ..host import files
from ..host.secret_files import is_secret

# Files beyond these many are not looked at.
MAX_FILES = 200


class Outside(Exception):
    """A path that is none of the project's; the text says so."""


class Shown(NamedTuple):
    """A file as the prompt has it. problem: why not all of it is there, '' if it is."""

    path: str
    text: str
    problem: str = ""


def resolved(paths: Iterable[str]) -> list[str]:
    """The paths, each once, as they are written. Raises `Outside`."""
    root = files.realpath(".")
    found: dict[str, str] = {}
    for path in paths:
        if not path or "\0" in path:
            raise Outside("a path of a file is empty" if not path else "a path has a NUL character")
        try:
            place = files.realpath(path)
        except (OSError, ValueError) as error:
            raise Outside(f"`{path[:200]}` is no path: {error}") from None
        if place != root and not place.startswith(os.path.join(root, "")):
            raise Outside(f"`{path[:200]}` is outside of the project")
        found.setdefault(place, path)
    return list(found.values())


def read(paths: list[str], most: int, most_together: int) -> list[Shown]:
    """The content of each file for the prompt, within a limit per file and a total limit in bytes."""
    shown = []
    left = most_together
    for path in paths[:MAX_FILES]:
        if left <= 0:
            problem = f"left out: the files together have more than {most_together:,} bytes"
            shown.append(Shown(path, "", problem))
            continue
        data, size, problem = _read(path, min(most, left))
        text = ""
        if not problem:
            text, problem = _text(data, size)
        left -= len(data)
        shown.append(Shown(path, text, problem))
    if len(paths) > MAX_FILES:
        what = f"left out: {len(paths) - MAX_FILES} more files; a prompt shows {MAX_FILES}"
        shown.append(Shown("…", "", what))
    return shown


def _read(path: str, most: int) -> tuple[bytes, int, str]:
    """The beginning of a file, its size, and why there is none of it."""
    # A link may have another name than what it leads to.
    if is_secret(files.fsencode(path)) or is_secret(files.fsencode(files.realpath(path))):
        return b"", 0, "is not shown: by its name it holds keys or passwords"
    try:
        # What is no plain file, such as a pipe, must not be waited for.
        descriptor = files.open_handle(path, files.O_RDONLY | files.O_NONBLOCK)
    except FileNotFoundError:
        return b"", 0, "does not exist"
    except OSError as error:
        return b"", 0, f"cannot be read: {error.strerror}"
    try:
        about = files.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return b"", 0, "is a folder" if stat.S_ISDIR(about.st_mode) else "is no plain file"
        parts: list[bytes] = []
        size = 0
        while size < most and (part := files.read(descriptor, min(most - size, 1 << 20))):
            parts.append(part)
            size += len(part)
    except OSError as error:
        return b"", 0, f"cannot be read: {error.strerror}"
    finally:
        files.close(descriptor)
    data = b"".join(parts)
    return data, max(about.st_size, len(data)), ""


def _text(data: bytes, size: int) -> tuple[str, str]:
    """A file's beginning as text, and what is missing of it."""
    # A character may have been cut in two.
    whole = data if len(data) == size else data[: len(data) - _cut_character(data)]
    try:
        text = whole.decode("utf-8")
    except UnicodeDecodeError:
        return "", f"is binary: {size:,} bytes"
    if "\0" in text:
        return "", f"is binary: {size:,} bytes"
    if len(data) == size:
        return text, ""
    return text, f"is truncated: {size - len(whole):,} of {size:,} bytes are left out"


def _cut_character(data: bytes) -> int:
    """How many bytes at the end belong to an incomplete character."""
    for count in range(1, min(4, len(data)) + 1):
        byte = data[-count]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return count if count < length else 0
    return 0


def rendered(files: list[Shown]) -> str:
    """The part of a prompt that shows files; '' for none."""
    if not files:
        return ""
    parts = []
    for file in files:
        name = file.path.replace("&", "&amp;").replace('"', "&quot;").encode("utf-8", "replace").decode()
        if file.text:
            end = "" if file.text.endswith("\n") else "\n"
            cut = f"[`{file.path}` {file.problem}]\n" if file.problem else ""
            parts.append(f'<file path="{name}">\n{file.text}{end}{cut}</file>')
        else:
            what = f"[`{file.path}` {file.problem}]\n" if file.problem else ""
            parts.append(f'<file path="{name}">\n{what}</file>')
    inside = "\n".join(parts)
    return f"<files>\n{inside}\n</files>"
