"""The runs of a project: unfinished ones and those in the history."""

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

_SUFFIX = len("-YYYYMMDD-HHMMSS-xxxx")


def make_running_folder(root: str) -> str:
    """The folder of unfinished runs, created if missing. Raises UserError."""
    path = os.path.join(root, RUNNING)
    try:
        make_private(path)
    except OSError as error:
        raise Failure(
            "cannot-write",
            f"cannot create {path}: {reason(error)}",
            "a run keeps its journal there; run it in a directory that can be written",
        ) from None
    return path


def runs_in(root: str, folder: str = RUNNING, but: Container[str] = ()) -> Iterator[RunFolder]:
    """The runs in RUNNING or HISTORY, latest first, without those in `but`.

    Raises Failure where unfinished runs may be there and cannot be listed.
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
    found = [name for name in names if name not in but and name_in(name)]
    for name in sorted(found, key=lambda run_id: (run_id[-20:], run_id), reverse=True):
        path = os.path.join(parent, name)
        if files.isdir(path):
            yield RunFolder(root, path)


def count_past(root: str, name: str) -> int:
    """The number of finished runs whose files are named after `name`."""
    return len(_called(root, HISTORY, name))


def unfinished_before(run: RunFolder) -> RunFolder | None:
    """The previous run of the same name if it is unfinished. Does not read other runs."""
    names = [name for name in _called(run.root, RUNNING, run.name) if name < run.id]
    return RunFolder(run.root, os.path.join(run.root, RUNNING, max(names))) if names else None


def _called(root: str, folder: str, name: str) -> list[str]:
    """The ids of the runs in a folder whose files are named after `name`."""
    try:
        found = files.listdir(os.path.join(root, folder))
    except OSError:
        return []
    return [one for one in found if one.startswith(f"{name}-") and len(one) == len(name) + _SUFFIX]
