"""Detection of the hand-off of an agent whose context is full (`loops.md` 10).

A separate module with few imports, because scripted worlds use it without starting an agent.
"""

from __future__ import annotations

import re

_HANDOFF = re.compile(r"^[ \t>*#`_-]*CONTEXT_HANDOFF:[*`_]*[ \t]*", re.MULTILINE)
# Maximum number of characters of a hand-off.
MAX_HANDOFF = 64 * 1024


def handoff_of(output: str) -> str | None:
    """The hand-off text in an agent's output; None if there is no hand-off.

    The text after `CONTEXT_HANDOFF:` at the start of a line, or the text before it if nothing follows.
    """
    if "CONTEXT_HANDOFF:" not in output:
        return None
    match = _HANDOFF.search(output)
    if match is None:
        return None
    after, before = output[match.end() :].strip(), output[: match.start()].strip()
    return after[:MAX_HANDOFF] or before[-MAX_HANDOFF:] or "(it said nothing more)"
