"""Run lookup: finds a run by its id, its folder, or the name or path of its loop."""

from __future__ import annotations

import os.path

from ..host import environment, files
from ..host.errors import UserError, suggest
from ..host.paths import HISTORY, LOOPS, ROOT, RUNNING, slug
from ..host.secrets import DATABASE
from ..journal.run_folder import RunFolder
from . import locks
from .loop_names import is_loop
from .runs import HOW_TO_BEGIN, runs_in

# Options to append to `llc resume` commands in messages; set if the runs are in a database.
resume_options = ""


def how_to_resume(run_id: str) -> str:
    return f"Resume with: llc resume {run_id}{resume_options}"


def find_unfinished(target: str, root: str = ROOT) -> RunFolder:
    """Find the unfinished run with this id, or the latest unfinished run of a loop. Raises UserError."""
    running = list(runs_in(root))
    for run in running:
        if run.id == target:
            return run
    running = [run for run in running if not run.is_unrecorded()]
    for run in running:
        if is_run_of(run, target):
            return run
    for run in runs_in(root, HISTORY):
        if run.id == target or is_run_of(run, target):
            raise UserError(
                "run-ended", f"{run.id} cannot be resumed: it has ended", f"its journal is {run.journal}"
            )
    names = [name for run in running for name in (str(run.about().get("program", run.name)), run.id)]
    help = suggest(target, names, "unfinished runs") or f"no run in {RUNNING}/ is unfinished"
    if environment.environ.get(DATABASE):
        help += f"; for a run of the cluster: llc resume {target} --on cluster"
    raise UserError("unknown-run", f"no unfinished run of `{target}`", help)


def find_run_folder(target: str, root: str = ROOT) -> RunFolder:
    """Find the run with this id or in this folder, or the latest run of a loop; prefer unfinished runs.

    Raises UserError.
    """
    path = os.path.join(root, target)
    if os.path.sep in target and files.isdir(path):
        return RunFolder.at(root, os.path.normpath(path))
    unfinished = locks.unfinished(root)
    ended = list(runs_in(root, HISTORY))
    for run in (*unfinished, *ended):
        if run.id == target:
            return run
    for run in (*unfinished, *ended):
        if is_run_of(run, target):
            return run
    if not unfinished and not ended:
        raise UserError("unknown-run", f"no run of `{target}`: this project has no runs yet", HOW_TO_BEGIN)
    if is_loop(target, root):
        raise UserError("unknown-run", f"`{target}` was not run yet", f"run it with: llc run {target}")
    names = dict.fromkeys(name for run in (*unfinished, *ended) for name in (run.name, run.id))
    raise UserError("unknown-run", f"no run of `{target}`", suggest(target, names, "runs here"))


def is_run_of(run: RunFolder, target: str) -> bool:
    """Whether `target` is the name of the run's program, or the name or path with which it was started."""
    about = run.about()
    if not about:
        return run.name == slug(target)
    path = str(about.get("path", ""))
    stem = os.path.splitext(os.path.basename(path))[0]
    return target in (about.get("program"), path, stem if path.startswith(LOOPS + os.path.sep) else None)
