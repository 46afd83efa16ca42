"""The subcommand `record`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_OK
from ...recordings import case_writer, cases, find, make_case
from .. import parameters as cli
from ..output import warn, write, write_json


def record(
    run: cli.Run,
    output: Annotated[
        cli.Text,
        cli.option(
            "--output -o", "CASE", "The case: a path, or a name in .loops/tests/; by default the loop's name."
        ),
    ] = None,
    force: Annotated[bool, cli.option("--force", "", "Replace an existing case.")] = False,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Create a test case from a run.

    Examples:
        llc record fix-types
        llc record fix-types -o tests/loops/types-clean.yaml
    """
    path = cases.case_path(output) if output else None
    make_case.refuse_taken(path, force)
    case, notices = make_case.make(find.find_run(run), path)
    case_writer.write(case)
    for notice in notices:
        warn(f"note: {notice}")
    if json:
        write_json(
            {
                "case": case.path,
                "source": case.source or None,
                "normalized": list(case.normalized),
                "notes": notices,
            }
        )
    else:
        write(f"recorded {case.path}\n")
    return EXIT_OK
