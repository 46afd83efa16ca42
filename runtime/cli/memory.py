"""The verbs for memory: index, context."""

from __future__ import annotations

from ..host.errors import EXIT_FAILURE, EXIT_OK
from ..project.options import FLAG, NUMBER, TEXT, Option
from .declare import JSON, SOME, Argument, command
from .output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@command(
    (),
    Option("rebuild", "--rebuild", FLAG, "Throw the index away and make it again."),
    JSON,
    examples=("llc index", "llc index --rebuild"),
)
def index(given: dict[str, Any]) -> int:
    from ..host.paths import ROOT
    from ..memory import report

    update, listing, notices = report.bring_up_to_date(ROOT, given["rebuild"])
    if given["json"]:
        write_json(report.index_json(ROOT, update, listing, notices))
    else:
        for notice in notices:
            warn(notice)
        write(report.index_text(update))
    return EXIT_OK


@command(
    (),
    Argument("query", SOME, "Words, names or a question.", "QUERY…", None),
    Option("limit", "-n --limit", NUMBER, "How many files at most.", "N", default=10, least=1, most=200),
    Option(
        "strategy",
        "--strategy",
        TEXT,
        "content: by what files hold; metadata: by what they are called, say at the top and define.",
        "content|metadata",
        default="content",
    ),
    Option("rerank", "--rerank", FLAG, "Let a model put the best first."),
    Option("model", "--model", TEXT, "The model that does that.", "MODEL"),
    JSON,
    examples=(
        "llc context parse config",
        'llc context "where are locks taken" -n 5',
        "llc context journal --strategy metadata",
    ),
)
def context(given: dict[str, Any]) -> int:
    from ..host.paths import ROOT
    from ..memory import recall, report

    report.check_strategy(given["strategy"])
    wanted = {
        "query": " ".join(given["query"]),
        "matching_strategy": given["strategy"],
        **{name: given[name] for name in ("limit", "rerank", "model")},
    }
    answer = report.look_up(ROOT, recall.read_request(wanted))
    if given["json"]:
        write_json(report.context_json(answer))
    else:
        for notice in answer.notices:
            warn(notice)
        if not answer.matches and not answer.notices:
            warn(report.nothing_text(answer, wanted["query"]))
        write(report.context_text(answer))
    return EXIT_OK if answer.matches else EXIT_FAILURE
