"""Ledger claims of one run: charges its calls to accounts and reports why a ledger refuses a call.

Imported when the first call of an agent or a model is about to start. See `spec/budget.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..host import clock
from ..journal.quantities import amount_text
from ..journal.totals import CALLS
from ..ledger import database
from ..ledger.claims import Claims, LedgerUnavailable, this_project
from ..ledger.ledger import Call, Denied, balances, is_used_up
from ..ledger.limits import DAY, EVER, MONTH, PROJECT, Limit, renewal, used_up_message
from . import accounts
from .budget import Refusal
from .settings import Configuration

# Ledger periods that the configuration of a project can limit.
PERIODS = {"day": DAY, "month": MONTH, "project": EVER}


def limits_of(settings: Configuration, project: str) -> tuple[Limit, ...]:
    """The ledger limits in a project's configuration. project: path of the project."""
    return tuple(
        Limit(PROJECT, project, PERIODS[period], unit, amount)
        for period, amounts in settings.ledgers.items()
        for unit, amount in amounts.items()
    )


def exhausted(kind: str, args: Mapping[str, Any], settings: Configuration) -> Iterator[tuple[str, str]]:
    """Yield (message, help) for each ledger that would refuse an effect now. Raises `LedgerError`."""
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
            help = f"see `llc budget`; to raise the limit: {_how_to_raise(limit, own)}"
            yield used_up_message(limit, spent, clock.time()), help


def _how_to_raise(limit: Limit, own: tuple[Limit, ...]) -> str:
    """The setting or command that changes a limit. own: limits in the project's configuration."""
    return "`budget` in .loops/config.yaml" if limit in own else f"llc budget set {limit.key} AMOUNT"


class RunLedgers:
    """Ledger claims of one run.

    run: id of the run. settings: the project's configuration; None for the defaults. warn: receives notes for
    the user.
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
        self, seq: int, kind: str, args: Mapping[str, Any], bounds: Mapping[str, float], has_started: bool
    ) -> Refusal | dict[str, float]:
        """Reserve at most `bounds` for an effect; return the reserved amounts by unit, or the refusal.

        has_started: an earlier driver has started the effect and made its reservation; it is never refused.
        """
        payer = accounts.of_effect(kind, args, self._settings)
        if payer is None:
            return {}
        call = Call(self._project, self._run, seq, *payer, kind in CALLS)
        answer = self._claims.claim(call, bounds, has_started)
        if answer is None or (has_started and isinstance(answer, Denied | LedgerUnavailable)):
            return {}
        if isinstance(answer, LedgerUnavailable):
            return Refusal(answer.message, f"{answer.help}; then: llc resume {{run}}")
        if not isinstance(answer, Denied):
            return answer.held
        limit = answer.limit
        if answer.is_used_up:
            now = clock.time()
            how_to_raise = _how_to_raise(limit, self._own)
            help = f"see `llc budget`; to raise the limit: {how_to_raise}; then: llc resume {{run}}"
            return Refusal(used_up_message(limit, answer.spent, now), help, True, renewal(limit.period, now))
        message = (
            f"the rest of {amount_text(limit.unit, limit.amount)} of {limit.title} is reserved by other calls"
        )
        if not self._has_waited:
            self._has_waited = True
            self._warn(f"note: {message}; waiting until one of them ends")
        return Refusal(message, "see `llc budget`", is_final=False)

    def settle(self, seq: int, result: Mapping[str, Any]) -> None:
        self._claims.settle(seq, result)

    def close(self) -> None:
        self._claims.close()
