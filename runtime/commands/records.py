"""The verbs for what is on record: replay."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import EXIT_FAILURE, EXIT_OK
from ..screen import Screen
from .plumbing import JSON, argument, command, complete_any_run, option, write, write_json


@command(
    (),
    argument("run", "A run's id or folder, or a loop's name: its last run.", complete_any_run),
    option(
        str | None,
        "against",
        "--against",
        help="Tell the run with this program: where would it have differed?",
        metavar="LOOP",
    ),
    JSON,
    examples=("llc replay fix-types", "llc replay fix-types --against edited.yaml"),
)
def replay(given: dict[str, Any]) -> int:
    from .. import replaying

    told = replaying.replay(given["run"], given["against"])
    if given["json"]:
        write_json(told.to_json())
    else:
        write(told.as_text(Screen(sys.stdout).color))
    return EXIT_OK if told.is_identical else EXIT_FAILURE
