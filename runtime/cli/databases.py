"""Database of a command line: choice of the address, and the local folder with the runs of the database.

The option has precedence over the environment, which has precedence over the project's configuration. `none`
selects the runs in the project folder. `--on cluster` selects the configured database; without `--on`, a run
starts on this machine.
"""

from __future__ import annotations

import os.path

from ...ir.python_internals import suppress
from ..host import environment, files
from ..host.errors import UserError
from ..host.paths import HISTORY, LOOPS, ROOT, RUNNING
from ..host.secrets import DATABASE as VARIABLE
from ..project import configuration
from . import output, project_folder, subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NONE, CLUSTER = "none", "cluster"
# Subcommands that read the runs of a database in a folder that replaces the project (`database.views`).
# Values: the runs without a target (ended: True, unfinished: False, all: None), their maximum number, and the
# parts of a run to load.
_VIEWS = {
    "status": (False, 20, "record"),
    "list": (False, 500, "ends"),
    "answer": (False, 500, "record"),
    "history": (True, 500, "record"),
    "ui": (None, 500, "record"),
    **dict.fromkeys(("attach", "profile", "graph", "diff"), (None, 1, "record")),
    **dict.fromkeys(("logs", "trace", "replay", "record", "report", "fork"), (None, 1, "outputs")),
}
# Folders of `.loops` to which subcommands write.
_WRITTEN_FOLDERS = {"record": ("tests",)}


def choose(subcommand: subcommands.Subcommand, values: dict[str, Any]) -> dict[str, Any]:
    """The option values, with the address of the chosen database in `db` or `on`. Raises UserError."""
    if values.get("on") == CLUSTER:
        url = default_url()
        if url is None:
            help = f"write `database: URL` into .loops/config.yaml, set {VARIABLE}, or use --on URL"
            raise UserError("no-database", "no database is configured", help)
        return {**values, "on": url}
    if all(row.name != "db" for row in subcommand.options):
        return values
    if subcommand.name == "diff" and values.get("target") is None:
        if values.get("db") not in (None, NONE):
            raise UserError("bad-option", "name the run in the database", "llc status --db URL")
        return {**values, "db": None}
    url = values.get("db")
    if url is None and not _is_local_run(values.get("target") or values.get("run")):
        url = default_url()
        if url is not None and subcommand.name in _VIEWS and not (values.get("json") or values.get("quiet")):
            output.note("runs of the cluster's database; for the runs in this folder: --db none")
    if url == NONE and subcommand.name in ("db", "worker"):
        raise UserError(
            "bad-option", f"`llc {subcommand.name}` needs a database", "--db postgresql://user@host/name"
        )
    return {**values, "db": None if url == NONE else url}


def default_url() -> str | None:
    """The address in the environment or the project's configuration; None if neither has one."""
    with suppress(configuration.Unusable):  # reported when a program runs
        return environment.environ.get(VARIABLE) or configuration.load_usable(ROOT).database
    return None


def _is_local_run(target: object) -> bool:
    """Return whether the target is the id of a run in the project folder."""
    return isinstance(target, str) and any(
        files.isdir(os.path.join(folder, target)) for folder in (RUNNING, HISTORY) if target
    )


def enter(subcommand: subcommands.Subcommand, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Change to a folder with the runs of the database if the subcommand reads them.

    Returns the view of the database (None without one) and the option values with valid paths.
    """
    url = values.get("on" if subcommand.name == "fork" else "db")
    is_listing_loops = subcommand.name == "list" and not values.get("running")
    if url is None or subcommand.name not in _VIEWS or is_listing_loops:
        return None, values
    values = project_folder.leave([*subcommand.arguments, *subcommand.options], values)
    targets = [values[name] for name in ("target", "run", "other") if isinstance(values.get(name), str)]
    chosen = targets[1:] if subcommand.name == "graph" and len(targets) > 1 else targets
    if (
        subcommand.name == "record"
        and not files.isdir(LOOPS)
        and os.path.sep not in (values.get("output") or "")
    ):
        raise UserError(
            "bad-option", "outside a project, `record` needs the path of the case", "-o ./CASE.yaml"
        )
    more = _WRITTEN_FOLDERS.get(subcommand.name, ()), subcommand.name == "diff"
    view = subcommands.load_runtime("database.views:enter")(url, chosen, *_VIEWS[subcommand.name], *more)
    if view.is_cut and not chosen:
        output.note(f"only the latest {_VIEWS[subcommand.name][1]} runs; for others name a run or a loop")
    return view, values
