"""The subcommands for runs: status, stop, attach, logs, profile, history, clean."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_FAILURE, EXIT_OK, UserError, refuse_missing_folder
from ...host.paths import ROOT
from ...host.screen import Screen
from ...project import configuration, settings
from ...runs import retention
from ...runs.lookup import find_run_folder
from ...runs.runs import HOW_TO_BEGIN
from .. import parameters as shared
from ..completers import complete_any_run, complete_run
from ..output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

# These start as quickly as a run, so each imports only the view that it shows.


def status(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A run's id, or a loop's name; by default all unfinished runs.",
            metavar="[RUN|LOOP]",
            autocompletion=complete_any_run,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update until the run ends.")] = False,
    json: shared.Json = False,
) -> int:
    """Show the state and progress of a run.

    Examples:
        llc status
        llc status fix-types --watch
        llc status fix-types --json
    """
    from ...inspection import status as look

    found = look.chosen(target)
    if watch and len(found) == 1:
        return look.watch(found[0], json, write)
    if watch and found:
        raise UserError("several-runs", f"{len(found)} runs can be watched", "name one of them")
    told = [look.of(run) for run in found]
    if json:
        write_json(told[0] if target is not None and len(told) == 1 else told)
    elif not told:
        write(f"no run is unfinished; {HOW_TO_BEGIN}, and see `llc history` for those that ended\n")
    else:
        screen = Screen(sys.stdout)
        width = screen.width - 1 if screen.is_live else 200
        write("\n".join(look.as_text(one, screen, width) for one in told))
    return EXIT_OK


def stop(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A run's id, or a loop's name.", metavar="[RUN|LOOP]", autocompletion=complete_run
        ),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Stop all runs here, or of the loop.")] = False,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="Seconds to wait before the run is killed."),
    ] = 10.0,
    json: shared.Json = False,
) -> int:
    """Stop runs; they can be resumed.

    Examples:
        llc stop fix-types
        llc stop --all --wait 60
    """
    from ...inspection import stop as stopping

    results = stopping.stop(stopping.chosen(target, all), wait)
    if json:
        write_json([one.to_json() for one in results])
    elif not results:
        write("nothing is running\n")
    else:
        write("".join(one.as_text() + "\n" for one in results if one.how != "failed"))
    failed = [one for one in results if one.how == "failed"]
    if failed and not json:
        warn("\n".join(one.as_text() for one in failed))
    return EXIT_FAILURE if failed else EXIT_OK


def attach(
    target: Annotated[
        str,
        typer.Argument(help="A run's id, or a loop's name.", metavar="RUN|LOOP", autocompletion=complete_run),
    ],
    stop: Annotated[
        bool, typer.Option("--stop", help="Let Ctrl-C stop the run, as if it had been started here.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show more, as `run` does.")] = False,
) -> int:
    """Show the progress of an active run, as if it had been started here.

    Examples:
        llc attach fix-types
        llc attach fix-types --stop
    """
    from ...inspection import attach as attaching

    return attaching.attach(find_run_folder(target), stop, verbose)


def logs(
    target: Annotated[
        str,
        typer.Argument(
            help="A run's id, or a loop's name for its last run.",
            metavar="RUN|LOOP",
            autocompletion=complete_any_run,
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events until the run ends.")
    ] = False,
    last: Annotated[
        int | None, typer.Option("-n", metavar="N", min=0, help="Only the last N events.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the whole of each output.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write the events as JSON, one per line.")] = False,
) -> int:
    """Show the events of a run.

    Examples:
        llc logs fix-types
        llc logs fix-types -f -n 20
        llc logs fix-types --json | jq .event
    """
    from ...inspection import logs as telling

    return telling.show(find_run_folder(target), follow, json, verbose, last, write)


def history(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A loop's name, or a run's id; by default all finished runs.",
            metavar="[RUN|LOOP]",
            autocompletion=complete_any_run,
        ),
    ] = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, help="Only the last N runs.")] = 20,
    json: shared.Json = False,
) -> int:
    """Show finished runs with totals.

    Examples:
        llc history
        llc history fix-types -n 100
        llc history fix-types --json
    """
    from ...inspection import history as past

    told = past.look(target, count)
    if json:
        write_json(told)
    else:
        write(past.as_text(told, target, Screen(sys.stdout)))
    return EXIT_OK


def profile(run: shared.Run, json: shared.Json = False, flame: shared.Flame = None) -> int:
    """Show the time profile of a run.

    Examples:
        llc profile fix-types
        llc profile fix-types --flame fix-types.json
    """
    from ...inspection import profile_report

    if flame:
        refuse_missing_folder(flame)
    found = profile_report.of_run(run)
    if flame:
        profile_report.write_flame(found, flame)
    if json:
        write_json(profile_report.as_json(found))
    else:
        write(profile_report.as_text(found, Screen(sys.stdout)))
    return EXIT_OK


def clean(
    target: Annotated[
        str | None,
        typer.Argument(
            help="Only runs of this loop, or this run.",
            metavar="[RUN|LOOP]",
            autocompletion=complete_any_run,
        ),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=0, help="Keep the last N runs of each loop.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Remove only runs older than this."),
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Abandon crashed and stopped runs instead.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, without removing it.")
    ] = False,
    json: shared.Json = False,
) -> int:
    """Remove old finished runs.

    Examples:
        llc clean
        llc clean --older-than 30d --dry-run
        llc clean fix-types --keep 0
        llc clean fix-types --unfinished
    """
    age = None
    if older_than is not None:
        age = settings.age(older_than)
        if age is None:
            raise UserError("bad-option", f"`{older_than}` is no age", "such as 30d, 12h, 90m or 4w")
    elif keep is None and not unfinished:
        configured = configuration.load(ROOT)
        keep, age = configured.keep, configured.older_than
    if unfinished:
        from ...inspection import abandon

        gone, size, problems = abandon.forget(abandon.chosen(target, keep, age), dry_run)
    else:
        gone, size, problems = retention.clean(ROOT, target, keep, age, dry_run)
    if json:
        write_json({"removed": gone, "bytes": size, "dry_run": dry_run, "problems": problems})
    else:
        verb = "would remove" if dry_run else "removed"
        count = f"{len(gone)} run{'' if len(gone) == 1 else 's'}"
        listed = "".join(f"{name}\n" for name in gone) if dry_run else ""
        write(listed + (f"{verb} {count} ({retention.in_bytes(size)})\n" if gone else "nothing to remove\n"))
        if problems:
            warn("\n".join(problems))
    return EXIT_FAILURE if problems else EXIT_OK
