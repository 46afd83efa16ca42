"""Ledger operations: reservations, amounts and balances. Owns all reading and writing of the database.

An amount is reserved before a call starts. After the call, the reservation is replaced by the reported
amount. Until then the reserved amount counts as used, so that concurrent runs cannot exceed a limit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...ir.effects import UNITS
from ..host import clock
from . import database
from .limits import ACCOUNT, ALL, PROJECT, Limit, days_back, first_day, renewal

# Divisors: a call without a limit of its own reserves 1/4 (agent) or 1/100 (model) of a limit.
AGENT_SHARE, MODEL_SHARE = 4, 100
# A ledger is used up if the remaining fraction of its limit is not larger: too little for an agent.
USED_UP_FRACTION = 0.01
# Compaction: number of calls between two compactions, and minimum age in days of the calls to compact.
COMPACT_EVERY_CALLS, COMPACT_AFTER_DAYS = 1000, 62
# Largest credible amount of one call; a larger reported amount is ignored.
MAX_CREDIBLE = {"usd": 10_000.0, "tokens": 1e10, "calls": 1.0, "seconds": 1e8}
_ROUNDING = 1e-9
# SQL conditions equivalent to `Limit.is_charged`.
_CHARGED = {
    ALL: "? = ''",
    PROJECT: "project = ?",
    ACCOUNT: "? IN (account, substr(account, 1, instr(account || ':', ':') - 1))",
}


class Call(NamedTuple):
    """One call of an agent or a model.

    Args:
        project: path of the project.
        run, seq: identify the effect.
        account: account that is charged.
        agent: name of the agent program; "" for a call of a model.
        model: "" if unknown.
        is_call: whether the call counts in the unit `calls`.
    """

    project: str
    run: str
    seq: int
    account: str
    agent: str
    model: str
    is_call: bool = True


class Grant(NamedTuple):
    """Reservation. row: its id in the database. held: reserved amounts, by unit with a limit."""

    row: int
    held: dict[str, float]


class Denied(NamedTuple):
    """Denied reservation.

    limit: limit that denies it. spent: amount counted so far. is_used_up: False if the reservations of other
    calls hold the remaining amount.
    """

    limit: Limit
    spent: float
    is_used_up: bool


class Balance(NamedTuple):
    """Balance of a ledger in its current period.

    is_least: amounts are lower bounds; some calls did not report.
    """

    limit: Limit
    spent: float
    held: float
    is_least: bool

    @property
    def left(self) -> float:
        return max(0.0, self.limit.amount - self.spent - self.held)

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the balance in the format of `llc budget --json`."""
        limit = self.limit
        moment = renewal(limit.period, now)
        return {
            **{name: getattr(limit, name) for name in ("scope", "name", "period", "unit")},
            "limit": limit.amount,
            "spent": round(self.spent, 9),
            "reserved": round(self.held, 9),
            "left": round(self.left, 9),
            "is_least": self.is_least,
            "renews_at": None if moment is None else clock.timestamp(moment),
        }


# --- limits -----------------------------------------------------------------------------------


def limits() -> list[Limit]:
    """Return the limits that the user has set."""
    with database.transaction(is_writing=False) as db:
        return _limits(db)


def set_limit(limit: Limit) -> None:
    """Set a limit. Raises `LedgerError`, and OSError."""
    with database.transaction() as db:
        db.execute(
            "INSERT INTO limits VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (scope, name, period, unit) DO UPDATE SET amount = excluded.amount",
            limit,
        )
        database.mark_limits(True)


def remove_limits(scope: str, name: str, period: str | None) -> int:
    """Remove the limits of a ledger in all units; return their number. period: None: all periods."""
    with database.transaction() as db:
        count = db.execute(
            "DELETE FROM limits WHERE scope = ? AND name = ? AND period = coalesce(?, period)",
            (scope, name, period),
        ).rowcount
        database.mark_limits(bool(_limits(db)))
        return count


def _limits(db: sqlite3.Connection) -> list[Limit]:
    rows = db.execute("SELECT * FROM limits ORDER BY scope = 'account', scope, period, name, unit")
    return [Limit(*row) for row in rows]


# --- reservations -----------------------------------------------------------------------------


