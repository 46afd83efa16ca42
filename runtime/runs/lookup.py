"""Resolution of a run's id, or the name or path of its loop, to a run."""

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

# The options by which a run here is resumed: another store than the project's folder has the runs.
resume_options = ""


def how_to_resume(run_id: str) -> str:
    return f"Resume with: llc resume {run_id}{resume_options}"


def find_unfinished(target: str, root: str = ROOT) -> RunFolder:
    """The unfinished run with this id, or the last unfinished one of a loop. Raises UserError."""
    running = list(runs_in(root))
    for run in running:
        if run.id == target:
            return run
    running = [run for run in running if not run.is_husk()]
    for run in running:
        if is_run_of(run, target):
            return run
    for run in runs_in(root, HISTORY):
        if run.id == target or is_run_of(run, target):
            raise UserError(
                "run-ended",
                f"there is nothing to resume: {run.id} has ended",
                f"its journal is {run.journal}",
            )
    names = [name for run in running for name in (str(run.about().get("program", run.name)), run.id)]
    help = suggest(target, names, "unfinished runs") or f"no run in {RUNNING}/ is unfinished"
    if environment.environ.get(DATABASE):
        help += f"; one of the cluster: llc resume {target} --on cluster"
    raise UserError("unknown-run", f"no unfinished run of `{target}`", help)


def find_run_folder(target: str, root: str = ROOT) -> RunFolder:
    """The run with this id or in this folder, or the last one of a loop; unfinished runs come first.

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
        raise UserError("unknown-run", f"no run of `{target}`: nothing was run here yet", HOW_TO_BEGIN)
    if is_loop(target, root):
        raise UserError("unknown-run", f"`{target}` was not run yet", f"run it with: llc run {target}")
    names = dict.fromkeys(name for run in (*unfinished, *ended) for name in (run.name, run.id))
    raise UserError("unknown-run", f"no run of `{target}`", suggest(target, names, "runs here"))


def is_run_of(run: RunFolder, target: str) -> bool:
    """Whether `target` is the program's name, or the name or path that the run was started with."""
    about = run.about()
    if not about:
        return run.name == slug(target)
    path = str(about.get("path", ""))
    stem = os.path.splitext(os.path.basename(path))[0]
    return target in (about.get("program"), path, stem if path.startswith(LOOPS + os.path.sep) else None)
