"""The verbs around runs: status, stop, attach, logs, profile, history, clean."""

from __future__ import annotations

import sys

from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError, refuse_missing_folder
from ..host.screen import Screen
from ..project import options
from ..project.options import FLAG, NUMBER, SECONDS, TEXT, Option
from ..runs.runs import HOW_TO_BEGIN
from .declare import JSON, MAYBE, ONE, Argument, command, complete_any_run, complete_run
from .output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..project.options import Complete


def _target(help: str, complete: Complete) -> Argument:
    """A run's id or a loop's name, which may be left out."""
    return Argument("target", MAYBE, help, "[RUN|LOOP]", complete)


@command(
    (),
    _target("A run's id, or a loop's name; without it, what has not ended.", complete_any_run),
    Option("watch", "--watch -w", FLAG, "Show it again and again until the run ends."),
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
    Option("all", "--all", FLAG, "Stop all that run: here, or of that loop."),
    Option(
        "wait",
        "--wait",
        SECONDS,
        "How long a run may take to stop by itself; then it is made to.",
        "SECONDS",
        default=10.0,
        least=0,
    ),
    JSON,
    examples=("llc stop fix-types", "llc stop --all --wait 60"),
)
def stop(given: dict[str, Any]) -> int:
    from ..inspection import stop as stopping

    found = stopping.chosen(given["target"], given["all"])
    results = stopping.stop(found, given["wait"])
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
    Argument("target", ONE, "A run's id, or a loop's name.", "RUN|LOOP", complete_run),
    Option("stop", "--stop", FLAG, "Let Ctrl-C stop the run, as if it had been started here."),
    Option("verbose", "--verbose -v", FLAG, "Show more, as `run` does."),
    examples=("llc attach fix-types", "llc attach fix-types --stop"),
)
def attach(given: dict[str, Any]) -> int:
    from ..inspection import attach as attaching
    from ..runs.lookup import find_run_folder

    return attaching.attach(find_run_folder(given["target"]), given["stop"], given["verbose"])


@command(
    (),
    Argument("target", ONE, "A run's id, or a loop's name: its last run.", "RUN|LOOP", complete_any_run),
    Option("follow", "--follow -f", FLAG, "Go on with what comes, until the run ends."),
    Option("last", "-n", NUMBER, "Only the last N events.", "N", least=0),
    Option("verbose", "--verbose -v", FLAG, "Show all of each output."),
    Option("json", "--json", FLAG, "Write the events as JSON, one in a line."),
    examples=("llc logs fix-types", "llc logs fix-types -f -n 20", "llc logs fix-types --json | jq .event"),
)
def logs(given: dict[str, Any]) -> int:
    from ..inspection import logs as telling
    from ..runs.lookup import find_run_folder

    run = find_run_folder(given["target"])
    return telling.show(run, given["follow"], given["json"], given["verbose"], given["last"], write)


@command(
    (),
    _target("A loop's name, or a run's id; without it, all that ended here.", complete_any_run),
    Option("count", "-n", NUMBER, "So many runs, the latest.", "N", default=20, least=1),
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
    Argument("run", ONE, "A run's id or folder, or a loop's name: its last run.", "RUN", complete_any_run),
    JSON,
    examples=("llc profile fix-types", "llc profile fix-types --flame fix-types.json"),
)
def profile(given: dict[str, Any]) -> int:
    from ..inspection import profile_report

    if given["flame"]:
        refuse_missing_folder(given["flame"])
    found = profile_report.of_run(given["run"])
    if given["flame"]:
        profile_report.write_flame(found, given["flame"])
    if given["json"]:
        write_json(profile_report.as_json(found))
    else:
        write(profile_report.as_text(found, Screen(sys.stdout)))
    return EXIT_OK


@command(
    (),
    _target("Only runs of this loop, or this run.", complete_any_run),
    Option("keep", "--keep", NUMBER, "Keep the latest N runs of each loop.", "N", least=0),
    Option("older_than", "--older-than", TEXT, "Remove only what began so long ago.", "AGE"),
    Option("unfinished", "--unfinished", FLAG, "Give up what was cut off or interrupted instead."),
    Option("dry_run", "--dry-run", FLAG, "Say what would be removed, and remove nothing."),
    JSON,
    examples=(
        "llc clean",
        "llc clean --older-than 30d --dry-run",
        "llc clean fix-types --keep 0",
        "llc clean fix-types --unfinished",
    ),
)
def clean(given: dict[str, Any]) -> int:
    from ..host.paths import ROOT
    from ..project import configuration, settings
    from ..runs import retention

    keep, older_than = given["keep"], None
    if given["older_than"] is not None:
        older_than = settings.age(given["older_than"])
        if older_than is None:
            raise UserError("bad-option", f"`{given['older_than']}` is no age", "such as 30d, 12h, 90m or 4w")
    elif keep is None and not given["unfinished"]:
        told = configuration.load(ROOT)
        keep, older_than = told.keep, told.older_than
    if given["unfinished"]:
        from ..inspection import abandon

        found = abandon.chosen(given["target"], keep, older_than)
        gone, size, problems = abandon.forget(found, given["dry_run"])
    else:
        root = ROOT
        gone, size, problems = retention.clean(root, given["target"], keep, older_than, given["dry_run"])
    if given["json"]:
        write_json({"removed": gone, "bytes": size, "dry_run": given["dry_run"], "problems": problems})
    else:
        verb = "would remove" if given["dry_run"] else "removed"
        count = f"{len(gone)} run{'' if len(gone) == 1 else 's'}"
        listed = "".join(f"{name}\n" for name in gone) if given["dry_run"] else ""
        write(listed + (f"{verb} {count} ({retention.in_bytes(size)})\n" if gone else "nothing to remove\n"))
        if problems:
            warn("\n".join(problems))
    return EXIT_FAILURE if problems else EXIT_OK
