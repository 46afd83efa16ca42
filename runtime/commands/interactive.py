"""The verb that talks: repl."""

from __future__ import annotations

from typing import Any

from .. import options
from .plumbing import command, values


@command(options.LIMITS)
def repl(given: dict[str, Any]) -> int:
    from .. import repl as reading

    return reading.run(values(options.LIMITS, "", given))
