"""Project of a command line: find its folder, make it the working directory, and adapt relative paths.

A project is a folder with `.loops/`. A loop given by its path belongs to the nearest project above it.
Otherwise the project is the working directory or the nearest project above it.
"""

from __future__ import annotations

import os.path

from ..host import environment, files
from ..host.errors import UserError, reason
from ..host.paths import LOOPS, SOURCE_SUFFIXES
from ..runs.loop_names import is_path
from . import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..project.options import CommandParameter

# Metavars of parameters that accept a path, a loop, and a name or a path.
_FILES = ("FILE", "FILE.xml", "PATH", "WORLD.yaml")
_LOOPS = ("LOOP", "[LOOP]…", "[LOOP|JOBS]…", "LOOP|RUN")
_NAMES_OR_FILES = (*_LOOPS, "RUN", "OTHER", "RUN|LOOP", "[RUN|LOOP]", "CASE", "[CASE]…", "[FILE]…")
_SUFFIXES = (*SOURCE_SUFFIXES, ".json", ".jsonl")

# Original working directory, relative to the project; '' if it is the project folder.
start = ""


def change(folder: str) -> None:
    """Change to the folder of `-C`. Raises UserError."""
    try:
        environment.chdir(folder)
    except (OSError, ValueError) as error:
        text = reason(error) if isinstance(error, OSError) else "it contains a null byte"
        raise UserError("bad-option", f"-C: cannot change to `{folder}`: {text}") from None


def enter(rows: Sequence[CommandParameter], values: dict[str, Any]) -> dict[str, Any]:
    """Change to the project folder; return the values of the parameters `rows` with adapted paths."""
    global start
    start = ""
    here = environment.getcwd()
    folder = _project_of_loops(rows, values) or _nearest(here)
    if folder is None or folder == here:
        return values
    environment.chdir(folder)
    start = os.path.relpath(here, folder)
    if not (values.get("quiet") or values.get("json")):
        output.note(f"in the project {folder}")
    changed = dict(values)
    for row in rows:
        value = values.get(row.name)
        if isinstance(value, str):
            changed[row.name] = _adapt(row, value)
        elif isinstance(value, list):
            changed[row.name] = [_adapt(row, text) for text in value]
    return changed


def leave(rows: Sequence[CommandParameter], values: dict[str, Any]) -> dict[str, Any]:
    """The values of the parameters `rows` with absolute paths, for a command that works in another folder."""
    global start
    here = environment.getcwd()
    start = os.path.normpath(os.path.join(here, start))
    changed = dict(values)
    for row in rows:
        value = values.get(row.name)
        is_file = row.metavar in _FILES or (row.metavar == "CASE" and _is_path(value or ""))
        if value and value != "-" and is_file:
            changed[row.name] = os.path.join(here, value)
    return changed


def nearest() -> str | None:
    """The project of the working directory; None if there is none."""
    return _nearest(environment.getcwd())


def _adapt(row: CommandParameter, text: str) -> str:
    """A value; a path is made relative to the project folder."""
    is_file = row.metavar in _FILES or (row.metavar in _NAMES_OR_FILES and _is_path(text))
    return os.path.normpath(os.path.join(start, text)) if is_file and text not in ("", "-") else text


def _is_path(text: str) -> bool:
    return is_path(text) or text.endswith(_SUFFIXES)


def _project_of_loops(rows: Sequence[CommandParameter], values: dict[str, Any]) -> str | None:
    """The common project of all loops given by path; None if there is none or more than one."""
    projects = {_nearest(os.path.dirname(os.path.abspath(path)), False) for path in _loop_paths(rows, values)}
    return projects.pop() if len(projects) == 1 else None


def _loop_paths(rows: Sequence[CommandParameter], values: dict[str, Any]) -> Iterator[str]:
    for row in rows:
        if row.metavar in _LOOPS and not row.names:
            value = values.get(row.name) or []
            yield from (text for text in ([value] if isinstance(value, str) else value) if is_path(text))


def _nearest(folder: str, is_start: bool = True) -> str | None:
    """The nearest folder with `.loops/`, from the absolute path `folder` upwards; None if there is none.

    The home folder, the folders above it, and folders of other users are projects only if they are the
    working directory: the configuration of another user could name any program. is_start: `folder` is the
    working directory.
    """
    home = os.path.expanduser("~")
    first = folder
    while True:
        if files.isdir(os.path.join(folder, LOOPS)):
            if (is_start and folder == first) or _is_own(folder):
                return folder
            return None
        above = os.path.dirname(folder)
        if above == folder or (above == home or home.startswith(os.path.join(above, ""))):
            return None
        folder = above


def _is_own(folder: str) -> bool:
    try:
        return files.stat(os.path.join(folder, LOOPS)).st_uid == environment.geteuid()
    except OSError:
        return False
