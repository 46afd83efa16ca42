"""The database that a command line means, and the folder in which a command reads its runs.

The option comes first, then the environment, then the project's configuration; `none` means the runs in
the project's own folder. `--on` needs a word of its own, `cluster`: without it a run starts on this machine.
"""

from __future__ import annotations

import os.path

from ...ir.python_internals import suppress
from ..host import environment, files
from ..host.errors import UserError
from ..host.paths import HISTORY, LOOPS, ROOT, RUNNING
from ..host.secrets import DATABASE as VARIABLE
from ..project import configuration
from . import output, project_folder, verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NONE, CLUSTER = "none", "cluster"
# They read the runs of a database in a folder that takes the place of the project (`database.views`). Without
# a target they have ended runs, others, or both (None); then how many at most, and what of them.
_VIEWS = {
    "status": (False, 20, "record"),
    "list": (False, 500, "ends"),
    "answer": (False, 500, "record"),
    "history": (True, 500, "record"),
    "ui": (None, 500, "record"),
    **dict.fromkeys(("attach", "profile", "graph", "diff"), (None, 1, "record")),
    **dict.fromkeys(("logs", "trace", "replay", "record", "report", "fork"), (None, 1, "outputs")),
}
# Folders of `.loops` that commands write to.
_WRITTEN = {"record": ("tests",)}


def choose(verb: verbs.Verb, given: dict[str, Any]) -> dict[str, Any]:
    """The values of a command line with the address of the database that it means. Raises UserError."""
    if given.get("on") == CLUSTER:
        url = named()
        if url is None:
            help = f"write `database: URL` into .loops/config.yaml, set {VARIABLE}, or say --on URL"
            raise UserError("no-database", "no database is named", help)
        return {**given, "on": url}
    if all(row.name != "db" for row in verb.options):
        return given
    if verb.name == "diff" and given.get("target") is None:
        if given.get("db") not in (None, NONE):
            raise UserError("bad-option", "name the run in the database", "llc status --db URL")
        return {**given, "db": None}
    asked = given.get("db")
    if asked is None and not _is_here(given.get("target") or given.get("run")):
        asked = named()
        if asked is not None and verb.name in _VIEWS and not (given.get("json") or given.get("quiet")):
            output.note("in the database of the cluster; --db none: in this folder")
    if asked == NONE and verb.name in ("db", "worker"):
        raise UserError(
            "bad-option", f"`llc {verb.name}` needs a database", "--db postgresql://user@host/name"
        )
    return {**given, "db": None if asked == NONE else asked}


def named() -> str | None:
    """The address that the environment or the project names; None without one."""
    with suppress(configuration.Unusable):  # reported when something runs
        return environment.environ.get(VARIABLE) or configuration.load_usable(ROOT).database
    return None


def _is_here(target: object) -> bool:
    """Whether this is the id of a run in the project's folder."""
    return isinstance(target, str) and any(
        files.isdir(os.path.join(folder, target)) for folder in (RUNNING, HISTORY) if target
    )


def enter(verb: verbs.Verb, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Go to a folder with the runs of the database, if the command reads such: the view, and the values."""
    url = given.get("on" if verb.name == "fork" else "db")
    is_listing_loops = verb.name == "list" and not given.get("running")
    if url is None or verb.name not in _VIEWS or is_listing_loops:
        return None, given
    given = project_folder.leave([*verb.arguments, *verb.options], given)
    named = [given[name] for name in ("target", "run", "other") if isinstance(given.get(name), str)]
    chosen = named[1:] if verb.name == "graph" and len(named) > 1 else named
    if verb.name == "record" and not files.isdir(LOOPS) and os.path.sep not in (given.get("output") or ""):
        raise UserError("bad-option", "outside of a project, name the file of the case", "-o ./CASE.yaml")
    more = _WRITTEN.get(verb.name, ()), verb.name == "diff"
    view = verbs.load("database.views:enter", 2)(url, chosen, *_VIEWS[verb.name], *more)
    if view.is_cut and not chosen:
        output.note(f"these are the latest {_VIEWS[verb.name][1]}; for others name a run or a loop")
    return view, given
