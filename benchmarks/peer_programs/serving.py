"""Work on request: a line of JSON in, a line of JSON out, so that contestants can take turns."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def serve(measure: Callable[..., dict[str, Any]], **little: Any) -> None:
    """Answer each request with what `measure` gives; `little` is done first, to see that it works."""
    # What the peer prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(work: dict[str, Any]) -> None:
        answers.write(json.dumps(measure(**work)) + "\n")
        answers.flush()

    answer(little)
    for line in sys.stdin:
        answer(json.loads(line))


def bytes_in(folder: str) -> int:
    return sum(
        os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(folder) for name in names
    )
