"""Source files: reading, and the file system queries of the frontend.

Owns encodings and the limit of a file's size. Must not contain: any syntax.
"""

from __future__ import annotations

import os
import stat

from ...ir.compile_options import FLOW_SUFFIX
from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.python_internals import sha256
from ...ir.spans import Source, Span

MAX_BYTES = 16 * 1024 * 1024

# Path of an expression that was given without a file.
EXPRESSION_PATH = "<expression>"


def real_path(path: str) -> str:
    """The path with all symbolic links resolved: the same result for all names of a file."""
    return os.path.realpath(path)


def path_exists(path: str) -> bool:
    """Whether a path exists; true for a broken symbolic link."""
    return os.path.lexists(path)


def is_file(path: str) -> bool:
    """Whether a path is a regular file, which can be read without blocking."""
    return os.path.isfile(path)


def resolve_path(file: str, path: str) -> str:
    """Resolve `path`, which is relative to the folder of `file`."""
    joined = os.path.join(os.path.dirname(file), path)
    parts = [part for part in joined.split("/") if part not in ("", ".")]
    return "/" * joined.startswith("/") + "/".join(parts)


def list_folder(folder: str) -> list[str]:
    """The names in a folder, sorted; an empty list if the folder cannot be read."""
    try:
        return sorted(os.listdir(folder or "."))
    except OSError:
        return []


def is_flow_path(path: str) -> bool:
    """Whether a source with this path is a flow; true for an expression without a file."""
    return path.endswith(FLOW_SUFFIX) or path == EXPRESSION_PATH


def text_source(text: str, path: str = "<text>") -> Source:
    """Make a source from a text in memory."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Source(path, digest, text)


def read_source(path: str, must_be_regular: bool = False) -> Source:
    """Read a file. Raises CompileError if it is unreadable, too large or not UTF-8.

    must_be_regular: refuse pipes, whose content can be read only once.
    """
    try:
        # Without O_NONBLOCK, opening a pipe without a writer would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise OSError(0, "it is a folder" if stat.S_ISDIR(mode) else "it is a device")
            if must_be_regular and not stat.S_ISREG(mode):
                raise OSError(0, "it is not a regular file")
            os.set_blocking(descriptor, True)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if len(data) > MAX_BYTES:
        message = f"`{path}` is larger than {MAX_BYTES // (1024 * 1024)} MiB"
        raise CompileError([Diagnostic("file-too-large", message, Span(path, 1, 1, 1, 1))])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8-sig", "replace")
        line = good.count("\n") + 1
        column = len(good) - (good.rfind("\n") + 1) + 1
        raise CompileError(
            [
                Diagnostic(
                    "not-utf-8",
                    f"byte 0x{data[error.start]:02x} is not UTF-8",
                    Span(path, line, column, line, column + 1),
                    help="save the file as UTF-8",
                )
            ],
            [Source(path, "", data.decode("utf-8-sig", "replace"))],
        ) from None
    return text_source(text, path)


def _unreadable(path: str, error: Exception) -> CompileError:
    if isinstance(error, FileNotFoundError):
        return CompileError([Diagnostic("file-not-found", f"no file `{path}`")])
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return CompileError([Diagnostic("unreadable-file", f"cannot read `{path}`: {reason.lower()}")])
