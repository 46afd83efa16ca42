"""The verbs for memory: index, context."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from ..errors import EXIT_FAILURE, EXIT_OK
from .plumbing import JSON, command, option, warn, write, write_json


@command(
    (),
    option(bool, "rebuild", "--rebuild", help="Throw the index away and make it again.", default=False),
    JSON,
    examples=("llc index", "llc index --rebuild"),
)
def index(given: dict[str, Any]) -> int:
    from ..memory import report
    from ..store import runs

    update, listing, notices = report.bring_up_to_date(runs.ROOT, given["rebuild"])
    if given["json"]:
        write_json(report.index_json(runs.ROOT, update, listing, notices))
    else:
        for notice in notices:
            warn(notice)
        write(report.index_text(update))
    return EXIT_OK


@command(
    (),
    inspect.Parameter(
        "query",
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[
            list[str],
            typer.Argument(help="Words, names or a question.", metavar="QUERY…", show_default=False),
        ],
    ),
    inspect.Parameter(
        "limit",
        inspect.Parameter.KEYWORD_ONLY,
        default=10,
        annotation=Annotated[
            int, typer.Option("-n", "--limit", help="How many files at most.", metavar="N", min=1, max=200)
        ],
    ),
    option(
        str,
        "strategy",
        "--strategy",
        help="content: by what files hold; metadata: by what they are called, say at the top and define.",
        default="content",
        metavar="NAME",
    ),
    option(bool, "rerank", "--rerank", help="Let a model put the best first.", default=False),
    option(str | None, "model", "--model", help="The model that does that.", metavar="MODEL"),
    JSON,
    examples=(
        "llc context parse config",
        'llc context "where are locks taken" -n 5',
        "llc context journal --strategy metadata",
    ),
)
def context(given: dict[str, Any]) -> int:
    from ..memory import recall, report
    from ..store import runs

    report.check_strategy(given["strategy"])
    wanted = {
        "query": " ".join(given["query"]),
        "matching_strategy": given["strategy"],
        **{name: given[name] for name in ("limit", "rerank", "model")},
    }
    answer = report.look_up(runs.ROOT, recall.read_request(wanted))
    if given["json"]:
        write_json(report.context_json(answer))
    else:
        for notice in answer.notices:
            warn(notice)
        if not answer.matches and not answer.notices:
            warn(report.nothing_text(answer, wanted["query"]))
        write(report.context_text(answer))
    return EXIT_OK if answer.matches else EXIT_FAILURE
