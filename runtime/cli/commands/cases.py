"""The subcommands for recorded test cases: record, test."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK, refuse_missing_folder
from ...host.screen import Screen
from ...journal import journal
from ...recordings import case_writer, cases, find, make_case, run_cases
from .. import parameters as shared
from ..completers import complete_case
from ..output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def record(
    run: shared.Run,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="CASE",
            help="The case: a path, or a name in .loops/tests/; by default the loop's name.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing case.")] = False,
    json: shared.Json = False,
) -> int:
    """Make a test case of a run.

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


def test(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Cases, or folders of cases; by default .loops/tests/.",
            metavar="[CASE]…",
            autocompletion=complete_case,
        ),
    ] = None,
    wanted: Annotated[
        str | None, typer.Option("-k", metavar="TEXT", help="Only cases with this text in their path.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Rewrite the expected results of failing cases.")
    ] = False,
    junit: Annotated[
        str | None, typer.Option("--junit", metavar="FILE.xml", help="Write a JUnit report for CI.")
    ] = None,
    json: shared.Json = False,
) -> int:
    """Replay recorded test cases; report differences.

    Examples:
        llc test
        llc test -k types --update
        llc test tests/loops --junit report.xml
    """
    if junit:
        refuse_missing_folder(junit)
    screen = Screen(sys.stdout)
    results = []
    for tested in run_cases.tell_cases(paths or [], wanted, update):
        results.append(tested)
        if not json:
            write(run_cases.line(tested, screen.color))
    if junit:
        journal.write_file(junit, run_cases.junit(results), durable=False)
    if json:
        write_json(run_cases.as_json(results))
    else:
        write(run_cases.summary(results))
    return run_cases.exit_code(results)
