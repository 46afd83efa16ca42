"""Model evaluation: the run's side of the `evaluate` effect (seed, `llm_structured`; `loops.md` 11).

The client runs in a helper process (`model_worker`): its import takes more than a second, which
passes while an agent works, and a call that hangs anywhere can be ended at once. Owns time, prices
and errors of that; `model_worker` owns the request and what counts as a reply.
"""

from __future__ import annotations

import contextlib
import os
import time

from . import masking
from .worker import START_LIMIT, Worker, WorkerEnded, WorkerTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .world import Context

DEFAULT_TIMEOUT = 30.0
_FIELDS = ("prompt", "output", "schema", "model", "max_tokens")


class ModelWorker:
    """Answers `evaluate` effects for one run."""

    __slots__ = ("_prices", "_worker")

    def __init__(self) -> None:
        self._worker = Worker("model_worker", dict(os.environb))
        self._prices: dict[str, tuple[float, float]] | None = None

    def start(self) -> None:
        """Begin to import the client, for a call that is to come."""
        with contextlib.suppress(WorkerEnded):  # the call itself will say so
            self._worker.start()

    def perform(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """{"reply"} or {"error"}, with `usage` where the model answered.

        `timeout_s` bounds the whole call, the client's retries included.
        """
        timeouts = {"timeout_s": DEFAULT_TIMEOUT, **_given(args)}
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
            usage["usd"] = self.price(args["model"], usage["input_tokens"], usage["output_tokens"])
        result["duration_ms"] = round((time.monotonic() - started) * 1000)
        result["elapsed_ms"] = context.elapsed_ms()
        if timed_out is not None:
            result["timed_out"] = timed_out
        return result

    def price(self, model: str, read: int, written: int) -> float | None:
        """What so many tokens cost in USD by `stdlib/prices.json`; None for a model not in it."""
        if self._prices is None:
            self._prices = load_prices()
        # `claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` does.
        name, _, date = model.rpartition("-")
        price = self._prices.get(model) or (self._prices.get(name) if len(date) == 8 else None)
        if price is None:
            return None
        return round((read * price[0] + written * price[1]) / 1_000_000, 9)

    def close(self) -> None:
        self._worker.close()


def load_prices() -> dict[str, tuple[float, float]]:
    """Model name → USD per million tokens of input and of output."""
    import json

    path = os.path.join(os.path.dirname(__file__), os.pardir, "stdlib", "prices.json")
    with open(path, encoding="utf-8") as file:
        models = json.load(file)["models"]
    return {name: (price[0], price[1]) for name, price in models.items()}


def _given(args: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
