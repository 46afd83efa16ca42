"""The subcommand `context`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_FAILURE, EXIT_OK
from ...host.paths import ROOT
from ...memory import recall, report
from .. import parameters as cli
from ..output import warn, write, write_json


def context(
    query: Annotated[list[str], cli.argument("QUERY…", "Words, names or a question.")],
    limit: Annotated[int, cli.option("-n --limit", "N", "Limit of files.", least=1, most=200)] = 10,
    strategy: Annotated[
        str,
        cli.option(
            "--strategy",
            "content|metadata",
            "content: search the text of files; metadata: their names, first lines and definitions.",
        ),
    ] = "content",
    rerank: Annotated[bool, cli.option("--rerank", "", "Have a model order the matches.")] = False,
    model: Annotated[cli.Text, cli.option("--model", "MODEL", "With --rerank: the model.")] = None,
    json: cli.Json = False,
) -> int:
    """Find the project's files that are relevant to a query.

    Examples:
        llc context parse config
        llc context "where are locks taken" -n 5
        llc context journal --strategy metadata
    """
    report.check_strategy(strategy)
    text = " ".join(query)
    request = {
        "query": text,
        "matching_strategy": strategy,
        "limit": limit,
        "rerank": rerank,
        "model": model,
    }
    answer = report.answer_request(ROOT, recall.read_request(request))
    if json:
        write_json(report.context_json(answer))
    else:
        for notice in answer.notices:
            warn(notice)
        if not answer.matches and not answer.notices:
            warn(report.nothing_text(answer, text))
        write(report.context_text(answer))
    return EXIT_OK if answer.matches else EXIT_FAILURE
