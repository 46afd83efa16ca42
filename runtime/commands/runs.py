"""The verbs around runs: status, stop, attach, logs, history, clean."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import typer

from ..errors import EXIT_FAILURE, EXIT_OK
from ..runs import HOW_TO_BEGIN
from ..screen import Screen
from .plumbing import JSON, command, complete_any_run, complete_run, option, warn, write, write_json


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
    from .. import status as look

    found = look.chosen(given["target"])
    if given["watch"] and len(found) == 1:
        return look.watch(found[0], given["json"], write)
    if given["watch"] and found:
        from ..errors import UserError

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
        help="How long a run may take to stop by itself (default 10); then it is made to.",
        default=10.0,
        metavar="SECONDS",
    ),
    JSON,
    examples=("llc stop fix-types", "llc stop --all --wait 60"),
)
def stop(given: dict[str, Any]) -> int:
    from .. import stopping

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
