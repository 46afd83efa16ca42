"""Client for model calls of a run: helper processes by provider, timeouts, cancellation, prices.

The helper can be killed at any moment, so a timeout or Ctrl-C ends a call wherever it hangs. The usage up to
that point is still reported, because it is charged.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..host import environment, secrets
from ..host.effect_context import Context
from ..project import accounts
from ..project.models import Model, Unavailable, address
from ..project.prices import Prices
from ..project.providers import DEFAULT, PROVIDERS
from .helper_process import START_LIMIT, Worker, WorkerEnded, WorkerTimeout
from .quota import Quota

if TYPE_CHECKING:
    from collections.abc import Callable

    from .worker_pool import SharedWorker, SharedWorkers


class ModelClient:
    """Calls models for one run.

    env: environment of the helpers; None for the environment of this process. shared: helpers that many runs
    share; None for separate helpers.
    """

    def __init__(self, env: dict[bytes, bytes] | None = None, shared: SharedWorkers | None = None) -> None:
        self._env = dict(environment.environb) if env is None else env
        self._shared = shared
        self._workers: dict[str, Worker | SharedWorker] = {}
        self._prices = Prices()

    def start(self) -> None:
        """Start the helper of the default provider in advance, because its import takes time."""
        with contextlib.suppress(WorkerEnded):  # the call itself reports the error
            self._worker(DEFAULT).start()

    def _worker(self, provider: str) -> Worker | SharedWorker:
        if provider not in self._workers:
            module = f"models.{PROVIDERS[provider].module}"
            shared = self._shared
            self._workers[provider] = shared.worker(module) if shared else Worker(module, self._env)
        return self._workers[provider]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def complete(
        self,
        model: Model,
        request: dict[str, Any],
        context: Context,
        limits: dict[str, Any],
        is_shown: bool = True,
    ) -> dict[str, Any]:
        """Call a model; return {text, stop, called, data?} or {error}.

        The result also has `usage` if it is known, `timed_out` after a timeout and `waited_s`, the time spent
        waiting for a quota. limits: `timeout_s` and `deadline_ms`. is_shown: whether to show the reply while
        it is received.

        If the quota of the account is used up, the call waits until it is renewed and is then repeated.
        Outside a run (`on_agent` is None), a used-up quota is an ordinary error.
        """
        if context.on_agent is None:
            return self._call(model, request, context, limits, is_shown)
        deadline = {"deadline_ms": limits.get("deadline_ms")}
        quota = Quota(accounts.of_model(model), deadline, context, f"`{model.name}` was not asked")
        usage = None
        while (result := quota.enter()) is None:
            try:
                result = self._call(model, request, context, limits, is_shown)
            except BaseException:
                quota.abandon()
                raise
            usage = add_usage(usage, result.get("usage"))
            if not quota.leave(result):
                break
        if "error" not in result and "timed_out" in result:
            result |= _error("timeout", "the quota was not renewed before the run's time limit")
        if usage is not None:
            result["usage"] = usage
        if quota.waited_s:
            result["waited_s"] = quota.waited_s
        return result

    def _call(
        self, model: Model, request: dict[str, Any], context: Context, limits: dict[str, Any], is_shown: bool
    ) -> dict[str, Any]:
        """`complete` without waiting for a quota."""
        try:
            request = {**request, "model": model.name, **address(model)}
        except Unavailable as error:
            return _error(error.kind, error.message)
        worker = self._worker(model.provider)
        display = _ReplyDisplay(context.on_output if is_shown else None)
        seconds = None
        try:
            # The start of the helper counts towards the run's deadline, not towards the call's timeout.
            starting, limited_by = context.limit({**limits, "timeout_s": START_LIMIT}, own="action")
            worker.ready(starting or 0.0, context.interrupt, context.on_tick)
            seconds, limited_by = context.limit(limits, own="action")
            if seconds is None or seconds <= 0:
                raise WorkerTimeout
            sent = secrets.known.mask_all({name: request[name] for name in ("system", "messages")})
            request = {**request, **sent, "timeout": seconds}
            result = worker.ask(request, seconds, context.interrupt, context.on_tick, display.take)
        except WorkerTimeout:
            within = f"within {round(seconds or 0, 1):g} s"
            limit = "before the run's time limit" if limited_by == "loop" else within
            result = {**_error("timeout", f"no reply {limit}"), "timed_out": limited_by}
        except WorkerEnded as error:
            result = _error("client", f"the client of `{model.name}` failed: {error}")
        finally:
            display.finish()
        if "error" in result and result["error"]["kind"] == "missing-key":
            variable = PROVIDERS[model.provider].key
            result["error"]["message"] = f"there is no API key for `{model.name}`; set {variable}"
        elif "error" in result:
            failure = result["error"]
            failure["message"] += self._help(model, failure["kind"], failure["message"])
        usage = result.get("usage") or display.usage
        if usage is not None:
            result["usage"] = {**usage, "usd": self._cost(model, usage)}
        return result

    def _help(self, model: Model, kind: str, message: str) -> str:
        """Advice to append to the message of a provider's error; "" if there is none."""
        row = PROVIDERS[model.provider]
        url = model.base_url or self._env.get(row.base_url.encode(), b"").decode(errors="replace")
        if kind == "unauthorized":
            return f"; check the key in {model.key or row.key}" + (f", for {url}" if url else "")
        if kind == "connection":
            server = url or f"the address of {model.provider}; {row.base_url} sets another"
            if "CERTIFICATE_VERIFY" in message:
                return f"; check {server}; SSL_CERT_FILE names the certificates to trust"
            if "SSL" in message:
                return f"; check whether the server answers by http or by https at {server}"
            return f"; check that a server answers at {server}"
        if kind == "rate-limited":
            return "; wait, or let fewer calls run at once"
        if kind == "quota":
            return "; wait until it is renewed, or raise the limit of the account"
        if kind == "server-error":
            return f"; {url or model.provider} has a problem: try again later"
        if message.startswith("HTTP 404"):
            address = f", and the address, {url}" if url else ""
            return f"; check the model's name, {model.name}{address}"
        return ""

    def _cost(self, model: Model, usage: dict[str, Any]) -> float | None:
        if usage["tokens"] is None:
            return 0.0 if model.price == (0, 0) else None
        return self._prices.cost(model.name, usage, model.price)


class _ReplyDisplay:
    """Shows a reply while it is received, with secrets masked, and keeps its usage so far."""

    def __init__(self, show: Callable[[str, str], object] | None) -> None:
        self._show = show
        self._secrets = secrets.Stream(is_text=True)
        self.usage: dict[str, Any] | None = None
        self._has_open_line = False

    def take(self, part: dict[str, Any]) -> None:
        if "usage" in part:
            self.usage = part["usage"]
            return
        if self.usage is None:
            self.usage = {"tokens": None}  # a received reply is charged
        if self._show is not None:
            self._write(self._secrets.feed(part["text"]))

    def finish(self) -> None:
        if self._show is not None:
            self._write(self._secrets.finish())
            if self._has_open_line:
                self._show("output", "\n")

    def _write(self, text: str) -> None:
        if text and self._show is not None:
            self._has_open_line = not text.endswith("\n")
            self._show("output", text)


def add_usage(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    """The total usage of two calls; an amount that is unknown for one of them is unknown in the total."""
    if first is None or second is None:
        return first or second
    total: dict[str, Any] = {}
    for name in {**first, **second}:
        amounts = first.get(name, 0), second.get(name, 0)
        total[name] = None if None in amounts else round(sum(amounts), 9)
    return total


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
