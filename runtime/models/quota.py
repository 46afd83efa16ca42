"""Quota waits: a call of an account whose quota is used up is made again when the quota is renewed.

Owns when an effect waits, for how long, and what is recorded of it. Which accounts have no quota left is
known to all runs of the user (`ledger.breakers`); where the database cannot be used, a run waits by what
its own agent or model said. Must not contain: how an agent is started (`effects.agents`) or a model is asked
(`client`). See `spec/agents.md`, Quota.
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

# Kinds of errors that end by themselves when the quota is renewed.
KINDS = ("rate-limit", "quota")
# Seconds that an effect waits in all, where its loop does not say: longer than a week, the longest period.
MAX_WAIT = 8 * 86400.0
# Seconds between two looks at a breaker: for one that is closed by hand, for clocks that are set, and for
# the result of another call's probe.
_LOOK, _LOOK_AT_PROBE = 15.0, 2.0
# What shows that the service answers: the agent does something with the answer.
_ANSWERED = ("tool", "tool-end", "files")
# `resets 2:54pm (UTC)`, `Try again at 2:58 PM.`
_TIME_OF_DAY = re.compile(
    r"(?:resets|again at) (?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap]m)?(?P<utc> \(?UTC)?",
    re.IGNORECASE,
)


class Quota:
    """The quota of one effect's account. args: those of the effect; `quota` says what happens without any.

    waited_s: for how many seconds the effect has waited. what: what is not done meanwhile, in words.
    """

    def __init__(
        self, account: str, args: dict[str, Any], context: Context, what: str = "the agent was not started"
    ) -> None:
        given = args.get("quota") or {}
        self._waits: bool = given.get("on", "wait") == "wait"
        self._max_wait = min(float(given.get("max_wait_s") or MAX_WAIT), breakers.FURTHEST)
        self._args = args
        self._context = context
        self._account = account
        self._what = what
        self._is_probe = False
        self.waited_s = context.quota_waited_s
        # Where the database cannot be used: what the service itself said.
        self._own: Breaker | None = None
        self._is_alone = False
        self.cap_usd = context.cap_usd
        self.history = context.interrupted or AgentHistory(context.seq)

    def enter(self) -> dict[str, Any] | None:
        """Wait until the call may start; else why it may not, `error` or `timed_out`.

        Raises `Interrupted`.
        """
        begun = clock.monotonic()
        told: float | None = None
        while True:
            self._context.interrupt.check()
            breaker = self._held()
            if breaker is None:
                break
            now, elapsed = clock.time(), clock.monotonic() - begun
            left = self._max_wait - self.waited_s - elapsed
            time_left, _ = self._context.limit({"deadline_ms": self._args.get("deadline_ms")}, own="loop")
            if time_left is not None and time_left <= 0:
                return {"timed_out": "loop"}
            if not self._waits or left <= 0 or breaker.until - now > left:
                return self._refused(breaker)
            if told is None or breaker.until > told:
                told = breaker.until
                self._tell(breaker)
            step = min(breaker.until - now, _LOOK) if breaker.until > now else _LOOK_AT_PROBE
            step = min(step, left, step if time_left is None else time_left)
            self._context.interrupt.wait(max(0.05, step))
            if self._context.on_tick is not None:
                self._context.on_tick()
        if told is not None:
            took = clock.monotonic() - begun
            self.waited_s += took
            if self._context.on_agent is not None:
                self._context.on_agent(AgentActivity("quota-over", name=self._name, delay_s=round(took, 3)))
        return None

    def watched(self, context: Context) -> Context:
        """A context in which a probe that gets an answer closes the breaker, and what is done is kept."""
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
        """The call has ended; whether it is to be made again, once `enter` returns."""
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
        """The call was stopped: another one may probe."""
        if self._is_probe:
            self._release()

    # --- the breaker ------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return printable(self._account)

    def _held(self) -> Breaker | None:
        if not self._is_alone:
            found = self._asked(lambda: breakers.admit(self._account, self._context.effect_id))
            if found is not None:
                self._is_probe = found.is_probe
                return found.breaker  # type: ignore[no-any-return]
        own = self._own
        return own if own is not None and own.opened - 60 < clock.time() < own.until else None

    def _trip(self, reason: str, resets_at: float | None) -> None:
        self._is_probe = False
        failures = self._own.failures + 1 if self._own is not None else 1
        now = clock.time()
        until = breakers.next_probe(resets_at, failures, now)
        self._own = Breaker(self._account, until, now, reason, failures)
        if not self._is_alone:
            run = self._context.effect_id
            self._asked(lambda: breakers.trip(self._account, reason, resets_at, run))

    def _close(self) -> None:
        self._is_probe = False
        self._asked(lambda: breakers.close(self._account))

    def _release(self) -> None:
        self._is_probe = False
        self._asked(lambda: breakers.release(self._account, self._context.effect_id))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What the database says; None where it cannot be used, and is not asked again."""
        try:
            return ask()
        except database.LedgerError as error:
            if not self._is_alone:
                self._note(f"this run waits for quotas by itself: {error.message}")
            self._is_alone = True
            return None

    # --- messages ---------------------------------------------------------------------------------

    def _refused(self, breaker: Breaker) -> dict[str, Any]:
        """The error of a call that is not made."""
        message = (
            f"the quota of the account {self._name} is used up until {_moment(breaker.until)}, and "
            f"{self._what}: {breaker.reason}"
        )
        return {"error": {"kind": "quota", "message": message, "resets_at": breaker.until}}

    def _tell(self, breaker: Breaker) -> None:
        if self._context.on_agent is not None:
            self._context.on_agent(
                AgentActivity("quota-wait", name=self._name, text=breaker.reason, resets_at=breaker.until)
            )
        # A resumed run starts the agent again; what it said of its quota is not its result.
        keeper.release(self._context.effect_id)
        self._note(f"waiting for the quota of the account {self._name} until {_moment(breaker.until)}")

    def _note(self, text: str) -> None:
        if self._context.on_output is not None:
            self._context.on_output("stderr", f"note: {text}\n")


def reset_in(text: str, now: float) -> float | None:
    """The next moment with the time of day that a message names, in local time unless it says UTC."""
    found = _TIME_OF_DAY.search(text)
    if found is None:
        return None
    hour, minute, half, is_utc = int(found["hour"]), int(found["minute"] or 0), found["half"], found["utc"]
    if not half and found["minute"] is None:
        return None
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (half.lower() == "pm")
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
    """A time as people read it: local, with the day where it is not today."""
    at, now = clock.localtime(moment), clock.localtime(clock.time())
    return clock.strftime("%H:%M:%S" if at[:3] == now[:3] else "%Y-%m-%d %H:%M", at)
