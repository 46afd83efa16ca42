"""Claims of one run on the user's ledgers: reserve before a call, settle after it.

Owns what happens to a run when the database cannot be used, and the reservations of runs that died: they are
settled by the journal. A call without a result counts what its agent had reported until then.
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
from ..runs import locks
from . import database, ledger
from .ledger import Call, Denied, Grant
from .limits import Limit


def this_project() -> str:
    """The path of the current project, links followed; bytes that are not UTF-8 as `\\xNN`."""
    if database.shared is not None:
        return database.shared.project
    path = files.realpath(ROOT or ".")
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Unavailable(NamedTuple):
    """The database cannot be used, and there is a limit: why, and what to do."""

    message: str
    help: str


class Claims:
    """The claims of one run.

    own: limits of the project's configuration. warn: gets a sentence when amounts are not recorded.
    """

    def __init__(self, own: tuple[Limit, ...], warn: Callable[[str], None]) -> None:
        self._own = own
        self._warn = warn
        self._rows: dict[int, int] = {}
        self._calls: dict[int, Call] = {}
        self._is_reconciled = False
        self._has_warned = False

    def claim(
        self, call: Call, bounds: Mapping[str, float], has_begun: bool = False
    ) -> Grant | Denied | Unavailable | None:
        """Reserve what a call may use, at most `bounds`; None if that cannot be recorded and need not be.

        has_begun: it has begun in a process that died, so it has a reservation, settled or not.
        """
        answer: Grant | Denied | None
        try:
            if not self._is_reconciled:
                self._is_reconciled = True
                for left in ledger.open_reservations(call.project, call.run):
                    if left.row not in self._rows.values():
                        settle_by_journal(left)
            answer = ledger.reopen(call) if has_begun else None
            answer = answer or ledger.reserve(call, self._own, bounds)
            if isinstance(answer, Denied) and not answer.is_used_up and settle_dead():
                answer = ledger.reserve(call, self._own, bounds)
        except database.LedgerError as error:
            if self._own or database.has_limits():
                return Unavailable(f"{error.message}, and a limit is set", str(error.help))
            self._note(error)
            return None
        if isinstance(answer, Grant):
            self._rows[call.seq] = answer.row
            self._calls[call.seq] = call
        return answer

    def settle(self, seq: int, result: Mapping[str, Any]) -> None:
        """A call has its result. The run continues if that cannot be recorded: its journal has it."""
        row = self._rows.pop(seq, None)
        if row is None:
            return
        try:
            ledger.settle(row, self._calls.pop(seq).is_call, result)
        except database.LedgerError as error:
            self._note(error)

    def close(self) -> None:
        """Settle what is reserved for calls that were stopped, by the journal, which is on disk."""
        for seq, row in self._rows.items():
            call = self._calls[seq]
            try:
                settle_by_journal(ledger.Open(row, call.project, call.run, seq, 0, ""))
            except database.LedgerError as error:
                self._note(error)
        self._rows.clear()

    def _note(self, error: database.LedgerError) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"note: what agents and models use is not recorded: {error.message}; {error.help}")


def settle_dead() -> int:
    """Settle the reservations of processes that have died; how many there were. Raises `LedgerError`."""
    dead = [left for left in ledger.open_reservations() if not _is_alive(left)]
    for left in dead:
        settle_by_journal(left)
    return len(dead)


def settle_run(run: str) -> None:
    """Settle the reservations of a run of this project that no process executes, before it is removed.

    If the database cannot be used now, they are given back later.
    """
    with contextlib.suppress(database.LedgerError):
        if database.exists():
            for left in ledger.open_reservations(this_project(), run):
                settle_by_journal(left)


def settle_by_journal(left: ledger.Open) -> None:
    """Settle a reservation by what the journal of its run contains. Raises `LedgerError`."""
    effect = usage = None
    folder = _folder(left)
    if folder is not None:
        with contextlib.suppress(OSError, ReadError):
            history = run_history.load(folder.journal)
            effect = history.effects.get(left.seq)
            for event in history.events:
                if isinstance(event, ActionStart | EffectStart) and event.seq == left.seq:
                    usage = None  # of an earlier attempt
                elif isinstance(event, AgentActed) and event.seq == left.seq and event.what == "usage":
                    usage = event.usage
    if effect is not None and effect.is_finished and effect.result is not None:
        ledger.settle(left.row, effect.kind in CALLS, effect.result)
    else:
        known = usage if isinstance(usage, dict) else None
        ledger.release(left.row, folder is None or effect is not None, known)


def _is_alive(left: ledger.Open) -> bool:
    if database.is_alive(left.run, left.pid, left.started):
        return True
    if database.shared is not None:
        return False
    # Its process may be out of sight, in another container.
    folder = _folder(left)
    return folder is not None and locks.is_live(folder)


def _folder(left: ledger.Open) -> RunFolder | None:
    if database.shared is not None:
        return database.shared.folder(left.project, left.run)
    for kind in (RUNNING, HISTORY):
        path = os.path.join(left.project, kind, left.run)
        if files.isdir(path):
            return RunFolder(left.project, path)
    return None
