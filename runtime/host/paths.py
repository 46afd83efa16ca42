"""Paths of a project: folders and files of loops and runs.

    .loops/<name>.yaml                    a loop; `<name>.sexp` is a flow
    .loops/config.yaml                    see `configuration`
    .loops/.running/<run>/                an unfinished run: `<name>.events.jsonl` (its journal),
                                          `<name>.state.json`, `<name>.log`, `<name>.live`, `program.llb`,
                                          `lock`, `active`, `outputs/`
    .loops/.history/<run>/                the same folder after the end of the run
    .loops/.cache/                        compiled images; see `cache`

The id of a run is `<name>-YYYYMMDD-HHMMSS-xxxx`; the last part is the fraction of the second in hex. `slug`
ensures that the folder of a run is inside these folders for any name of a loop.
"""

from __future__ import annotations

import os.path
from errno import EFBIG, EINVAL, EISDIR, ENXIO
from stat import S_ISREG

from ...ir.compile_options import CONFIG, IR_SUFFIX, LOOPS, SOURCE_SUFFIXES, TOOLS
from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

# The project: the working directory.
ROOT = ""
RUNNING = os.path.join(LOOPS, ".running")
HISTORY = os.path.join(LOOPS, ".history")
# Default number of ended runs to keep for each loop.
KEPT = 100
IMAGE_SUFFIX = ".llb"
COMPILED_SUFFIXES = (IMAGE_SUFFIX, IR_SUFFIX)
# Initial program of a run; later programs are `program-2.llb` and so on.
FIRST_IMAGE = "program.llb"

# Maximum size in bytes of a file that is read as a whole; llc does not write larger ones.
LONGEST = 1 << 28
_MAX_NAME_CHARS = 80


def slug(name: str) -> str:
    """Convert the name of a loop to a short, visible file name without path separators."""
    safe = "".join(ch if ch.isalnum() or ch in "._-" else "-" for ch in name)
    safe = safe.encode("ascii", "replace").decode().replace("?", "-").lstrip(".-")
    return safe[:_MAX_NAME_CHARS] or "loop"


def make_private(path: str) -> None:
    """Create a folder durably; only its owner can read it, and git ignores it. Raises OSError."""
    ignored = os.path.join(path, ".gitignore")
    if files.isfile(ignored):
        return
    files.makedirs(path, mode=0o700, exist_ok=True)
    # The folder must be durable before a run moves into it: if a power failure removed the folder, the run
    # would be lost. The file is written last: its absence shows that another process may have died before
    # this.
    above = os.path.dirname(path)
    files.sync_names(os.path.dirname(above))
    files.sync_names(above)
    handle = regular_handle(ignored, files.O_WRONLY | files.O_CREAT | files.O_TRUNC, 0o666)
    with files.open(handle, "w", encoding="ascii") as file:
        file.write("*\n")


def open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading. Raises OSError for other file types: a pipe would block."""
    return files.open(regular_handle(path, files.O_RDONLY), "rb")


def read_regular(path: str) -> bytes:
    """Read a regular file of at most `LONGEST` bytes. Raises OSError for larger and other files."""
    with open_regular(path) as file:
        if files.fstat(file.fileno()).st_size > LONGEST:
            raise OSError(EFBIG, f"it is larger than {LONGEST:,} bytes", path)
        return file.read(LONGEST)


def regular_handle(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file; a new file gets `mode`. Raises OSError for other file types, without blocking."""
    try:
        handle = files.open_handle(path, flags | files.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno in (EISDIR, ENXIO):  # a folder or a pipe, opened for writing
            raise _not_regular(path) from None
        raise
    if not S_ISREG(files.fstat(handle).st_mode):
        files.close(handle)
        raise _not_regular(path)
    return handle


def _not_regular(path: str) -> OSError:
    return OSError(EINVAL, "it is not a regular file; remove or rename it", path)
