"""Asking a model on behalf of a run: helper processes by provider, time, cancellation, prices.

The helper can be killed at any moment, so a time-out or Ctrl-C ends a call wherever it hangs. The usage
known by then is still reported, because it was paid for.
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

    from .worker_pool import Line, SharedWorkers


class ModelClient:
    """Asks models for one run.

    env: the environment of the helpers, this process's where it is absent. shared: where many runs have
    their helpers together.
    """

    def __init__(self, env: dict[bytes, bytes] | None = None, shared: SharedWorkers | None = None) -> None:
        self._env = dict(environment.environb) if env is None else env
        self._shared = shared
        self._workers: dict[str, Worker | Line] = {}
        self._prices = Prices()

    def start(self) -> None:
        """Begin to import the client that most models have, for a call that is to come."""
        with contextlib.suppress(WorkerEnded):  # the call itself will say so
            self._worker(DEFAULT).start()

    def _worker(self, provider: str) -> Worker | Line:
        if provider not in self._workers:
            module = f"models.{PROVIDERS[provider].module}"
            shared = self._shared
            self._workers[provider] = shared.line(module) if shared else Worker(module, self._env)
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
        """{text, stop, called, data?} or {error}, with `usage` where it is known, `timed_out`, `waited_s`.

        limits: `timeout_s` and `deadline_ms`. is_shown: what comes is shown as it comes.
        While the quota of its account is used up, a run does not ask the model, and asks again afterwards;
        `waited_s` is how long that was. Without a run (`on_agent`) that is an error as any other.
        """
        if context.on_agent is None:
            return self._ask(model, request, context, limits, is_shown)
        deadline = {"deadline_ms": limits.get("deadline_ms")}
        quota = Quota(accounts.of_model(model), deadline, context, f"`{model.name}` was not asked")
        usage = None
        while (result := quota.enter()) is None:
            try:
                result = self._ask(model, request, context, limits, is_shown)
            except BaseException:
                quota.abandon()
                raise
            usage = add_usage(usage, result.get("usage"))
            if not quota.leave(result):
                break
        if "error" not in result and "timed_out" in result:
            result |= _error("timeout", "the quota was not renewed before the run's time was over")
        if usage is not None:
            result["usage"] = usage
        if quota.waited_s:
            result["waited_s"] = quota.waited_s
        return result

    def _ask(
        self, model: Model, request: dict[str, Any], context: Context, limits: dict[str, Any], is_shown: bool
    ) -> dict[str, Any]:
        """One request, as `complete`."""
        try:
            request = {**request, "model": model.name, **address(model)}
        except Unavailable as error:
            return _error(error.kind, error.message)
        worker = self._worker(model.provider)
        shown = _Shown(context.on_output if is_shown else None)
        seconds = None
        try:
            # The time the client takes to start is the run's, not the call's.
            starting, limited_by = context.limit({**limits, "timeout_s": START_LIMIT}, own="action")
            worker.ready(starting or 0.0, context.interrupt, context.on_tick)
            seconds, limited_by = context.limit(limits, own="action")
            if seconds is None or seconds <= 0:
                raise WorkerTimeout
            sent = secrets.known.mask_all({name: request[name] for name in ("system", "messages")})
            request = {**request, **sent, "timeout": seconds}
            result = worker.ask(request, seconds, context.interrupt, context.on_tick, shown.take)
        except WorkerTimeout:
            within = f"within {round(seconds or 0, 1):g} s"
            limit = "before the run's time was over" if limited_by == "loop" else within
            result = {**_error("timeout", f"no reply {limit}"), "timed_out": limited_by}
        except WorkerEnded as error:
            result = _error("client", f"the client of `{model.name}` failed: {error}")
        finally:
            shown.finish()
        if "error" in result and result["error"]["kind"] == "missing-key":
            variable = PROVIDERS[model.provider].key
            result["error"]["message"] = f"there is no API key for `{model.name}`; set {variable}"
        elif "error" in result:
            failure = result["error"]
            failure["message"] += self._remedy(model, failure["kind"], failure["message"])
        usage = result.get("usage") or shown.usage
        if usage is not None:
            result["usage"] = {**usage, "usd": self._cost(model, usage)}
        return result

    def _remedy(self, model: Model, kind: str, message: str) -> str:
        """What to do about an error of a provider, to follow its message; "" where the message says it."""
        row = PROVIDERS[model.provider]
        where = model.base_url or self._env.get(row.base_url.encode(), b"").decode(errors="replace")
        if kind == "unauthorized":
            return f"; check the key in {model.key or row.key}" + (f", for {where}" if where else "")
        if kind == "connection":
            own = f"the address of {model.provider}; {row.base_url} sets another"
            if "CERTIFICATE_VERIFY" in message:
                return f"; check {where or own}; SSL_CERT_FILE names the certificates to trust"
            if "SSL" in message:
                return f"; check whether the server answers by http or by https at {where or own}"
            return f"; check that a server answers at {where or own}"
        if kind == "rate-limited":
            return "; wait, or let fewer calls run at once"
        if kind == "quota":
            return "; wait until it is renewed, or raise the limit of the account"
        if kind == "server-error":
            return f"; {where or model.provider} has a problem: try again later"
        if message.startswith("HTTP 404"):
            address = f", and the address, {where}" if where else ""
            return f"; check the model's name, {model.name}{address}"
        return ""

    def _cost(self, model: Model, usage: dict[str, Any]) -> float | None:
        if usage["tokens"] is None:
            return 0.0 if model.price == (0, 0) else None
        return self._prices.cost(model.name, usage, model.price)


class _Shown:
    """What a model says, shown as it comes and without secrets; and what it has used so far."""

    def __init__(self, show: Callable[[str, str], object] | None) -> None:
        self._show = show
        self._secrets = secrets.Stream(is_text=True)
        self.usage: dict[str, Any] | None = None
        self._is_open = False

    def take(self, part: dict[str, Any]) -> None:
        if "usage" in part:
            self.usage = part["usage"]
            return
        if self.usage is None:
            self.usage = {"tokens": None}  # it has come, and will be paid for
        if self._show is not None:
            self._pass(self._secrets.feed(part["text"]))

    def finish(self) -> None:
        if self._show is not None:
            self._pass(self._secrets.finish())
            if self._is_open:
                self._show("output", "\n")

    def _pass(self, text: str) -> None:
        if text and self._show is not None:
            self._is_open = not text.endswith("\n")
            self._show("output", text)


def add_usage(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    """What two calls used together; what one of them does not know is not known."""
    if one is None or other is None:
        return one or other
    total: dict[str, Any] = {}
    for name in {**one, **other}:
        amounts = one.get(name, 0), other.get(name, 0)
        total[name] = None if None in amounts else round(sum(amounts), 9)
    return total


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
