"""The verb for what flows can call: tools."""

from __future__ import annotations

from ..errors import EXIT_OK
from .answers import write, write_json
from .declaring import ANY, JSON, Argument, command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def complete_tool(incomplete: str) -> list[str]:
    from ...frontend.tasks.registry import Declared
    from ..store import runs

    return [name for name in Declared(runs.LOOPS).names() if name.startswith(incomplete)]


_NAMES = Argument("names", ANY, "Tools and tasks to show in full.", "[NAME]…", complete_tool)


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
