"""Reservations, amounts and balances of ledgers: all reading and writing of the database.

An amount is reserved before a call starts and settled with what the call reports. What is reserved counts as
used until then, so concurrent runs cannot exceed a limit together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...ir.effects import UNITS
from ..host import clock
from . import database
from .limits import ACCOUNT, ALL, PROJECT, Limit, days_back, first_day, renewal

# A call without a limit of its own reserves this part of a limit: an agent 1/4, a call of a model 1/100.
AGENT_SHARE, MODEL_SHARE = 4, 100
# A ledger of which no more than this part is left is used up: an agent could do nothing with it.
TOO_LITTLE = 0.01
# Number of calls after which old calls are folded into one row for each day, and their age in days.
FOLD_EVERY, FOLD_AFTER = 1000, 62
# What one call can have used at most; a report of more is not believed.
BELIEVED = {"usd": 10_000.0, "tokens": 1e10, "calls": 1.0, "seconds": 1e8}
_ROUNDING = 1e-9
# As `Limit.is_charged`.
_CHARGED = {
    ALL: "? = ''",
    PROJECT: "project = ?",
    ACCOUNT: "? IN (account, substr(account, 1, instr(account || ':', ':') - 1))",
}


class Call(NamedTuple):
    """One call of an agent or a model.

    project: the path of the project. run, seq: its effect. agent: name of an agent program, "" for a model.
    model: "" if it is not known. is_call: whether it counts in the unit `calls`.
    """

    project: str
    run: str
    seq: int
    account: str
    agent: str
    model: str
    is_call: bool = True


class Grant(NamedTuple):
    """A reservation. row: its number in the database. held: what is reserved, by the units with a limit."""

    row: int
    held: dict[str, float]


class Denied(NamedTuple):
    """Why nothing was reserved.

    limit: of the ledger. spent: what it has counted. is_used_up: False where other calls hold the rest.
    """

    limit: Limit
    spent: float
    is_used_up: bool


class Balance(NamedTuple):
    """What a ledger has counted in its current period. is_least: the amounts of some calls are unknown."""

    limit: Limit
    spent: float
    held: float
    is_least: bool

    @property
    def left(self) -> float:
        return max(0.0, self.limit.amount - self.spent - self.held)

    def to_json(self, now: float) -> dict[str, Any]:
        """The balance as `llc budget --json` has it."""
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
    """The limits that the user has set."""
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
    """Remove the limits of a ledger, in all units; how many there were. period: None for any."""
    with database.transaction() as db:
        found = db.execute(
            "DELETE FROM limits WHERE scope = ? AND name = ? AND period = coalesce(?, period)",
            (scope, name, period),
        ).rowcount
        database.mark_limits(bool(_limits(db)))
        return found


def _limits(db: sqlite3.Connection) -> list[Limit]:
    rows = db.execute("SELECT * FROM limits ORDER BY scope = 'account', scope, period, name, unit")
    return [Limit(*row) for row in rows]


# --- reservations -----------------------------------------------------------------------------


def reserve(call: Call, own: Iterable[Limit], bounds: Mapping[str, float]) -> Grant | Denied:
    """Reserve what a call may use.

    own: limits of the project's configuration. bounds: the most that the call may use anyway, by unit. What
    is reserved is a share of the smallest limit, or the rest of it. Raises `LedgerError`.
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
            left = limit.amount - spent
            most = 1.0 if limit.unit == "calls" else min(left, limit.amount / share)
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
        if row % FOLD_EVERY == 0:
            _fold(db, days_back(FOLD_AFTER, now))
        return Grant(row, wanted)


def reopen(call: Call) -> Grant | None:
    """The reservation of a call that a process which died had made; None without one.

    If it was settled since, by what the call had reported until then, that is undone. Raises `LedgerError`.
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
    """Replace a reservation by what the result of the call reports; no effect on one that is settled.

    An amount that is not reported, or is not believable, counts as what was reserved.
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
            amount = believed(unit, usage.get(unit)) if isinstance(usage, dict) else 0
            unknown += unit == "usd" and amount is None
            amounts.append((reserved or 0) if amount is None else amount)
        seconds = believed("seconds", result.get("duration_ms"))
        db.execute(
            "UPDATE calls SET usd = ?, tokens = ?, calls = ?, seconds = ?, unknown = ?," + _CLOSED,
            (amounts[0], int(amounts[1]), is_call, (seconds or 0) / 1000 if is_call else 0, unknown, row),
        )


