"""The verb for what flows can call: tools."""

from __future__ import annotations

from ..host.errors import EXIT_OK
from .declare import ANY, JSON, Argument, command
from .output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def complete_tool(incomplete: str) -> list[str]:
    from ...frontend.tasks.registry import TaskRegistry
    from ..host.paths import LOOPS

    return [name for name in TaskRegistry(LOOPS).names() if name.startswith(incomplete)]


_NAMES = Argument("names", ANY, "Tools and tasks to show in full.", "[NAME]…", complete_tool)


@command((), _NAMES, JSON)
def tools(given: dict[str, Any]) -> int:
    from ..effects import tool_listing

    names = given["names"] or []
    found = tool_listing.signatures(names)
    if given["json"]:
        write_json(tool_listing.as_json(found))
    else:
        write(tool_listing.as_text(found, bool(names)))
    return EXIT_OK
