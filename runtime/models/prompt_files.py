"""Files of a task: resolution of their paths, and their text in the prompt.

A path that leads out of the project, through `..` or a link, is refused before the model is called. For any
other file that cannot be shown completely, the prompt and the notes state the reason.
"""

from __future__ import annotations

import os.path
import stat
from collections.abc import Iterable
from typing import NamedTuple

from ..host import files
from ..host.secret_files import is_secret

# Maximum number of files that are read.
MAX_FILES = 200


class BadPath(Exception):
    """A path outside the project, or an invalid path; the message states the problem."""


class PromptFile(NamedTuple):
    """A file in the prompt. problem: why the text is missing or incomplete; '' if it is complete."""

    path: str
    text: str
    problem: str = ""


def resolved(paths: Iterable[str]) -> list[str]:
    """The paths as written, without paths to the same file. Raises `BadPath`."""
    root = files.realpath(".")
    by_target: dict[str, str] = {}
    for path in paths:
        if not path or "\0" in path:
            raise BadPath("a path of a file is empty" if not path else "a path has a NUL character")
        try:
            target = files.realpath(path)
        except (OSError, ValueError) as error:
            raise BadPath(f"`{path[:200]}` is not a path: {error}") from None
        if target != root and not target.startswith(os.path.join(root, "")):
            raise BadPath(f"`{path[:200]}` is outside of the project")
        by_target.setdefault(target, path)
    return list(by_target.values())


def read(paths: list[str], max_bytes: int, max_total_bytes: int) -> list[PromptFile]:
    """Read the files for a prompt, up to a limit per file and a total limit."""
    prompt_files = []
    remaining = max_total_bytes
    for path in paths[:MAX_FILES]:
        if remaining <= 0:
            problem = f"left out: the files together have more than {max_total_bytes:,} bytes"
            prompt_files.append(PromptFile(path, "", problem))
            continue
        data, size, problem = _read(path, min(max_bytes, remaining))
        text = ""
        if not problem:
            text, problem = _text(data, size)
        remaining -= len(data)
        prompt_files.append(PromptFile(path, text, problem))
    if len(paths) > MAX_FILES:
        problem = f"left out: {len(paths) - MAX_FILES} more files; a prompt shows {MAX_FILES}"
        prompt_files.append(PromptFile("…", "", problem))
    return prompt_files


def _read(path: str, max_bytes: int) -> tuple[bytes, int, str]:
    """The start of a file, the size of the file, and the reason why it cannot be shown, or ''."""
    # Check both names, because a link may have another name than its target.
    if is_secret(files.fsencode(path)) or is_secret(files.fsencode(files.realpath(path))):
        return b"", 0, "is not shown: by its name it holds keys or passwords"
    try:
        # O_NONBLOCK, because opening a pipe would block.
        descriptor = files.open_handle(path, files.O_RDONLY | files.O_NONBLOCK)
    except FileNotFoundError:
        return b"", 0, "does not exist"
    except OSError as error:
        return b"", 0, f"cannot be read: {error.strerror}"
    try:
        status = files.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", 0, "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
        parts: list[bytes] = []
        size = 0
        while size < max_bytes and (part := files.read(descriptor, min(max_bytes - size, 1 << 20))):
            parts.append(part)
            size += len(part)
    except OSError as error:
        return b"", 0, f"cannot be read: {error.strerror}"
    finally:
        files.close(descriptor)
    data = b"".join(parts)
    return data, max(status.st_size, len(data)), ""


def _text(data: bytes, size: int) -> tuple[str, str]:
    """The start of a file as text, and what is missing, or ''. size: size of the whole file in bytes."""
    # Truncation may have split the last character.
    complete = data if len(data) == size else data[: len(data) - _incomplete_bytes(data)]
    try:
        text = complete.decode("utf-8")
    except UnicodeDecodeError:
        return "", f"is binary: {size:,} bytes"
    if "\0" in text:
        return "", f"is binary: {size:,} bytes"
    if len(data) == size:
        return text, ""
    return text, f"is truncated: {size - len(complete):,} of {size:,} bytes are left out"


def _incomplete_bytes(data: bytes) -> int:
    """The number of bytes at the end that belong to an incomplete UTF-8 character."""
    for count in range(1, min(4, len(data)) + 1):
        byte = data[-count]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return count if count < length else 0
    return 0


def rendered(files: list[PromptFile]) -> str:
    """The section of a prompt with the files; '' without files."""
    if not files:
        return ""
    parts = []
    for file in files:
        name = file.path.replace("&", "&amp;").replace('"', "&quot;").encode("utf-8", "replace").decode()
        note = f"[`{file.path}` {file.problem}]\n" if file.problem else ""
        end = "" if not file.text or file.text.endswith("\n") else "\n"
        parts.append(f'<file path="{name}">\n{file.text}{end}{note}</file>')
    content = "\n".join(parts)
    return f"<files>\n{content}\n</files>"
