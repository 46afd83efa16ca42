"""`llc import`: convert loops of little-loops in place or into another folder, or only check them.

Owns the files and the report; `frontend.loop.importer` owns the conversion.
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
from .formatted_files import Formatted, difference, replace


class ImportedFile(Formatted):
    """A file and its conversion.

    name: path relative to the output folder. decisions: diagnostics that the user must decide; an error
    refuses the file. sources: the sources of these diagnostics.
    """

    name: str = ""
    decisions: Sequence[Diagnostic] = ()
    sources: Sequence[Source] = ()

    @property
    def is_refused(self) -> bool:
        return any(finding.is_error for finding in self.decisions)


def convert_all(targets: Iterable[str]) -> list[ImportedFile]:
    """Read and convert files, and all loops in folders. Raises UserError if there is nothing to read."""
    names: dict[str, str] = {}
    for target in targets:
        if files.isdir(target):
            names_in_folder = _files_in(target)
            if not names_in_folder:
                raise UserError("no-files", f"there are no loops in `{target}`", "name the files to import")
            names |= names_in_folder
        else:
            path = resolve_loop(target)
            if not path.endswith(LOOP_SUFFIXES):
                raise UserError("usage", f"`{target}` is not a YAML file", "only loops in YAML are imported")
            names[path] = os.path.basename(path)
    return [_convert(path, name) for path, name in names.items()]


def _files_in(folder: str) -> dict[str, str]:
    """Paths of the loops in a folder and its sub-folders, with their paths relative to it."""
    relative_paths = {}
    for path, folders, names in files.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(LOOP_SUFFIXES):
                file = os.path.join(path, name)
                relative_paths[file] = os.path.relpath(file, folder)
    return relative_paths


def _convert(path: str, name: str) -> ImportedFile:
    try:
        source = read_source(path, must_be_regular=True)
        imported = import_loop(source)
    except CompileError as error:
        return ImportedFile(path, name=name, decisions=error.diagnostics, sources=error.sources)
    text = source.text or ""
    decisions = tuple(in_order(imported.decisions))
    return ImportedFile(path, text, imported.text, None, name, decisions, imported.sources)


def write_all(results: Sequence[ImportedFile], folder: str | None) -> None:
    """Write the files that are not refused, to a folder or (None) in place. Raises UserError.

    No file in the folder is replaced.
    """
    if folder is None:
        for file in results:
            if file.is_changed and not file.is_refused:
                replace(file)
        return
    outputs: dict[str, ImportedFile] = {}
    for file in results:
        path = os.path.join(folder, file.name)
        if path in outputs:
            message = f"`{outputs[path].path}` and `{file.path}` would both become `{path}`"
            raise UserError("usage", message, "import them one after the other, to different folders")
        if files.lexists(path):
            raise UserError("cannot-write", f"`{path}` exists", "remove it, or name another folder")
        outputs[path] = file
    for path, file in outputs.items():
        if file.is_refused:
            continue
        try:
            files.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            write_file(path, file.result.encode())
        except (OSError, JournalError) as error:
            raise UserError("cannot-write", str(error)) from None


def as_text(results: Sequence[ImportedFile], verb: str, color: bool) -> str:
    """The decisions for the user, and a summary line. verb: past participle for the changed files."""
    parts = [render_all(file.decisions, file.sources, color) for file in results if file.decisions]
    changed = sum(file.is_changed and not file.is_refused for file in results)
    facts = [f"{len(results)} {'file' if len(results) == 1 else 'files'}", f"{changed} {verb}"]
    refused = sum(file.is_refused for file in results)
    if refused:
        facts.append(f"{refused} refused")
    decisions = sum(len(file.decisions) for file in results if not file.is_refused)
    if decisions:
        facts.append(f"{decisions} {'place' if decisions == 1 else 'places'} to check")
    return "".join(f"{part}\n\n" for part in parts) + ", ".join(facts) + "\n"


def as_json(results: Sequence[ImportedFile]) -> dict[str, Any]:
    return {
        "files": [
            {
                "file": file.path,
                "changed": file.is_changed and not file.is_refused,
                "refused": file.is_refused,
                "diff": "" if file.is_refused else difference(file),
                "decisions": [to_json(decision) for decision in file.decisions],
            }
            for file in results
        ]
    }


def exit_code(results: Sequence[ImportedFile], is_check: bool) -> int:
    """Exit code: 2 if a file was refused; with `--check` 1 if a file would change."""
    if any(file.is_refused for file in results):
        return EXIT_USAGE
    return EXIT_FAILURE if is_check and any(file.is_changed for file in results) else EXIT_OK
