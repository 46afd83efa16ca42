"""The tools that are built in and run in the process itself: files and folders.

Paths are relative to the folder of the run. Signatures: `frontend/tasks/builtin_signatures.py`.
"""

from __future__ import annotations

import contextlib
import os.path
import stat
from itertools import count, islice

from ...host import files, processes
from ...host.errors import KindError, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Bytes that one call of `read_files` gives at most, and how many files it looks at.
MAX_TOTAL = 16 << 20
MAX_FILES = 1000
_numbers = count()


class ToolError(KindError):
    """Why a tool gave nothing: a kind and a message."""


# --- read_files -------------------------------------------------------------------------------


def read_files(args: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry for each path: {path, content, size}, or {path, content, error: {kind, message}}."""
    paths = args["file_paths"]
    for path in paths:
        if not isinstance(path, str):
            raise ToolError("type-error", f"`file_paths` is a list of paths, not of {path!r:.60}")
    if len(paths) > MAX_FILES:
        raise ToolError("too-many-files", f"{len(paths)} files are more than {MAX_FILES}")
    found = []
    left = MAX_TOTAL
    for path in paths:
        try:
            data = _read(path, args["max_bytes"], left)
            entry: dict[str, Any] = {"path": path, "content": _text(path, data), "size": len(data)}
            left -= len(data)
        except ToolError as error:
            entry = {
                "path": path,
                "content": f"[{error.message}]",
                "error": {"kind": error.kind, "message": error.message},
            }
        found.append(entry)
    return found


def _read(path: str, most: int, left: int) -> bytes:
    try:
        # What is no plain file, such as a pipe, must not be waited for.
        descriptor = files.open_handle(path, files.O_RDONLY | files.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None
    try:
        about = files.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            what = "a folder" if stat.S_ISDIR(about.st_mode) else "no plain file"
            raise ToolError("not-a-file", f"`{path}` is {what}")
        limit = min(most, left)
        parts = []
        size = 0
        while size <= limit and (part := files.read(descriptor, min(limit + 1 - size, 1 << 20))):
            parts.append(part)
            size += len(part)
    except OSError as error:
        raise _refusal(path, error) from None
    finally:
        files.close(descriptor)
    if size > most:
        raise ToolError("too-large", f"`{path}` has {max(about.st_size, size)} bytes, more than {most}")
    if size > left:
        raise ToolError(
            "too-large", f"`{path}` is left out: all files together have more than {MAX_TOTAL} bytes"
        )
    return b"".join(parts)


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError("not-text", f"`{path}` is not UTF-8 text (byte {error.start})") from None


def _refusal(path: str, error: OSError | ValueError) -> ToolError:
    if isinstance(error, FileNotFoundError):
        return ToolError("not-found", f"`{path}` does not exist")
    why = reason(error) if isinstance(error, OSError) else "the path has a character that no path can have"
    return ToolError("unreadable", f"`{path}` cannot be read: {why}")


# --- list_directory ---------------------------------------------------------------------------


def list_directory(args: dict[str, Any]) -> list[str]:
    path, most = args["directory_path"], args["max_entries"]
    try:
        with files.scandir(path or ".") as entries:
            found = list(islice(entries, most + 1))
    except FileNotFoundError:
        raise ToolError("not-found", f"`{path}` does not exist") from None
    except NotADirectoryError:
        raise ToolError("not-a-folder", f"`{path}` is no folder") from None
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None
    if len(found) > most:
        raise ToolError("too-large", f"`{path}` has more than {most} entries")
    names = [_name(entry) + ("/" if entry.is_dir() else "") for entry in found]
    return sorted(names)


def _name(entry: files.DirEntry[str]) -> str:
    # A name that is not UTF-8 cannot be a text of a program.
    return files.fsencode(entry.name).decode("utf-8", "backslashreplace")


# --- write_file -------------------------------------------------------------------------------


def write_file(args: dict[str, Any]) -> dict[str, Any]:
    """Whole or not at all; a link is followed, permissions stay as they were."""
    path, content = args["file_path"], args["content"]
    if not path:
        raise ToolError("bad-path", "the path is empty")
    try:
        data = content.encode("utf-8")
        place = files.realpath(path)
        mode = _mode_there(place, path)
        if mode is not None and not args["overwrite"]:
            raise ToolError("file-exists", f"`{path}` is there already, and `overwrite` is false")
        files.makedirs(os.path.dirname(place), exist_ok=True)
        _replace(place, data, mode, is_new=not args["overwrite"])
    except FileExistsError:
        raise ToolError("file-exists", f"`{path}` is there already, and `overwrite` is false") from None
    except UnicodeEncodeError:
        raise ToolError("not-text", "the content has half a surrogate pair, which no file can hold") from None
    except (OSError, ValueError) as error:
        why = (
            reason(error) if isinstance(error, OSError) else "the path has a character that no path can have"
        )
        raise ToolError("unwritable", f"`{path}` cannot be written: {why}") from None
    return {"file_path": path, "bytes": len(data), "created": mode is None}


def _mode_there(place: str, path: str) -> int | None:
    """The permissions of the file that is there, None if there is none."""
    try:
        about = files.stat(place)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(about.st_mode):
        what = "a folder" if stat.S_ISDIR(about.st_mode) else "no plain file"
        raise ToolError("not-a-file", f"`{path}` is {what}")
    return stat.S_IMODE(about.st_mode)


def _replace(place: str, data: bytes, mode: int | None, *, is_new: bool) -> None:
    folder, name = os.path.split(place)
    # Several may write the same file at once, in threads of this process.
    scratch = os.path.join(folder, f".{name[:60]}.{processes.getpid()}-{next(_numbers)}.new")
    descriptor = files.open_handle(scratch, files.O_WRONLY | files.O_CREAT | files.O_TRUNC, 0o666)
    try:
        try:
            if mode is not None:
                files.fchmod(descriptor, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[files.write(descriptor, rest) :]
            files.fdatasync(descriptor)
        finally:
            files.close(descriptor)
        if is_new:
            files.link(scratch, place)  # fails if another process created it first
            files.unlink(scratch)
        else:
            files.replace(scratch, place)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(scratch)
        raise


TOOLS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "system:list_directory": list_directory,
    "system:read_files": read_files,
    "system:write_file": write_file,
}
