"""The verb for what flows can call: tools."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from ..errors import EXIT_OK
from .plumbing import JSON, command, write, write_json


def complete_tool(incomplete: str) -> list[str]:
    from ...frontend.declared import Declared
    from ..store import runs

    return [name for name in Declared(runs.LOOPS).names() if name.startswith(incomplete)]


_NAMES = inspect.Parameter(
    "names",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        list[str] | None,
        typer.Argument(
            help="Tools and tasks to show in full.", metavar="[NAME]…", autocompletion=complete_tool
        ),
    ],
)


@command((), _NAMES, JSON)
def tools(given: dict[str, Any]) -> int:
    from ..effects import toolbox

    names = given["names"] or []
    found = toolbox.signatures(names)
    if given["json"]:
        write_json(toolbox.as_json(found))
    else:
        write(toolbox.as_text(found, bool(names)))
    return EXIT_OK
