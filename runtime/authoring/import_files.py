"""`llc import`: rewrites loops of little-loops in place or into another folder, or only checks them.

Owns the files and the report; `frontend.loop.importer` owns the rewriting.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from typing import Any

from ...frontend.loop.importer import import_loop
from ...frontend.source.files import read_source
from ...ir.compile_options import LOOP_SUFFIXES
from ...ir.diagnostics import CompileError, Diagnostic, in_order, render_all, to_json
from ...ir.spans import Source
from ..host import files
from ..host.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from ..journal.journal import JournalError, write_file
from ..runs.loop_names import resolve_loop
from .format_files import Formatted, difference, replace


class ImportedFile(Formatted):
    """A file and its rewriting, with what a person has to decide. name: its place in the output folder."""

    name: str = ""
    decisions: Sequence[Diagnostic] = ()
    sources: Sequence[Source] = ()

    @property
    def is_refused(self) -> bool:
        return any(finding.is_error for finding in self.decisions)


def look(targets: Iterable[str]) -> list[ImportedFile]:
    """Read and rewrite files, and all those in folders. UserError where there is nothing to read."""
    found: dict[str, str] = {}
    for target in targets:
        if files.isdir(target):
            within = _within(target)
            if not within:
                raise UserError("no-files", f"there are no loops in `{target}`", "name the files to import")
            found |= within
        else:
            path = resolve_loop(target)
            if not path.endswith(LOOP_SUFFIXES):
                raise UserError("usage", f"`{target}` is no YAML file", "only loops in YAML are imported")
            found[path] = os.path.basename(path)
    return [_look(path, name) for path, name in found.items()]


def _within(folder: str) -> dict[str, str]:
    found = {}
    for path, folders, names in files.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(LOOP_SUFFIXES):
                file = os.path.join(path, name)
                found[file] = os.path.relpath(file, folder)
    return found


def _look(path: str, name: str) -> ImportedFile:
    try:
        source = read_source(path, must_be_regular=True)
        made = import_loop(source)
    except CompileError as error:
        return ImportedFile(path, name=name, decisions=error.diagnostics, sources=error.sources)
    text = source.text or ""
    return ImportedFile(path, text, made.text, None, name, tuple(in_order(made.decisions)), made.sources)


def write_all(found: Sequence[ImportedFile], folder: str | None) -> None:
    """Write the files that are not refused: to a folder that has none of them, or in place. UserError."""
    if folder is None:
        for one in found:
            if one.is_changed and not one.is_refused:
                replace(one)
        return
    places: dict[str, ImportedFile] = {}
    for one in found:
        place = os.path.join(folder, one.name)
        if place in places:
            message = f"`{places[place].path}` and `{one.path}` would both become `{place}`"
            raise UserError("usage", message, "import them one after the other, to different folders")
        if files.lexists(place):
            raise UserError("cannot-write", f"`{place}` exists", "remove it, or name another folder")
        places[place] = one
    for place, one in places.items():
        if one.is_refused:
            continue
        try:
            files.makedirs(os.path.dirname(place) or ".", exist_ok=True)
            write_file(place, one.result.encode())
        except (OSError, JournalError) as error:
            raise UserError("cannot-write", str(error)) from None


def as_text(found: Sequence[ImportedFile], verb: str, color: bool) -> str:
    """What a person has to decide, and a line that sums it up."""
    parts = [render_all(one.decisions, one.sources, color) for one in found if one.decisions]
    changed = sum(one.is_changed and not one.is_refused for one in found)
    facts = [f"{len(found)} {'file' if len(found) == 1 else 'files'}", f"{changed} {verb}"]
    refused = sum(one.is_refused for one in found)
    if refused:
        facts.append(f"{refused} refused")
    decisions = sum(len(one.decisions) for one in found if not one.is_refused)
    if decisions:
        facts.append(f"{decisions} {'place' if decisions == 1 else 'places'} to look at")
    return "".join(f"{part}\n\n" for part in parts) + ", ".join(facts) + "\n"


def as_json(found: Sequence[ImportedFile]) -> dict[str, Any]:
    return {
        "files": [
            {
                "file": one.path,
                "changed": one.is_changed and not one.is_refused,
                "refused": one.is_refused,
                "diff": "" if one.is_refused else difference(one),
                "decisions": [to_json(finding) for finding in one.decisions],
            }
            for one in found
        ]
    }


def exit_code(found: Sequence[ImportedFile], is_check: bool) -> int:
    """2 where a file was refused; with `--check` 1 where one would change."""
    if any(one.is_refused for one in found):
        return EXIT_USAGE
    return EXIT_FAILURE if is_check and any(one.is_changed for one in found) else EXIT_OK
