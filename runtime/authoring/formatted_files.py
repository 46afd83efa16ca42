"""`llc fmt`: format S-expression files in place, or only check them.

Owns the files and the report; `frontend.sexp.formatter` owns the layout. A file is replaced atomically, keeps
its permissions, and is not written if its text does not change.
"""

from __future__ import annotations

import difflib
import os.path
import re
import stat
import sys
from collections.abc import Iterable, Iterator

from ...frontend.sexp.formatter import format_source
from ...frontend.source.files import read_source
from ...ir.diagnostics import CompileError, Diagnostic, suggest
from ...ir.light_records import LightRecord
from ...ir.spans import Source
from ..host import files
from ..host.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from ..host.paths import LOOPS
from ..journal.journal import JournalError, write_file

SUFFIX = ".sexp"
STDIN = "-"
STDIN_PATH = "<stdin>"


class Formatted(LightRecord):
    """A file with its text and the formatted text; or the error if it cannot be formatted."""

    path: str
    text: str = ""
    result: str = ""
    error: CompileError | None = None

    @property
    def is_changed(self) -> bool:
        return self.text != self.result


def find_files(targets: Iterable[str]) -> list[str]:
    """The files that the targets (paths, folders, names) denote; without targets, the files of `.loops/`.

    Raises UserError.
    """
    paths: list[str] = []
    for target in targets or (LOOPS,):
        if target == STDIN:
            paths.append(target)
        elif files.isdir(target):
            paths += _files_in(target)
        else:
            paths.append(_path_of(target))
    if STDIN in paths and len(paths) > 1:
        raise UserError("usage", "`-` (standard input) cannot be combined with other files")
    if not paths and not targets:
        raise UserError("no-files", f"there are no {SUFFIX} files in {LOOPS}/", "name the files to format")
    return list(dict.fromkeys(paths))


def _path_of(target: str) -> str:
    is_path = os.path.sep in target or "." in target
    path = target if is_path else os.path.join(LOOPS, target + SUFFIX)
    if not files.lexists(path):
        names = [os.path.basename(file)[: -len(SUFFIX)] for file in _files_in(LOOPS)]
        help = None if is_path else suggest(target, names, "names here")
        raise UserError("unknown-file", f"there is no file `{path}`", help)
    if not path.endswith(SUFFIX):
        raise UserError("not-formattable", f"`{path}` is not a {SUFFIX} file", "YAML is not formatted")
    return path


def _files_in(folder: str) -> Iterator[str]:
    """The files in a folder and its sub-folders, except hidden folders, in order."""
    for path, folders, names in files.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(path, name) for name in sorted(names) if name.endswith(SUFFIX))


def format_file(path: str) -> Formatted:
    """Read and format a file."""
    try:
        source = _stdin() if path == STDIN else read_source(path)
        text = source.text or ""
        return Formatted(source.path, text, format_source(text, source.path))
    except CompileError as error:
        return Formatted(path, error=error)


def _stdin() -> Source:
    data = sys.stdin.buffer.read()
    try:
        return Source(STDIN_PATH, "", data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        message = f"byte 0x{data[error.start]:02x} of standard input is not UTF-8"
        raise CompileError([Diagnostic("not-utf-8", message)]) from None


def replace(file: Formatted) -> None:
    """Write the new text to the file. Raises UserError."""
    path = files.realpath(file.path)
    try:
        mode = files.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise UserError("not-formattable", f"`{file.path}` is not a regular file")
        write_file(path, file.result.encode(), mode=stat.S_IMODE(mode))
    except (OSError, JournalError) as error:
        raise UserError("cannot-write", str(error)) from None


def difference(file: Formatted) -> str:
    """The change as a unified diff."""
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (file.text, file.result))
    lines = list(difflib.unified_diff(old, new, file.path, file.path))
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )


def exit_code(results: Iterable[Formatted], is_check: bool) -> int:
    results = list(results)
    if any(file.error for file in results):
        return EXIT_USAGE
    return EXIT_FAILURE if is_check and any(file.is_changed for file in results) else EXIT_OK