def reserve(call: Call, own: Iterable[Limit], bounds: Mapping[str, float]) -> Grant | Denied:
    """Reserve amounts for a call: a share of the smallest limit, or the rest of it.

    own: limits of the project's configuration. bounds: upper bounds that the call has anyway, by unit. Raises
    `LedgerError`.
    """
    now = clock.time()
    share = AGENT_SHARE if call.agent else MODEL_SHARE
    with database.transaction() as db:
        wanted: dict[str, float] = {}
        balances = [
            _balance(db, limit, now)
            for limit in (*_limits(db), *own)
            if limit.is_charged(call.project, call.account)
        ]
        for limit, spent, _, _ in balances:
            if limit.unit == "calls" and not call.is_call:
                continue
            if is_used_up(limit, spent):
                return Denied(limit, spent, True)
            remaining = limit.amount - spent
            most = 1.0 if limit.unit == "calls" else min(remaining, limit.amount / share)
            bound = bounds.get(limit.unit, most)
            wanted[limit.unit] = min(wanted.get(limit.unit, most), most, bound if bound > 0 else most)
        for balance in balances:
            if wanted.get(balance.limit.unit, 0) > balance.left + _ROUNDING:
                return Denied(balance.limit, balance.spent, False)
        pid, started = database.holder()
        row = db.execute(
            "INSERT INTO calls (project, run, seq, day, account, agent, model, calls, pid, started,"
            " held_usd, held_tokens, held_calls, held_seconds) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(call.project, call.run, call.seq, first_day("day", now)),
                *(call.account, call.agent, call.model, 0, pid, started),
                *(wanted.get(unit) for unit in UNITS),
            ),
        ).lastrowid
        assert row is not None
        if row % COMPACT_EVERY_CALLS == 0:
            _compact(db, days_back(COMPACT_AFTER_DAYS, now))
        return Grant(row, wanted)


def reopen(call: Call) -> Grant | None:
    """Reopen the reservation that a dead process made for a call; None if there is none.

    A settlement of the reservation with the amounts reported until then is undone. Raises `LedgerError`.
    """
    with database.transaction() as db:
        found = db.execute(
            "SELECT id, held_usd, held_tokens, held_calls, held_seconds FROM calls"
            " WHERE project = ? AND run = ? AND seq = ? ORDER BY id DESC LIMIT 1",
            (call.project, call.run, call.seq),
        ).fetchone()
        if found is None:
            return None
        row, *held = found
        db.execute(
            "UPDATE calls SET usd = 0, tokens = 0, calls = 0, seconds = 0, unknown = 0, pid = ?, started = ?"
            " WHERE id = ?",
            (*database.holder(), row),
        )
        return Grant(
            row, {unit: amount for unit, amount in zip(UNITS, held, strict=True) if amount is not None}
        )


def settle(row: int, is_call: bool, result: Mapping[str, Any]) -> None:
    """Replace a reservation by the amounts in the result of the call; no effect if it is already settled.

    A missing or incredible amount counts as the reserved amount.
    """
    with database.transaction() as db:
        held = db.execute(
            "SELECT held_usd, held_tokens FROM calls WHERE id = ? AND pid IS NOT NULL", (row,)
        ).fetchone()
        if held is None:
            return
        usage = result.get("usage")
        amounts: list[float] = []
        unknown = 0
        for unit, reserved in zip(("usd", "tokens"), held, strict=True):
            amount = credible_amount(unit, usage.get(unit)) if isinstance(usage, dict) else 0
            unknown += unit == "usd" and amount is None
            amounts.append((reserved or 0) if amount is None else amount)
        milliseconds = credible_amount("seconds", result.get("duration_ms"))
        db.execute(
            "UPDATE calls SET usd = ?, tokens = ?, calls = ?, seconds = ?, unknown = ?," + _CLOSED,
            (
                amounts[0],
                int(amounts[1]),
                is_call,
                (milliseconds or 0) / 1000 if is_call else 0,
                unknown,
                row,
            ),
        )


def release(row: int, is_started: bool, usage: Mapping[str, Any] | None = None) -> None:
    """Release a reservation without a result. is_started: the call has started and used at least `usage`."""
    with database.transaction() as db:
        if is_started:
            usd, tokens = (credible_amount(unit, (usage or {}).get(unit)) or 0 for unit in ("usd", "tokens"))
            statement = "UPDATE calls SET usd = ?, tokens = ?, calls = 1, unknown = 1," + _CLOSED
            db.execute(statement, (usd, int(tokens), row))
        else:
            db.execute("DELETE FROM calls WHERE id = ? AND pid IS NOT NULL", (row,))


