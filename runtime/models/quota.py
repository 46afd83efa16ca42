"""Quota waits: a call waits while the quota of its account is used up, and is then repeated.

Owns the decision to wait, the duration and the recorded events. All runs of the user share the state of the
accounts (`ledger.breakers`); if the database cannot be used, a run uses the errors of its own agent or model.
Must not contain: the start of an agent (`effects.agents`), the call of a model (`client`). See
`spec/agents.md`, Quota.
"""

from __future__ import annotations

import copy
import math
import re
from typing import Any

from ..host import clock, keeper
from ..host.effect_context import Context
from ..host.screen import printable
from ..journal.agent_activity import AgentActivity
from ..journal.agent_history import AgentHistory
from ..journal.events import AgentActed
from ..ledger import breakers, database
from ..ledger.breakers import Breaker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Kinds of errors that the renewal of the quota resolves.
KINDS = ("rate-limit", "quota")
# Default limit of an effect's total wait, in seconds: longer than a week, the longest quota period.
MAX_WAIT = 8 * 86400.0
# Seconds between two checks of a breaker: the user may close it, or the clock may be set.
_CHECK_INTERVAL = 15.0
# Seconds between two checks while another call probes the account.
_PROBE_CHECK_INTERVAL = 2.0
# Activities of an agent that prove that the service answers.
_ANSWERED = ("tool", "tool-end", "files")
# `resets 2:54pm (UTC)`, `Try again at 2:58 PM.`
_TIME_OF_DAY = re.compile(
    r"(?:resets|again at) (?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap]m)?(?P<utc> \(?UTC)?",
    re.IGNORECASE,
)


