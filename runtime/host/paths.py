"""Where a project keeps its loops and runs: names of folders and files.

    .loops/<name>.yaml                    a loop; `<name>.sexp` is a flow
    .loops/config.yaml                    see `configuration`
    .loops/.running/<run>/                a run that has not ended: `<name>.events.jsonl` (its journal),
                                          `<name>.state.json`, `<name>.log`, `<name>.live`, `program.llb`,
                                          `lock`, `active`, `outputs/`
    .loops/.history/<run>/                the same folder once the run has ended
    .loops/.cache/                        compiled images; see `cache`

A run is called `<name>-YYYYMMDD-HHMMSS-xxxx`, the last part the fraction of the second in hex. Whatever
a loop is called, its runs stay inside these folders.
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
# Default number of ended runs that are kept of each loop.
KEPT = 100
IMAGE_SUFFIX = ".llb"
COMPILED_SUFFIXES = (IMAGE_SUFFIX, IR_SUFFIX)
# The program that a run starts with; programs that it changes to are `program-2.llb` and so on.
FIRST_IMAGE = "program.llb"

# Bytes that a file has at most that is read as a whole: a longer one is none of ours.
LONGEST = 1 << 28
_LONGEST_NAME = 80


def slug(name: str) -> str:
    """A file name for a loop's name: short, not hidden, inside its folder."""
    safe = "".join(ch if ch.isalnum() or ch in "._-" else "-" for ch in name)
    safe = safe.encode("ascii", "replace").decode().replace("?", "-").lstrip(".-")
    return safe[:_LONGEST_NAME] or "loop"


def make_private(path: str) -> None:
    """Create a folder that only its owner can read and git ignores, durably. Raises OSError."""
    ignored = os.path.join(path, ".gitignore")
    if files.isfile(ignored):
        return
    files.makedirs(path, mode=0o700, exist_ok=True)
    # Before a run moves into it: a folder that a loss of power removes takes what is in it along. The file
    # comes last: without it, another process may have died before the folder was durable.
    above = os.path.dirname(path)
    files.sync_names(os.path.dirname(above))
    files.sync_names(above)
    handle = regular_handle(ignored, files.O_WRONLY | files.O_CREAT | files.O_TRUNC, 0o666)
    with files.open(handle, "w", encoding="ascii") as file:
        file.write("*\n")


def open_regular(path: str) -> BinaryIO:
    """Open a file for reading. Raises OSError for anything but a regular file: a pipe would block."""
    return files.open(regular_handle(path, files.O_RDONLY), "rb")


def read_regular(path: str, most: int = LONGEST) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises OSError for anything else."""
    with open_regular(path) as file:
        if files.fstat(file.fileno()).st_size > most:
            raise OSError(EFBIG, f"it is larger than {most:,} bytes", path)
        return file.read(most)


def regular_handle(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file; a new one has `mode`. Raises OSError for anything else, without waiting for it."""
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
