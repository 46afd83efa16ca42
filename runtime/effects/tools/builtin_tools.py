"""Built-in tools for files and folders; they run in the process of the run.

Paths are relative to the working directory of the run. Signatures: `frontend/tasks/builtin_signatures.py`.
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

# Limits of one call of `read_files`: total size in bytes, and number of files.
MAX_TOTAL = 16 << 20
MAX_FILES = 1000
_counter = count()


class ToolError(KindError):
    """A tool has failed."""


# --- read_files -------------------------------------------------------------------------------


def read_files(args: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry for each path: {path, content, size}, or {path, content, error: {kind, message}}."""
    paths = args["file_paths"]
    for path in paths:
        if not isinstance(path, str):
            raise ToolError("type-error", f"`file_paths` is a list of paths, not of {path!r:.60}")
    if len(paths) > MAX_FILES:
        raise ToolError("too-many-files", f"{len(paths)} files are more than {MAX_FILES}")
    entries = []
    remaining = MAX_TOTAL
    for path in paths:
        try:
            data = _read(path, args["max_bytes"], remaining)
            entry: dict[str, Any] = {"path": path, "content": _text(path, data), "size": len(data)}
            remaining -= len(data)
        except ToolError as error:
            entry = {
                "path": path,
                "content": f"[{error.message}]",
                "error": {"kind": error.kind, "message": error.message},
            }
        entries.append(entry)
    return entries


def _read(path: str, max_bytes: int, remaining: int) -> bytes:
    try:
        # O_NONBLOCK, because opening a pipe would block.
        descriptor = files.open_handle(path, files.O_RDONLY | files.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise _read_error(path, error) from None
    try:
        status = files.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _not_a_file(path, status.st_mode)
        limit = min(max_bytes, remaining)
        parts = []
        size = 0
        while size <= limit and (part := files.read(descriptor, min(limit + 1 - size, 1 << 20))):
            parts.append(part)
            size += len(part)
    except OSError as error:
        raise _read_error(path, error) from None
    finally:
        files.close(descriptor)
    if size > max_bytes:
        raise ToolError("too-large", f"`{path}` has {max(status.st_size, size)} bytes, more than {max_bytes}")
    if size > remaining:
        raise ToolError(
            "too-large", f"`{path}` is left out: all files together have more than {MAX_TOTAL} bytes"
        )
    return b"".join(parts)


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError("not-text", f"`{path}` is not UTF-8 text (byte {error.start})") from None


def _not_a_file(path: str, mode: int) -> ToolError:
    kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    return ToolError("not-a-file", f"`{path}` is {kind}")


def _read_error(path: str, error: OSError | ValueError) -> ToolError:
    if isinstance(error, FileNotFoundError):
        return ToolError("not-found", f"`{path}` does not exist")
    why = reason(error) if isinstance(error, OSError) else "the path has a character that no path can have"
    return ToolError("unreadable", f"`{path}` cannot be read: {why}")


# --- list_directory ---------------------------------------------------------------------------


def list_directory(args: dict[str, Any]) -> list[str]:
    """Names in a folder, sorted; names of folders end in `/`."""
    path, max_entries = args["directory_path"], args["max_entries"]
    try:
        with files.scandir(path or ".") as iterator:
            entries = list(islice(iterator, max_entries + 1))
    except FileNotFoundError:
        raise ToolError("not-found", f"`{path}` does not exist") from None
    except NotADirectoryError:
        raise ToolError("not-a-folder", f"`{path}` is not a folder") from None
    except (OSError, ValueError) as error:
        raise _read_error(path, error) from None
    if len(entries) > max_entries:
        raise ToolError("too-large", f"`{path}` has more than {max_entries} entries")
    return sorted(_name(entry) + ("/" if entry.is_dir() else "") for entry in entries)


def _name(entry: files.DirEntry[str]) -> str:
    # A name that is not UTF-8 has no valid text.
    return files.fsencode(entry.name).decode("utf-8", "backslashreplace")


# --- write_file -------------------------------------------------------------------------------


def write_file(args: dict[str, Any]) -> dict[str, Any]:
    """Write a file atomically; links are followed, permissions are kept."""
    path, content = args["file_path"], args["content"]
    if not path:
        raise ToolError("bad-path", "the path is empty")
    try:
        data = content.encode("utf-8")
        target = files.realpath(path)
        mode = _existing_mode(target, path)
        if mode is not None and not args["overwrite"]:
            raise ToolError("file-exists", f"`{path}` already exists, and `overwrite` is false")
        files.makedirs(os.path.dirname(target), exist_ok=True)
        _replace(target, data, mode, is_new=not args["overwrite"])
    except FileExistsError:
        raise ToolError("file-exists", f"`{path}` already exists, and `overwrite` is false") from None
    except UnicodeEncodeError:
        raise ToolError("not-text", "the content has a lone surrogate, which UTF-8 cannot encode") from None
    except (OSError, ValueError) as error:
        why = (
            reason(error) if isinstance(error, OSError) else "the path has a character that no path can have"
        )
        raise ToolError("unwritable", f"`{path}` cannot be written: {why}") from None
    return {"file_path": path, "bytes": len(data), "created": mode is None}


def _existing_mode(target: str, path: str) -> int | None:
    """The permissions of an existing file; None if it does not exist."""
    try:
        status = files.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_file(path, status.st_mode)
    return stat.S_IMODE(status.st_mode)


def _replace(target: str, data: bytes, mode: int | None, *, is_new: bool) -> None:
    folder, name = os.path.split(target)
    # A unique name, because several threads may write the same file.
    temporary = os.path.join(folder, f".{name[:60]}.{processes.getpid()}-{next(_counter)}.new")
    descriptor = files.open_handle(temporary, files.O_WRONLY | files.O_CREAT | files.O_TRUNC, 0o666)
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
            files.link(temporary, target)  # fails if another process created it first
            files.unlink(temporary)
        else:
            files.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise


TOOLS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "system:list_directory": list_directory,
    "system:read_files": read_files,
    "system:write_file": write_file,
}
