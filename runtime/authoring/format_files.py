"""`llc fmt`: formats S-expression files in place, or only checks them.

Owns the files and the report; `frontend.sexp.formatter` owns the layout. A file is replaced whole or
not at all, keeps its permissions, and is not written if nothing changes.
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
    """One file: its text, and the text laid out; or what is wrong with it."""

    path: str
    text: str = ""
    result: str = ""
    error: CompileError | None = None

    @property
    def is_changed(self) -> bool:
        return self.text != self.result


def find_files(targets: Iterable[str]) -> list[str]:
    """The files that paths, folders and names mean; without any, those of `.loops/`. UserError."""
    found: list[str] = []
    for target in targets or (LOOPS,):
        if target == STDIN:
            found.append(target)
        elif files.isdir(target):
            found += _within(target)
        else:
            found.append(_file(target))
    if STDIN in found and len(found) > 1:
        raise UserError("usage", "`-` is standard input and stands alone")
    if not found and not targets:
        raise UserError("no-files", f"there are no {SUFFIX} files in {LOOPS}/", "name the files to format")
    return list(dict.fromkeys(found))


def _file(target: str) -> str:
    is_path = os.path.sep in target or "." in target
    path = target if is_path else os.path.join(LOOPS, target + SUFFIX)
    if not files.lexists(path):
        names = [os.path.basename(file)[: -len(SUFFIX)] for file in _within(LOOPS)]
        help = None if is_path else suggest(target, names, "names here")
        raise UserError("unknown-file", f"there is no file `{path}`", help)
    if not path.endswith(SUFFIX):
        raise UserError("not-formattable", f"`{path}` is no {SUFFIX} file", "YAML is not formatted")
    return path


def _within(folder: str) -> Iterator[str]:
    """The files in a folder and those below it, but for hidden ones, in order."""
    for path, folders, names in files.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(path, name) for name in sorted(names) if name.endswith(SUFFIX))


def look(path: str) -> Formatted:
    """Read a file and lay it out."""
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


def replace(found: Formatted) -> None:
    """Put the new text where the old one is. UserError where that cannot be."""
    path = files.realpath(found.path)
    try:
        mode = files.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise UserError("not-formattable", f"`{found.path}` is no regular file")
        write_file(path, found.result.encode(), mode=stat.S_IMODE(mode))
    except (OSError, JournalError) as error:
        raise UserError("cannot-write", str(error)) from None


def difference(found: Formatted) -> str:
    """What would change, as a unified diff."""
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (found.text, found.result))
    lines = list(difflib.unified_diff(old, new, found.path, found.path))
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )


def exit_code(found: Iterable[Formatted], is_check: bool) -> int:
    found = list(found)
    if any(one.error for one in found):
        return EXIT_USAGE
    return EXIT_FAILURE if is_check and any(one.is_changed for one in found) else EXIT_OK
