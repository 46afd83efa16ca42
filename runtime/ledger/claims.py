"""Claims of one run on the user's ledgers: a reservation before each call, settled after the call.

Owns the behaviour of a run when the database cannot be used, and the reservations of dead runs, which are
settled with the amounts in the journal. A call without a result counts with the usage that its agent reported
last.
"""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..host import files
from ..host.paths import HISTORY, ROOT, RUNNING
from ..journal import run_history
from ..journal.events import ActionStart, AgentActed, EffectStart
from ..journal.reader import ReadError
from ..journal.run_folder import RunFolder
from ..journal.totals import CALLS
from ..runs.run_lock import is_live
from . import database, ledger
from .ledger import Call, Denied, Grant
from .limits import Limit


def this_project() -> str:
    """Return the real path of the current project, with bytes that are not UTF-8 as `\\xNN`."""
    if database.shared is not None:
        return database.shared.project
    path = files.realpath(ROOT or ".")
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class LedgerUnavailable(NamedTuple):
    """Denial of a call: a limit is set, and the database cannot be used. Message and help for the user."""

    message: str
    help: str


class Claims:
    """Claims of one run.

    own: limits of the project's configuration. warn: called with a note if amounts cannot be recorded.
    """

    def __init__(self, own: tuple[Limit, ...], warn: Callable[[str], None]) -> None:
        self._own = own
        self._warn = warn
        self._rows: dict[int, int] = {}
        self._calls: dict[int, Call] = {}
        self._is_reconciled = False
        self._has_warned = False

    def claim(
        self, call: Call, bounds: Mapping[str, float], has_started: bool = False
    ) -> Grant | Denied | LedgerUnavailable | None:
        """Reserve amounts for a call.

        bounds: upper bounds by unit. has_started: the call was started by a process that died, so it already
        has a reservation, which may be settled. Returns None if the database cannot be used and no limit is
        set.
        """
        answer: Grant | Denied | None
        try:
            if not self._is_reconciled:
                self._is_reconciled = True
                for reservation in ledger.open_reservations(call.project, call.run):
                    if reservation.row not in self._rows.values():
                        settle_from_journal(reservation)
            answer = ledger.reopen(call) if has_started else None
            answer = answer or ledger.reserve(call, self._own, bounds)
            if isinstance(answer, Denied) and not answer.is_used_up and settle_dead():
                answer = ledger.reserve(call, self._own, bounds)
        except database.LedgerError as error:
            if self._own or database.has_limits():
                return LedgerUnavailable(f"{error.message}, and a limit is set", str(error.help))
            self._warn_once(error)
            return None
        if isinstance(answer, Grant):
            self._rows[call.seq] = answer.row
            self._calls[call.seq] = call
        return answer

    def settle(self, seq: int, result: Mapping[str, Any]) -> None:
        """Settle the reservation of a call with its result.

        If this cannot be recorded, the run continues; its journal contains the amounts.
        """
        row = self._rows.pop(seq, None)
        if row is None:
            return
        try:
            ledger.settle(row, self._calls.pop(seq).is_call, result)
        except database.LedgerError as error:
            self._warn_once(error)

    def close(self) -> None:
        """Settle the reservations of stopped calls with the journal, which is on disk."""
        for seq, row in self._rows.items():
            call = self._calls[seq]
            try:
                settle_from_journal(ledger.OpenReservation(row, call.project, call.run, seq, 0, ""))
            except database.LedgerError as error:
                self._warn_once(error)
        self._rows.clear()

    def _warn_once(self, error: database.LedgerError) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"note: usage of agents and models is not recorded: {error.message}; {error.help}")


def settle_dead() -> int:
    """Settle the reservations of dead processes; return their number. Raises `LedgerError`."""
    dead = [reservation for reservation in ledger.open_reservations() if not _is_alive(reservation)]
    for reservation in dead:
        settle_from_journal(reservation)
    return len(dead)


def settle_run(run: str) -> None:
    """Settle the reservations of an unowned run of this project before it is removed.

    If the database cannot be used now, a later run settles them.
    """
    with contextlib.suppress(database.LedgerError):
        if database.exists():
            for reservation in ledger.open_reservations(this_project(), run):
                settle_from_journal(reservation)


def settle_from_journal(reservation: ledger.OpenReservation) -> None:
    """Settle a reservation with the amounts in the journal of its run. Raises `LedgerError`."""
    effect = usage = None
    seq = reservation.seq
    folder = _folder(reservation)
    if folder is not None:
        with contextlib.suppress(OSError, ReadError):
            history = run_history.load(folder.journal)
            effect = history.effects.get(seq)
            for event in history.events:
                if isinstance(event, ActionStart | EffectStart) and event.seq == seq:
                    usage = None  # discard the usage of an earlier attempt
                elif isinstance(event, AgentActed) and event.seq == seq and event.what == "usage":
                    usage = event.usage
    if effect is not None and effect.is_finished and effect.result is not None:
        ledger.settle(reservation.row, effect.kind in CALLS, effect.result)
    else:
        reported = usage if isinstance(usage, dict) else None
        ledger.release(reservation.row, folder is None or effect is not None, reported)


def _is_alive(reservation: ledger.OpenReservation) -> bool:
    if database.is_alive(reservation.run, reservation.pid, reservation.started):
        return True
    if database.shared is not None:
        return False
    # The process may run in another container, where it is not visible.
    folder = _folder(reservation)
    return folder is not None and is_live(folder)


def _folder(reservation: ledger.OpenReservation) -> RunFolder | None:
    if database.shared is not None:
        return database.shared.folder(reservation.project, reservation.run)
    for kind in (RUNNING, HISTORY):
        path = os.path.join(reservation.project, kind, reservation.run)
        if files.isdir(path):
            return RunFolder(reservation.project, path)
    return None