class Quota:
    """Quota wait of one effect.

    Args:
        account: name of the account.
        args: arguments of the effect; `quota` sets the behaviour when the quota is used up.
        context: context of the effect.
        consequence: clause for messages: the call that is not made while the quota is used up.

    waited_s: seconds that the effect has waited so far.
    """

    def __init__(
        self,
        account: str,
        args: dict[str, Any],
        context: Context,
        consequence: str = "the agent was not started",
    ) -> None:
        policy = args.get("quota") or {}
        self._waits: bool = policy.get("on", "wait") == "wait"
        self._max_wait = min(float(policy.get("max_wait_s") or MAX_WAIT), breakers.MAX_RESET_S)
        self._args = args
        self._context = context
        self._account = account
        self._consequence = consequence
        self._is_probe = False
        self.waited_s = context.quota_waited_s
        # From the service's last error; used if the database cannot be used.
        self._own_breaker: Breaker | None = None
        self._is_database_lost = False
        self.cap_usd = context.cap_usd
        self.history = context.interrupted or AgentHistory(context.seq)

    def enter(self) -> dict[str, Any] | None:
        """Wait until the call may start; return None, or a result with `error` or `timed_out`.

        Raises `Interrupted`.
        """
        started_at = clock.monotonic()
        announced_until: float | None = None
        while True:
            self._context.interrupt.check()
            breaker = self._open_breaker()
            if breaker is None:
                break
            now, elapsed = clock.time(), clock.monotonic() - started_at
            wait_left = self._max_wait - self.waited_s - elapsed
            time_left, _ = self._context.limit({"deadline_ms": self._args.get("deadline_ms")}, own="loop")
            if time_left is not None and time_left <= 0:
                return {"timed_out": "loop"}
            if not self._waits or wait_left <= 0 or breaker.until - now > wait_left:
                return self._refused(breaker)
            if announced_until is None or breaker.until > announced_until:
                announced_until = breaker.until
                self._announce(breaker)
            step = min(breaker.until - now, _CHECK_INTERVAL) if breaker.until > now else _PROBE_CHECK_INTERVAL
            step = min(step, wait_left, step if time_left is None else time_left)
            self._context.interrupt.wait(max(0.05, step))
            if self._context.on_tick is not None:
                self._context.on_tick()
        if announced_until is not None:
            waited = clock.monotonic() - started_at
            self.waited_s += waited
            if self._context.on_agent is not None:
                self._context.on_agent(AgentActivity("quota-over", name=self._name, delay_s=round(waited, 3)))
        return None

    def watched(self, context: Context) -> Context:
        """A copy of the context that records the agent's activities and closes the breaker at an answer."""
        watched = copy.copy(context)
        on_agent = context.on_agent

        def take(activity: AgentActivity) -> None:
            self.history.add(AgentActed.of_activity(context.seq, activity))
            if self._is_probe and activity.kind in _ANSWERED:
                self._close()
            if on_agent is not None:
                on_agent(activity)

        watched.on_agent = take
        return watched

    def leave(self, result: dict[str, Any]) -> bool:
        """Record the result of the call; return whether to repeat the call after another `enter`."""
        error = result.get("error") or {}
        if error.get("kind") not in KINDS:
            if self._is_probe:
                self._release() if error or "timed_out" in result else self._close()
            return False
        resets_at = error.get("resets_at")
        if not isinstance(resets_at, int | float):
            resets_at = reset_in(str(error.get("message")), clock.time())
        self._trip(" ".join(str(error.get("message")).split()), resets_at)
        return self._waits

    def abandon(self) -> None:
        """Record that the call was stopped, so that another call may probe."""
        if self._is_probe:
            self._release()

    # --- the breaker ------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return printable(self._account)

    def _open_breaker(self) -> Breaker | None:
        """The breaker that holds the call back; None if the call may start."""
        if not self._is_database_lost:
            admission = self._query(lambda: breakers.admit(self._account, self._context.effect_id))
            if admission is not None:
                self._is_probe = admission.is_probe
                return admission.breaker  # type: ignore[no-any-return]
        own = self._own_breaker
        return own if own is not None and own.opened - 60 < clock.time() < own.until else None

    def _trip(self, reason: str, resets_at: float | None) -> None:
        self._is_probe = False
        failures = self._own_breaker.failures + 1 if self._own_breaker is not None else 1
        now = clock.time()
        until = breakers.next_probe(resets_at, failures, now)
        self._own_breaker = Breaker(self._account, until, now, reason, failures)
        if not self._is_database_lost:
            run = self._context.effect_id
            self._query(lambda: breakers.trip(self._account, reason, resets_at, run))

    def _close(self) -> None:
        self._is_probe = False
        self._query(lambda: breakers.close(self._account))

    def _release(self) -> None:
        self._is_probe = False
        self._query(lambda: breakers.release(self._account, self._context.effect_id))

    def _query(self, query: Callable[[], Any]) -> Any:
        """The result of a database call; None after an error, with one note."""
        try:
            return query()
        except database.LedgerError as error:
            if not self._is_database_lost:
                self._note(f"this run waits for quotas by itself: {error.message}")
            self._is_database_lost = True
            return None

    # --- messages ---------------------------------------------------------------------------------

    def _refused(self, breaker: Breaker) -> dict[str, Any]:
        """The error result of a call that is not made."""
        message = (
            f"the quota of the account {self._name} is used up until {_moment(breaker.until)}, and "
            f"{self._consequence}: {breaker.reason}"
        )
        return {"error": {"kind": "quota", "message": message, "resets_at": breaker.until}}

    def _announce(self, breaker: Breaker) -> None:
        if self._context.on_agent is not None:
            self._context.on_agent(
                AgentActivity("quota-wait", name=self._name, text=breaker.reason, resets_at=breaker.until)
            )
        # A resumed run must start the agent again instead of taking the quota error as its result.
        keeper.release(self._context.effect_id)
        self._note(f"waiting for the quota of the account {self._name} until {_moment(breaker.until)}")

    def _note(self, text: str) -> None:
        if self._context.on_output is not None:
            self._context.on_output("stderr", f"note: {text}\n")


def reset_in(text: str, now: float) -> float | None:
    """The next occurrence of the time of day in a message, in seconds since 1970; None without a time.

    The time of day is local time unless the message states UTC.
    """
    match = _TIME_OF_DAY.search(text)
    if match is None:
        return None
    hour, minute, am_pm, is_utc = int(match["hour"]), int(match["minute"] or 0), match["half"], match["utc"]
    if not am_pm and match["minute"] is None:
        return None
    if am_pm:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (am_pm.lower() == "pm")
    if hour > 23 or minute > 59:
        return None
    if is_utc:
        midnight = math.floor(now / 86400) * 86400.0
        moment = midnight + hour * 3600 + minute * 60
        return moment if moment > now else moment + 86400
    today = clock.localtime(now)
    for day in (today.tm_mday, today.tm_mday + 1):
        moment = clock.mktime((today.tm_year, today.tm_mon, day, hour, minute, 0, 0, 0, -1))
        if moment > now:
            return moment
    return None


def _moment(moment: float) -> str:
    """A time as local time of day, with the date unless it is today."""
    at, now = clock.localtime(moment), clock.localtime(clock.time())
    return clock.strftime("%H:%M:%S" if at[:3] == now[:3] else "%Y-%m-%d %H:%M", at)