_CLOSED = (
    " held_usd = NULL, held_tokens = NULL, held_calls = NULL, held_seconds = NULL, pid = NULL,"
    " started = NULL WHERE id = ? AND pid IS NOT NULL"
)


def _compact(db: sqlite3.Connection, before: str) -> None:
    """Merge the calls before a day into one row for each day, project, account, agent and model."""
    keys = "project, day, account, agent, model"
    db.execute("CREATE TEMP TABLE folded AS SELECT id FROM calls WHERE day < ? AND pid IS NULL", (before,))
    db.execute(
        f"INSERT INTO calls ({keys}, run, seq, usd, tokens, calls, seconds, unknown)"
        f" SELECT {keys}, '', 0, sum(usd), sum(tokens), sum(calls), sum(seconds), sum(unknown) FROM calls"
        f" WHERE id IN (SELECT id FROM folded) GROUP BY {keys}"
    )
    db.execute("DELETE FROM calls WHERE id IN (SELECT id FROM folded)")


class OpenReservation(NamedTuple):
    """Reservation that is not settled, with the process that made it (pid, started: its start time)."""

    row: int
    project: str
    run: str
    seq: int
    pid: int
    started: str


def open_reservations(project: str | None = None, run: str | None = None) -> list[OpenReservation]:
    """Return the reservations that are not settled: of one run, or all (None)."""
    with database.transaction(is_writing=False) as db:
        rows = db.execute(
            "SELECT id, project, run, seq, pid, started FROM calls WHERE pid IS NOT NULL"
            " AND project = coalesce(?, project) AND run = coalesce(?, run)",
            (project, run),
        )
        return [OpenReservation(*row) for row in rows]


def credible_amount(unit: str, value: Any) -> float | None:
    """Return a reported amount (time in ms); None if it is a text, negative, not finite or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= MAX_CREDIBLE[unit] * (1000 if unit == "seconds" else 1) else None


def is_used_up(limit: Limit, spent: float) -> bool:
    """Whether the remaining amount of a limit is too small for a call."""
    threshold = _ROUNDING if limit.unit == "calls" else limit.amount * USED_UP_FRACTION
    return limit.amount - spent <= threshold


# --- views ------------------------------------------------------------------------------------


def balances(own: Iterable[Limit] = ()) -> list[Balance]:
    """Return the balance of each limit: first the limits that the user has set, then `own`."""
    now = clock.time()
    with database.transaction(is_writing=False) as db:
        return [_balance(db, limit, now) for limit in (*_limits(db), *own)]


def accounts() -> list[str]:
    """Return the accounts of all recorded calls."""
    with database.transaction(is_writing=False) as db:
        return [name for (name,) in db.execute("SELECT DISTINCT account FROM calls ORDER BY account")]


def usage_by_day(first: str) -> list[dict[str, Any]]:
    """Sum the usage since a local day by day, project, account, agent and model; latest day first."""
    keys = "day, project, account, agent, model"
    with database.transaction(is_writing=False) as db:
        rows = db.execute(
            f"SELECT {keys}, sum(calls), sum(usd), sum(tokens), sum(seconds), sum(unknown) FROM calls"
            f" WHERE day >= ? AND pid IS NULL GROUP BY {keys} ORDER BY day DESC, {keys}",
            (first,),
        )
        names = (*keys.split(", "), "calls", "usd", "tokens", "seconds", "unknown")
        totals = [dict(zip(names, row, strict=True)) for row in rows]
    for total in totals:
        total |= {"usd": round(total["usd"], 9), "seconds": round(total["seconds"], 3)}
    return totals


def _balance(db: sqlite3.Connection, limit: Limit, now: float) -> Balance:
    unit = limit.unit
    assert unit in UNITS
    spent, held, unknown = db.execute(
        f"SELECT coalesce(sum({unit}), 0.0), coalesce(sum(held_{unit}), 0.0), sum(unknown) FROM calls"
        f" WHERE day >= ? AND {_CHARGED[limit.scope]}",
        (first_day(limit.period, now), limit.name),
    ).fetchone()
    return Balance(limit, spent, held, bool(unknown) and unit in ("usd", "tokens"))
