"""The verbs around runs: status, stop, attach, logs, profile, history, clean."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import typer

from .. import options
from ..errors import EXIT_FAILURE, EXIT_OK, UserError
from ..store.runs import HOW_TO_BEGIN
from ..terminal.screen import Screen
from .plumbing import JSON, argument, command, complete_any_run, complete_run, option, warn, write, write_json


def _target(help: str, complete: Any) -> inspect.Parameter:
    """A run's id or a loop's name, which may be left out."""
    about = typer.Argument(help=help, metavar="[RUN|LOOP]", autocompletion=complete, show_default=False)
    return inspect.Parameter(
        "target", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, about]
    )


@command(
    (),
    _target("A run's id, or a loop's name; without it, what has not ended.", complete_any_run),
    option(bool, "watch", "--watch", "-w", help="Show it again and again until the run ends.", default=False),
    JSON,
    examples=("llc status", "llc status fix-types --watch", "llc status fix-types --json"),
)
def status(given: dict[str, Any]) -> int:
    from ..inspection import status as look

    found = look.chosen(given["target"])
    if given["watch"] and len(found) == 1:
        return look.watch(found[0], given["json"], write)
    if given["watch"] and found:
        raise UserError("several-runs", f"{len(found)} runs can be watched", "name one of them")
    told = [look.of(run) for run in found]
    if given["json"]:
        write_json(told[0] if given["target"] is not None and len(told) == 1 else told)
    elif not told:
        write(f"no run is unfinished; {HOW_TO_BEGIN}, and see `llc history` for those that ended\n")
    else:
        screen = Screen(sys.stdout)
        width = screen.width - 1 if screen.is_live else 200
        write("\n".join(look.as_text(one, screen, width) for one in told))
    return EXIT_OK


@command(
    (),
    _target("A run's id, or a loop's name.", complete_run),
    option(bool, "all", "--all", help="Stop all that run: here, or of that loop.", default=False),
    option(
        float,
        "wait",
        "--wait",
        help="How long a run may take to stop by itself; then it is made to.",
        default=10.0,
        metavar="SECONDS",
    ),
    JSON,
    examples=("llc stop fix-types", "llc stop --all --wait 60"),
)
def stop(given: dict[str, Any]) -> int:
    from ..inspection import stopping

    found = stopping.chosen(given["target"], given["all"])
    results = stopping.stop(found, max(0.0, given["wait"]))
    if given["json"]:
        write_json([one.to_json() for one in results])
    elif not results:
        write("nothing is running\n")
    else:
        write("".join(one.as_text() + "\n" for one in results if one.how != "failed"))
    failed = [one for one in results if one.how == "failed"]
    if failed and not given["json"]:
        warn("\n".join(one.as_text() for one in failed))
    return EXIT_FAILURE if failed else EXIT_OK


@command(
    (),
    argument("target", "A run's id, or a loop's name.", complete_run, "RUN|LOOP"),
    option(
        bool, "stop", "--stop", help="Let Ctrl-C stop the run, as if it had been started here.", default=False
    ),
    option(bool, "verbose", "--verbose", "-v", help="Show more, as `run` does.", default=False),
    examples=("llc attach fix-types", "llc attach fix-types --stop"),
)
def attach(given: dict[str, Any]) -> int:
    from ..inspection import attaching
    from ..store import runs as folders

    return attaching.attach(folders.look_up(given["target"]), given["stop"], given["verbose"])


@command(
    (),
    argument("target", "A run's id, or a loop's name: its last run.", complete_any_run, "RUN|LOOP"),
    option(
        bool, "follow", "--follow", "-f", help="Go on with what comes, until the run ends.", default=False
    ),
    option(int | None, "last", "-n", help="Only the last N events.", metavar="N", min=0),
    option(bool, "verbose", "--verbose", "-v", help="Show all of each output.", default=False),
    option(bool, "json", "--json", help="Write the events as JSON, one in a line.", default=False),
    examples=("llc logs fix-types", "llc logs fix-types -f -n 20", "llc logs fix-types --json | jq .event"),
)
def logs(given: dict[str, Any]) -> int:
    from ..inspection import telling
    from ..store import runs as folders

    run = folders.look_up(given["target"])
    return telling.tell(run, given["follow"], given["json"], given["verbose"], given["last"], write)


@command(
    (),
    _target("A loop's name, or a run's id; without it, all that ended here.", complete_any_run),
    option(int, "count", "-n", help="So many runs, the latest.", default=20, metavar="N", min=1),
    JSON,
    examples=("llc history", "llc history fix-types -n 100", "llc history fix-types --json"),
)
def history(given: dict[str, Any]) -> int:
    from ..inspection import history as past

    told = past.look(given["target"], given["count"])
    if given["json"]:
        write_json(told)
    else:
        write(past.as_text(told, given["target"], Screen(sys.stdout)))
    return EXIT_OK


@command(
    (options.PROFILING[1],),
    argument("run", "A run's id or folder, or a loop's name: its last run.", complete_any_run),
    JSON,
    examples=("llc profile fix-types", "llc profile fix-types --flame fix-types.json"),
)
def profile(given: dict[str, Any]) -> int:
    from ..inspection import profiles

    found = profiles.of_run(given["run"])
    if given["flame"]:
        profiles.write_flame(found, given["flame"])
    if given["json"]:
        write_json(profiles.as_json(found))
    else:
        write(profiles.as_text(found, Screen(sys.stdout)))
    return EXIT_OK


@command(
    (),
    _target("Only runs of this loop, or this run.", complete_any_run),
    option(int | None, "keep", "--keep", help="Keep the latest N runs of each loop.", metavar="N", min=0),
    option(
        str | None, "older_than", "--older-than", help="Remove only what began so long ago.", metavar="AGE"
    ),
    option(
        bool, "dry_run", "--dry-run", help="Say what would be removed, and remove nothing.", default=False
    ),
    JSON,
    examples=("llc clean", "llc clean --older-than 30d --dry-run", "llc clean fix-types --keep 0"),
)
def clean(given: dict[str, Any]) -> int:
    from .. import configuration
    from ..store import cleaning
    from ..store import runs as folders

    keep, older_than = given["keep"], None
    if given["older_than"] is not None:
        older_than = configuration.age(given["older_than"])
        if older_than is None:
            raise UserError("bad-option", f"`{given['older_than']}` is no age", "such as 30d, 12h, 90m or 4w")
    elif keep is None:
        told = configuration.load(folders.ROOT)
        keep, older_than = told.keep, told.older_than
    gone, size, problems = cleaning.clean(folders.ROOT, given["target"], keep, older_than, given["dry_run"])
    if given["json"]:
        write_json({"removed": gone, "bytes": size, "dry_run": given["dry_run"], "problems": problems})
    else:
        verb = "would remove" if given["dry_run"] else "removed"
        count = f"{len(gone)} run{'' if len(gone) == 1 else 's'}"
        listed = "".join(f"{name}\n" for name in gone) if given["dry_run"] else ""
        write(listed + (f"{verb} {count} ({cleaning.in_bytes(size)})\n" if gone else "nothing to remove\n"))
        if problems:
            warn("\n".join(problems))
    return EXIT_FAILURE if problems else EXIT_OK
