"""Circuit breakers: accounts whose quota is used up, so that no run of the user starts work for them.

One row per account in the user's database. A breaker is open until a time; then one caller probes (half-open)
while the others wait for its result. Success closes it, a further failure opens it again. Must not contain:
the waiting itself (`models.quota`). See `spec/agents.md`, Quota.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..host import clock
from . import database

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

# Seconds until the next probe where the time of the reset is unknown, by the number of failures in a row.
BACKOFF = (300.0, 900.0, 1800.0, 3600.0)
# A reset further away than this, in seconds, is not believed; no quota has a longer period.
FURTHEST = 40 * 86400.0
# Seconds after which a probe without a result does not hold the others back any more.
PROBE_TIME = 600.0
# Seconds by which a clock may be set back without effect on breakers.
_SET_BACK = 60.0
# Seconds after a reset until the probe, so that a service whose clock is behind has done it; and seconds for
# which a reset that has passed is believed to be about to happen.
_AFTER = 1.0
_JUST_NOW = 60.0
_REASON = 500
_TABLE = """
CREATE TABLE IF NOT EXISTS breakers (
  account TEXT PRIMARY KEY, until REAL NOT NULL, opened REAL NOT NULL, reason TEXT NOT NULL,
  failures INTEGER NOT NULL, run TEXT, pid INTEGER, started TEXT, probe REAL) WITHOUT ROWID
"""


class Breaker(NamedTuple):
    """An account that cannot be used now.

    until: when the next caller may probe, in seconds since 1970. opened: when it was opened. failures: how
    often the quota was used up in a row. run: the run that probes, None if none does.
    """

    account: str
    until: float
    opened: float
    reason: str
    failures: int
    run: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The breaker as `llc budget --json` shows it."""
        return {
            **self._asdict(),
            "until": clock.timestamp(self.until),
            "opened": clock.timestamp(self.opened),
        }


class Admission(NamedTuple):
    """Whether a call may start: it waits for `breaker` if there is one. is_probe: it is the only one."""

    breaker: Breaker | None
    is_probe: bool = False


def admit(account: str, run: str) -> Admission:
    """Ask to start a call of an account. Raises `LedgerError`."""
    if not database.exists():
        return Admission(None)
    with database.transaction(is_writing=False) as db:
        row = _row(db, account)
    if row is None:
        return Admission(None)
    if _is_held(row, clock.time()):
        return Admission(row.breaker)
    with database.transaction() as db:
        row = _row(db, account)
        now = clock.time()
        if row is None:
            return Admission(None)
        if _is_held(row, now):
            return Admission(row.breaker)
        pid, started = database.holder()
        db.execute(
            "UPDATE breakers SET run = ?, pid = ?, started = ?, probe = ? WHERE account = ?",
            (run, pid, started, now, account),
        )
        return Admission(None, True)


def trip(account: str, reason: str, resets_at: float | None, run: str) -> Breaker:
    """Open the breaker of an account whose quota is used up. Raises `LedgerError`.

    resets_at: seconds since 1970; None if it is not known. A time that has passed, or that is too far away,
    is not believed.
    """
    now = clock.time()
    with database.transaction() as db:
        if not database.has_breakers(db):
            db.execute(_TABLE)
        row = _row(db, account)
        failures, until = 1, 0.0
        if row is not None:
            failures = row.breaker.failures
            if _is_open(row, now):
                until = row.breaker.until  # opened by another call that was under way
            else:
                failures += 1
        if until == 0.0 or resets_at is not None:
            until = max(until, next_probe(resets_at, failures, now))
        breaker = Breaker(account, until, now, reason[:_REASON], failures)
        db.execute("DELETE FROM breakers WHERE account = ?", (account,))
        db.execute(
            "INSERT INTO breakers (account, until, opened, reason, failures) VALUES (?, ?, ?, ?, ?)",
            breaker[:5],
        )
        return breaker


def next_probe(resets_at: float | None, failures: int, now: float) -> float:
    """When the next call may probe, in seconds since 1970."""
    if resets_at is not None and math.isfinite(resets_at) and now - _JUST_NOW < resets_at <= now + FURTHEST:
        return resets_at + _AFTER if resets_at > now else now + _JUST_NOW / 2
    return now + BACKOFF[min(max(failures, 1), len(BACKOFF)) - 1]


def close(account: str) -> bool:
    """Close the breaker of an account; whether there was one. Raises `LedgerError`."""
    if not database.exists():
        return False
    with database.transaction() as db:
        return (
            database.has_breakers(db)
            and db.execute("DELETE FROM breakers WHERE account = ?", (account,)).rowcount > 0
        )


def release(account: str, run: str) -> None:
    """A probe ended without a result about the quota: the next call may probe. Raises `LedgerError`."""
    with database.transaction() as db:
        if database.has_breakers(db):
            db.execute(
                "UPDATE breakers SET run = NULL, pid = NULL, started = NULL, probe = NULL"
                " WHERE account = ? AND run = ?",
                (account, run),
            )


def open_breakers() -> list[Breaker]:
    """The breakers of all accounts that are not closed. Raises `LedgerError`."""
    with database.transaction(is_writing=False) as db:
        if not database.has_breakers(db):
            return []
        names = [name for (name,) in db.execute("SELECT account FROM breakers ORDER BY account")]
        rows = [_row(db, name) for name in names]
    return [row.breaker for row in rows if row is not None]


class _Row(NamedTuple):
    """A breaker and the process that probes."""

    breaker: Breaker
    pid: int | None
    started: str
    probe: float


def _row(db: sqlite3.Connection, account: str) -> _Row | None:
    """The row of an account; None if there is none that can be read."""
    if not database.has_breakers(db):
        return None
    found = db.execute(
        "SELECT until, opened, reason, failures, run, pid, started, probe FROM breakers WHERE account = ?",
        (account,),
    ).fetchone()
    match found:
        case (float(until), float(opened), str(reason), int(failures), run, pid, started, probe):
            is_probed = isinstance(pid, int) and isinstance(started, str) and isinstance(probe, float)
            breaker = Breaker(account, until, opened, reason, failures, str(run) if is_probed else None)
            return _Row(breaker, *((pid, started, probe) if is_probed else (None, "", 0.0)))
    return None


def _is_open(row: _Row, now: float) -> bool:
    """Whether the time of the next probe is still to come, by a clock that was not set back."""
    breaker = row.breaker
    return now < breaker.until <= breaker.opened + FURTHEST and now > breaker.opened - _SET_BACK


def _is_held(row: _Row, now: float) -> bool:
    """Whether a call has to wait: the breaker is open, or another call probes."""
    if _is_open(row, now):
        return True
    is_recent = abs(now - row.probe) < PROBE_TIME
    return (
        row.pid is not None and is_recent and database.is_alive(row.breaker.run or "", row.pid, row.started)
    )