def release(row: int, is_begun: bool, usage: Mapping[str, Any] | None = None) -> None:
    """Give a reservation back. is_begun: the call has started, and used `usage` at least."""
    with database.transaction() as db:
        if is_begun:
            usd, tokens = (believed(unit, (usage or {}).get(unit)) or 0 for unit in ("usd", "tokens"))
            statement = "UPDATE calls SET usd = ?, tokens = ?, calls = 1, unknown = 1," + _CLOSED
            db.execute(statement, (usd, int(tokens), row))
        else:
            db.execute("DELETE FROM calls WHERE id = ? AND pid IS NOT NULL", (row,))


_CLOSED = (
    " held_usd = NULL, held_tokens = NULL, held_calls = NULL, held_seconds = NULL, pid = NULL,"
    " started = NULL WHERE id = ? AND pid IS NOT NULL"
)


def _fold(db: sqlite3.Connection, before: str) -> None:
    """Replace the calls before a day by one row for each day, project, account, agent and model."""
    keys = "project, day, account, agent, model"
    db.execute("CREATE TEMP TABLE folded AS SELECT id FROM calls WHERE day < ? AND pid IS NULL", (before,))
    db.execute(
        f"INSERT INTO calls ({keys}, run, seq, usd, tokens, calls, seconds, unknown)"
        f" SELECT {keys}, '', 0, sum(usd), sum(tokens), sum(calls), sum(seconds), sum(unknown) FROM calls"
        f" WHERE id IN (SELECT id FROM folded) GROUP BY {keys}"
    )
    db.execute("DELETE FROM calls WHERE id IN (SELECT id FROM folded)")


class Open(NamedTuple):
    """A reservation that is not settled, and the process that made it."""

    row: int
    project: str
    run: str
    seq: int
    pid: int
    started: str


def open_reservations(project: str | None = None, run: str | None = None) -> list[Open]:
    """The reservations that are not settled, of one run if it is given."""
    with database.transaction(is_writing=False) as db:
        rows = db.execute(
            "SELECT id, project, run, seq, pid, started FROM calls WHERE pid IS NOT NULL"
            " AND project = coalesce(?, project) AND run = coalesce(?, run)",
            (project, run),
        )
        return [Open(*row) for row in rows]


def believed(unit: str, value: Any) -> float | None:
    """A reported amount; None for what no call can have used: text, negative, not finite, too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= BELIEVED[unit] * (1000 if unit == "seconds" else 1) else None


def is_used_up(limit: Limit, spent: float) -> bool:
    """Whether what is left of a limit is too little for a call."""
    least = _ROUNDING if limit.unit == "calls" else limit.amount * TOO_LITTLE
    return limit.amount - spent <= least


# --- views ------------------------------------------------------------------------------------


def balances(own: Iterable[Limit] = ()) -> list[Balance]:
    """The balance of each limit, first of those that the user has set, then of `own`."""
    now = clock.time()
    with database.transaction(is_writing=False) as db:
        return [_balance(db, limit, now) for limit in (*_limits(db), *own)]


def accounts() -> list[str]:
    """The accounts of all recorded calls."""
    with database.transaction(is_writing=False) as db:
        return [name for (name,) in db.execute("SELECT DISTINCT account FROM calls ORDER BY account")]


def usage_by_day(first: str) -> list[dict[str, Any]]:
    """What calls have used since a local day, by day, project, account, agent and model; latest day first."""
    keys = "day, project, account, agent, model"
    with database.transaction(is_writing=False) as db:
        rows = db.execute(
            f"SELECT {keys}, sum(calls), sum(usd), sum(tokens), sum(seconds), sum(unknown) FROM calls"
            f" WHERE day >= ? AND pid IS NULL GROUP BY {keys} ORDER BY day DESC, {keys}",
            (first,),
        )
        names = (*keys.split(", "), "calls", "usd", "tokens", "seconds", "unknown")
        found = [dict(zip(names, row, strict=True)) for row in rows]
    for row in found:
        row |= {"usd": round(row["usd"], 9), "seconds": round(row["seconds"], 3)}
    return found


def _balance(db: sqlite3.Connection, limit: Limit, now: float) -> Balance:
    unit = limit.unit
    assert unit in UNITS
    spent, held, unknown = db.execute(
        f"SELECT coalesce(sum({unit}), 0.0), coalesce(sum(held_{unit}), 0.0), sum(unknown) FROM calls"
        f" WHERE day >= ? AND {_CHARGED[limit.scope]}",
        (first_day(limit.period, now), limit.name),
    ).fetchone()
    return Balance(limit, spent, held, bool(unknown) and unit in ("usd", "tokens"))
