"""The subcommand `history`."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK, UserError
from ...host.screen import Screen
from ...inspection import history as past
from ...inspection import run_metrics
from .. import parameters as cli
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def history(
    target: Annotated[
        cli.Text,
        cli.argument(
            "[RUN|LOOP]", "A loop's name, or a run's id; by default all finished runs.", cli.complete_any_run
        ),
    ] = None,
    count: Annotated[
        int | None, cli.option("-n", "N", "Only the last N runs [20; with metrics all].", least=1)
    ] = None,
    metrics: Annotated[
        bool, cli.option("--metrics", "", "Show metrics for each loop and state instead.")
    ] = False,
    prometheus: Annotated[
        bool, cli.option("--prometheus", "", "Print the metrics in the text format of Prometheus.")
    ] = False,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Show finished runs with totals.

    Examples:
        llc history
        llc history fix-types -n 100
        llc history fix-types --json
        llc history --metrics
    """

    if prometheus and json:
        raise UserError("usage", "`--prometheus` and `--json` exclude each other", "use one of them")
    if metrics or prometheus:
        rows = past.summarize(target, count)["runs"]
        if prometheus:
            write(run_metrics.as_prometheus(rows))
        elif json:
            write_json({"loops": run_metrics.by_loop(rows)})
        else:
            write(run_metrics.as_text(rows, Screen(sys.stdout)))
        return EXIT_OK
    report = past.summarize(target, count or past.DEFAULT_COUNT)
    if json:
        write_json(report)
    else:
        write(past.as_text(report, target, Screen(sys.stdout)))
    return EXIT_OK
