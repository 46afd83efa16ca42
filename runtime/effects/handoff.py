"""Hand-off of an agent whose context is full (`loops.md` 10): how it says so, and what it hands on.

Light, because scripted worlds use it too, and they start no agent.
"""

from __future__ import annotations

import re

_HANDOFF = re.compile(r"^[ \t>*#`_-]*CONTEXT_HANDOFF:[*`_]*[ \t]*", re.MULTILINE)
# Characters of a hand-off that are carried on.
LONGEST_HANDOFF = 64 * 1024


def handoff_of(output: str) -> str | None:
    """What an agent whose context is full hands on: all after `CONTEXT_HANDOFF:` at the start of a line.

    Where nothing follows, what it said before; None where it does not hand over.
    """
    if "CONTEXT_HANDOFF:" not in output:
        return None
    found = _HANDOFF.search(output)
    if found is None:
        return None
    after, before = output[found.end() :].strip(), output[: found.start()].strip()
    return after[:LONGEST_HANDOFF] or before[-LONGEST_HANDOFF:] or "(it said nothing more)"
