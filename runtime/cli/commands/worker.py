"""The subcommand `worker`."""

from __future__ import annotations

from typing import Annotated

from ...launch import worker as launch
from .. import parameters as cli


def worker(
    db: cli.Database = None,
    label: Annotated[
        cli.Texts, cli.option("--label", "NAME", "Take runs that need this label; may be repeated.")
    ] = None,
    at_once: Annotated[
        cli.Count, cli.option("--at-once", "N", "Limit of concurrent runs (default 8).", least=1)
    ] = None,
    drain: Annotated[
        cli.Count,
        cli.option("--drain", "SECONDS", "Time for actions to continue after SIGTERM (default 30).", least=0),
    ] = None,
    machine: Annotated[
        cli.Text,
        cli.option(
            "--machine",
            "NAME",
            "Workers with the same name share the project's files (default: host and folder).",
        ),
    ] = None,
) -> int:
    """Drive the queued runs of this project; SIGTERM drains.

    Examples:
        llc worker --db postgresql://llc@db.example/llc
        LLC_DB=postgresql://llc@db.example/llc llc worker --label gpu --at-once 4
    """
    return launch.work(
        db,
        tuple(label or ()),
        at_once or launch.AT_ONCE,
        launch.DRAIN_S if drain is None else drain,
        machine,
    )
