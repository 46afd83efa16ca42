"""The subcommand `clean`."""

from __future__ import annotations

from ...host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ...host.paths import ROOT
from ...host.screen import counted
from ...inspection import abandon
from ...project import configuration, settings
from ...runs import retention
from .. import parameters as cli
from .. import subcommands
from ..output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def clean(
    target: Annotated[
        cli.Text, cli.argument("[RUN|LOOP]", "Only runs of this loop, or this run.", cli.complete_any_run)
    ] = None,
    keep: Annotated[
        cli.Count, cli.option("--keep", "N", "Keep the last N runs of each loop.", least=0)
    ] = None,
    older_than: Annotated[
        cli.Text, cli.option("--older-than", "AGE", "Remove only runs older than this.")
    ] = None,
    size: Annotated[
        cli.Text, cli.option("--size", "SIZE", "Remove the oldest runs until all use at most this.")
    ] = None,
    unfinished: Annotated[
        bool, cli.option("--unfinished", "", "Abandon crashed and stopped runs instead.")
    ] = False,
    dry_run: Annotated[
        bool, cli.option("--dry-run", "", "Show the runs that would be removed; remove nothing.")
    ] = False,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Remove old finished runs: their journals, outputs and programs; files changed by runs stay as they are.

    Examples:
        llc clean
        llc clean --older-than 30d --dry-run
        llc clean fix-types --keep 0
        llc clean --size 2GB
        llc clean fix-types --unfinished
    """
    age = limit = None
    if size is not None:
        limit = settings.size(size)
        if limit is None:
            raise UserError("bad-option", f"`{size}` is not a size", "such as 2GB, 1.5GB or 300MB")
    if older_than is not None:
        age = settings.age(older_than)
        if age is None:
            raise UserError("bad-option", f"`{older_than}` is not an age", "such as 30d, 12h, 90m or 4w")
    elif keep is None and size is None and not unfinished:
        keep, age, limit = configuration.load(ROOT).retention
    problems: list[str] = []
    if db is not None:
        removed = subcommands.load_runtime("database.removal:clean")(
            db, target, keep, age, limit, unfinished, dry_run
        )
    elif unfinished:
        removed, problems = abandon.remove_runs(abandon.select_runs(target, keep, age, limit), dry_run)
    else:
        removed, problems = retention.clean(ROOT, target, keep, age, limit, dry_run=dry_run)
    total = sum(amount for _, amount in removed)
    if json:
        names = [name for name, _ in removed]
        write_json({"removed": names, "bytes": total, "dry_run": dry_run, "problems": problems})
    else:
        verb = "would remove" if dry_run else "removed"
        count = counted(len(removed), "run")
        listed = (
            "".join(f"{name}  {retention.size_text(amount)}\n" for name, amount in removed) if dry_run else ""
        )
        listed += f"kept: {retention.policy_text(keep, age, limit)}\n" if dry_run else ""
        write(
            listed
            + (f"{verb} {count} ({retention.size_text(total)})\n" if removed else "nothing to remove\n")
        )
        if problems:
            warn("\n".join(problems))
    return EXIT_FAILURE if problems else EXIT_OK
