"""The subcommand `test`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...host.errors import refuse_missing_folder
from ...host.screen import Screen
from ...journal import journal
from ...recordings import run_cases
from .. import parameters as cli
from ..output import write, write_json


def test(
    paths: Annotated[
        cli.Texts,
        cli.argument("[CASE]…", "Cases, or folders of cases; by default .loops/tests/.", cli.complete_case),
    ] = None,
    wanted: Annotated[cli.Text, cli.option("-k", "TEXT", "Only cases with this text in their path.")] = None,
    update: Annotated[
        bool, cli.option("--update", "", "Rewrite the expected results of failing cases.")
    ] = False,
    junit: Annotated[cli.Text, cli.option("--junit", "FILE.xml", "Write a JUnit report for CI.")] = None,
    json: cli.Json = False,
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
    for result in run_cases.run_cases(paths or [], wanted, update):
        results.append(result)
        if not json:
            write(run_cases.line(result, screen.color))
    if junit:
        journal.write_file(junit, run_cases.junit(results), durable=False)
    if json:
        write_json(run_cases.as_json(results))
    else:
        write(run_cases.summary(results))
    return run_cases.exit_code(results)
