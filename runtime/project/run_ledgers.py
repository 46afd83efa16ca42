"""The ledgers of one run: which calls it charges to whom, and why a ledger refuses a call.

Imported when the first call of an agent or a model is about to start. See `spec/budget.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..host import clock
from ..journal.quantities import amount_text
from ..journal.totals import CALLS
from ..ledger import database
from ..ledger.claims import Claims, Unavailable, this_project
from ..ledger.ledger import Call, Denied, balances, is_used_up
from ..ledger.limits import DAY, EVER, MONTH, PROJECT, Limit, renewal, used_up
from . import accounts
from .budget import Refusal
from .settings import Configuration

# The ledgers of a project that its configuration can limit.
PERIODS = {"day": DAY, "month": MONTH, "project": EVER}


def limits_of(settings: Configuration, project: str) -> tuple[Limit, ...]:
    """The limits that a project's configuration sets to its own calls. project: its path."""
    return tuple(
        Limit(PROJECT, project, PERIODS[period], unit, amount)
        for period, amounts in settings.ledgers.items()
        for unit, amount in amounts.items()
    )


def exhausted(kind: str, args: Mapping[str, Any], settings: Configuration) -> Iterator[tuple[str, str]]:
    """Why ledgers would refuse an effect that started now, with the remedies. Raises `LedgerError`."""
    payer = accounts.of_effect(kind, args, settings)
    if payer is None:
        return
    project = this_project()
    own = limits_of(settings, project)
    if not own and not database.has_limits():
        return
    for limit, spent, _, _ in balances(own):
        is_counted = limit.unit != "calls" or kind in CALLS
        if is_counted and limit.is_charged(project, payer.account) and is_used_up(limit, spent):
            help = f"see `llc budget`; to raise the limit: {_raising(limit, own)}"
            yield used_up(limit, spent, clock.time()), help


def _raising(limit: Limit, own: tuple[Limit, ...]) -> str:
    """Where the amount of a limit is changed."""
    return "`budget` in .loops/config.yaml" if limit in own else f"llc budget set {limit.key} AMOUNT"


class RunLedgers:
    """The claims of one run.

    run: its id. settings: of its project, if it has any. warn: gets notes for people.
    """

    def __init__(self, run: str, settings: Configuration | None, warn: Callable[[str], None]) -> None:
        self._run = run
        self._warn = warn
        self._project = this_project()
        self._settings = settings or Configuration()
        self._own = limits_of(self._settings, self._project)
        self._claims = Claims(self._own, warn)
        self._has_waited = False

    def claim(
        self, seq: int, kind: str, args: Mapping[str, Any], bounds: Mapping[str, float], has_begun: bool
    ) -> Refusal | dict[str, float]:
        """Reserve what an effect may use, at most `bounds`: what is reserved, or why it is refused.

        has_begun: an earlier driver has reserved that; it is not refused.
        """
        payer = accounts.of_effect(kind, args, self._settings)
        if payer is None:
            return {}
        call = Call(self._project, self._run, seq, *payer, kind in CALLS)
        answer = self._claims.claim(call, bounds, has_begun)
        if answer is None or (has_begun and isinstance(answer, Denied | Unavailable)):
            return {}
        if isinstance(answer, Unavailable):
            return Refusal(answer.message, f"{answer.help}; then: llc resume {{run}}")
        if not isinstance(answer, Denied):
            return answer.held
        limit = answer.limit
        if answer.is_used_up:
            now = clock.time()
            raising = _raising(limit, self._own)
            help = f"see `llc budget`; to raise the limit: {raising}; then: llc resume {{run}}"
            return Refusal(used_up(limit, answer.spent, now), help, True, renewal(limit.period, now))
        what = (
            f"the rest of {amount_text(limit.unit, limit.amount)} of {limit.title} is reserved by other calls"
        )
        if not self._has_waited:
            self._has_waited = True
            self._warn(f"note: {what}; waiting until one of them ends")
        return Refusal(what, "see `llc budget`", is_final=False)

    def settle(self, seq: int, result: Mapping[str, Any]) -> None:
        self._claims.settle(seq, result)

    def close(self) -> None:
        self._claims.close()
