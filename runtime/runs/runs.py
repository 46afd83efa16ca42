"""Runs of a project: lists of unfinished and finished runs."""

from __future__ import annotations

import os.path

from ..host import files
from ..host.errors import Failure, reason, refuse_transient
from ..host.paths import HISTORY, RUNNING, make_private
from ..journal.run_folder import RunFolder, name_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

HOW_TO_BEGIN = "start one with: llc run LOOP"

_ID_SUFFIX_LENGTH = len("-YYYYMMDD-HHMMSS-xxxx")


def make_running_folder(root: str) -> str:
    """Return the folder of unfinished runs; create it if missing. Raises UserError."""
    path = os.path.join(root, RUNNING)
    try:
        make_private(path)
    except OSError as error:
        raise Failure(
            "cannot-write",
            f"cannot create {path}: {reason(error)}",
            "a run stores its journal there; start it in a writable directory",
        ) from None
    return path


def runs_in(root: str, folder: str = RUNNING, but: Container[str] = ()) -> Iterator[RunFolder]:
    """Yield the runs in RUNNING or HISTORY, latest first, except for the ids in `but`.

    Raises Failure if the folder of unfinished runs exists and cannot be listed.
    """
    parent = os.path.join(root, folder)
    try:
        names = files.listdir(parent)
    except FileNotFoundError:
        return
    except OSError as error:
        if folder == RUNNING and files.isdir(os.path.dirname(parent)):
            raise Failure("cannot-read", f"cannot read {parent}: {reason(error)}") from None
        refuse_transient(error, parent)
        return
    ids = [name for name in names if name not in but and name_in(name)]
    for name in sorted(ids, key=lambda run_id: (run_id[-20:], run_id), reverse=True):
        path = os.path.join(parent, name)
        if files.isdir(path):
            yield RunFolder(root, path)


def count_finished(root: str, name: str) -> int:
    """Return the number of finished runs of a name."""
    return len(_ids_of(root, HISTORY, name))


def unfinished_before(run: RunFolder) -> RunFolder | None:
    """Return the previous unfinished run of the same name, without reading any run; None if there is none."""
    ids = [run_id for run_id in _ids_of(run.root, RUNNING, run.name) if run_id < run.id]
    return RunFolder(run.root, os.path.join(run.root, RUNNING, max(ids))) if ids else None


def _ids_of(root: str, folder: str, name: str) -> list[str]:
    """Return the ids of the runs of a name in a folder."""
    try:
        ids = files.listdir(os.path.join(root, folder))
    except OSError:
        return []
    length = len(name) + _ID_SUFFIX_LENGTH
    return [run_id for run_id in ids if run_id.startswith(f"{name}-") and len(run_id) == length]
