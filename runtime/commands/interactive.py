"""The verb that talks: repl."""

from __future__ import annotations

from typing import Any

from .plumbing import command


@command(())
def repl(given: dict[str, Any]) -> int:
    from .. import repl as reading

    return reading.run()
