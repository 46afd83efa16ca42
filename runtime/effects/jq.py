"""Performer of the `jq` effect: libjq in a helper process with limits of time and memory (`loops.md`)."""

from __future__ import annotations

from ..host.effect_context import Context
from ..models.helper_process import Worker, WorkerEnded, WorkerTimeout, bare_environment
from .performers import Parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Timeout of a jq program, in seconds.
LIMIT = 5.0


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Perform a `jq` effect."""
    return parts.keep("jq", JqWorker).perform(args, context)


class JqWorker:
    """Performs the `jq` effects of one run."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._worker = Worker("effects.jq_worker", bare_environment())

    def perform(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """{"value"}: the first value of `args["program"]` on the text `args["input"]`, or {"error"}."""
        request = {"program": args["program"], "input": args["input"], "limit": self._limit}
        try:
            return self._worker.ask(request, self._limit, context.interrupt, context.on_tick)
        except WorkerTimeout:
            message = f"the jq program ran for more than {self._limit:g} s"
            return {"error": {"kind": "timeout", "message": message}}
        except WorkerEnded as error:
            message = f"the helper process of the jq program ended without a result: {error}"
            return {"error": {"kind": "memory", "message": message}}

    def close(self) -> None:
        self._worker.close()
