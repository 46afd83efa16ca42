"""Model evaluation: the run's side of the `evaluate` effect (seed, `llm_structured`; `loops.md` 11).

The client runs in a helper process (`model_worker`): its import takes more than a second, which
passes while an agent works, and a call that hangs anywhere can be ended at once. Owns time, prices
and errors of that (`prices`); `model_worker` owns the request and what counts as a reply. A model of
another provider is asked as tasks ask it (`models`).
"""

from __future__ import annotations

import contextlib
import os
import time

from ..store import masking
from ..store.runs import CONFIG, LOOPS, ROOT
from .prices import Prices
from .worker import START_LIMIT, Worker, WorkerEnded, WorkerTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..configuration import ModelEntry
    from ..models.choice import Model
    from ..models.client import ModelClient
    from .world import Context

DEFAULT_TIMEOUT = 30.0
_CONFIG = os.path.join(ROOT, LOOPS, CONFIG)
_FIELDS = ("prompt", "output", "schema", "model", "max_tokens")


class ModelWorker:
    """Answers `evaluate` effects for one run."""

    __slots__ = ("_client", "_entries", "_prices", "_worker")

    def __init__(self) -> None:
        self._worker = Worker("effects.model_worker", dict(os.environb))
        self._prices = Prices()
        self._client: ModelClient | None = None
        self._entries: dict[str, ModelEntry] | None = None

    def start(self) -> None:
        """Begin to import the client, for a call that is to come."""
        with contextlib.suppress(WorkerEnded):  # the call itself will say so
            self._worker.start()

    def perform(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """{"reply"} or {"error"}, with `usage` where the model answered.

        `timeout_s` bounds the whole call, the client's retries included.
        """
        timeouts = {"timeout_s": DEFAULT_TIMEOUT, **_given(args)}
        elsewhere = self._elsewhere(args["model"])
        if elsewhere is not None:
            return self._ask_elsewhere(elsewhere, args, timeouts, context)
        started = time.monotonic()
        timed_out = None
        # The time the client takes to start is the run's, not the call's.
        seconds, limited_by = context.limit({**timeouts, "timeout_s": START_LIMIT}, own="action")
        try:
            self._worker.ready(seconds or 0.0, context.interrupt, context.on_tick)
            seconds, limited_by = context.limit(timeouts, own="action")
            if seconds is None or seconds <= 0:
                raise WorkerTimeout
            # A model can judge an output without the secrets in it.
            request = {name: masking.known.mask_all(args[name]) for name in _FIELDS}
            request["timeout"] = seconds
            result = self._worker.ask(request, seconds, context.interrupt, context.on_tick)
        except WorkerTimeout:
            timed_out = limited_by
            limit = "before the loop's time was over" if limited_by == "loop" else f"within {seconds:g} s"
            result = _error("timeout", f"no reply {limit}")
        except WorkerEnded as error:
            result = _error("client", f"the model client failed: {error}")
        usage = result.get("usage")
        if usage is not None:
            usage["usd"] = self._prices.cost(args["model"], usage)
        result["duration_ms"] = round((time.monotonic() - started) * 1000)
        result["elapsed_ms"] = context.elapsed_ms()
        if timed_out is not None:
            result["timed_out"] = timed_out
        return result

    def _elsewhere(self, name: str) -> Model | None:
        """The model that a name means, where that is not one of the Messages API as it is."""
        if name.startswith("claude-") and not os.path.lexists(_CONFIG):
            return None
        from ..models import choice

        if self._entries is None:
            from .. import configuration

            self._entries = configuration.load(ROOT).models
        model = choice.choose(name, self._entries)
        return None if model == choice.Model(name, choice.DEFAULT) else model

    def _ask_elsewhere(
        self, model: Model, args: dict[str, Any], limits: dict[str, Any], context: Context
    ) -> dict[str, Any]:
        """The same of another provider: a message, and a tool with the schema."""
        from ..models import replies
        from ..models.client import ModelClient
        from ..models.prompt import message

        if self._client is None:
            self._client = ModelClient()
        started = time.monotonic()
        content = f"{args['prompt']}\n\n<action_output>\n{args['output']}\n</action_output>"
        request = {
            "system": "",
            "messages": [message("user", (content, False))],
            "max_tokens": args["max_tokens"],
            "schema": replies.tool_schema(args["schema"]),
        }
        said = self._client.complete(model, request, context, limits, is_shown=False)
        result: dict[str, Any] = {
            name: said[name] for name in ("error", "usage", "timed_out") if name in said
        }
        if "error" not in said:
            reply, problem = replies.read(said, args["schema"])
            if problem:
                kind = "invalid-reply" if "data" in said else "no-tool-call"
                result |= _error(kind, problem)
            else:
                result["reply"] = reply
        result["duration_ms"] = round((time.monotonic() - started) * 1000)
        result["elapsed_ms"] = context.elapsed_ms()
        return result

    def close(self) -> None:
        self._worker.close()
        if self._client is not None:
            self._client.close()
            self._client = None


def _given(args: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
