"""Circuit breakers: prevent all runs of a user from using an account whose quota is used up.

The user's database has one row per account. A breaker is open until a time. Then it is half-open: one caller
probes the account while the others wait for the result. A success closes the breaker; a failure opens it
again. Must not contain: the waiting itself (`models.quota`). See `spec/agents.md`, Quota.
"""

from __future__ import annotations

from typing import NamedTuple

from ..host import clock
from . import database

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

# Seconds until the next probe if the time of the reset is unknown, by the number of consecutive failures.
BACKOFF_S = (300.0, 900.0, 1800.0, 3600.0)
# A reset further in the future than this, in seconds, is ignored; no quota has a longer period.
MAX_RESET_S = 40 * 86400.0
# Seconds after which a probe without a result no longer delays other callers.
PROBE_TIMEOUT_S = 600.0
# Seconds by which a clock may be set back without effect on breakers.
_CLOCK_TOLERANCE_S = 60.0
# Seconds between a reset and the probe, in case the clock of the service is slow.
_RESET_MARGIN_S = 1.0
# A reset that has passed by less than this, in seconds, is still expected to happen soon.
_RECENT_RESET_S = 60.0
_MAX_REASON_CHARS = 500
_TABLE = """
CREATE TABLE IF NOT EXISTS breakers (
  account TEXT PRIMARY KEY, until REAL NOT NULL, opened REAL NOT NULL, reason TEXT NOT NULL,
  failures INTEGER NOT NULL, run TEXT, pid INTEGER, started TEXT, probe REAL) WITHOUT ROWID
"""


class Breaker(NamedTuple):
    """Breaker of an account that cannot be used now.

    until: time of the next probe; opened: time of opening; both in seconds since 1970. failures: number of
    consecutive failures. run: id of the run that probes; None if no run probes.
    """

    account: str
    until: float
    opened: float
    reason: str
    failures: int
    run: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the breaker in the format of `llc budget --json`."""
        return {
            **self._asdict(),
            "until": clock.timestamp(self.until),
            "opened": clock.timestamp(self.opened),
        }


class Admission(NamedTuple):
    """Admission of a call.

    breaker: the call must wait for it; None: it may start. is_probe: the call probes.
    """

    breaker: Breaker | None
    is_probe: bool = False


def admit(account: str, run: str) -> Admission:
    """Decide whether a call of an account may start. Raises `LedgerError`."""
    if not database.exists():
        return Admission(None)
    with database.transaction(is_writing=False) as db:
        row = _row(db, account)
    if row is None:
        return Admission(None)
    if _must_wait(row, clock.time()):
        return Admission(row.breaker)
    with database.transaction() as db:
        row = _row(db, account)
        now = clock.time()
        if row is None:
            return Admission(None)
        if _must_wait(row, now):
            return Admission(row.breaker)
        pid, started = database.holder()
        db.execute(
            "UPDATE breakers SET run = ?, pid = ?, started = ?, probe = ? WHERE account = ?",
            (run, pid, started, now, account),
        )
        return Admission(None, True)


def trip(account: str, reason: str, resets_at: float | None, run: str) -> Breaker:
    """Open the breaker of an account whose quota is used up. Raises `LedgerError`.

    resets_at: time of the reset in seconds since 1970; None if unknown. A time in the past or too far in the
    future is ignored.
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
                until = row.breaker.until  # a concurrent call has opened it
            else:
                failures += 1
        if until == 0.0 or resets_at is not None:
            until = max(until, next_probe(resets_at, failures, now))
        breaker = Breaker(account, until, now, reason[:_MAX_REASON_CHARS], failures)
        db.execute("DELETE FROM breakers WHERE account = ?", (account,))
        db.execute(
            "INSERT INTO breakers (account, until, opened, reason, failures) VALUES (?, ?, ?, ?, ?)",
            breaker[:5],
        )
        return breaker


def next_probe(resets_at: float | None, failures: int, now: float) -> float:
    """Return the time of the next probe, in seconds since 1970."""
    if resets_at is not None and now - _RECENT_RESET_S < resets_at <= now + MAX_RESET_S:
        return resets_at + _RESET_MARGIN_S if resets_at > now else now + _RECENT_RESET_S / 2
    return now + BACKOFF_S[min(max(failures, 1), len(BACKOFF_S)) - 1]


def close(account: str) -> bool:
    """Close the breaker of an account; return whether it existed. Raises `LedgerError`."""
    if not database.exists():
        return False
    with database.transaction() as db:
        return (
            database.has_breakers(db)
            and db.execute("DELETE FROM breakers WHERE account = ?", (account,)).rowcount > 0
        )


def release(account: str, run: str) -> None:
    """Release a probe that ended without a result about the quota, so that the next call may probe.

    Raises `LedgerError`.
    """
    with database.transaction() as db:
        if database.has_breakers(db):
            db.execute(
                "UPDATE breakers SET run = NULL, pid = NULL, started = NULL, probe = NULL"
                " WHERE account = ? AND run = ?",
                (account, run),
            )


def open_breakers() -> list[Breaker]:
    """List the breakers of all accounts that are open or half-open. Raises `LedgerError`."""
    with database.transaction(is_writing=False) as db:
        if not database.has_breakers(db):
            return []
        names = [name for (name,) in db.execute("SELECT account FROM breakers ORDER BY account")]
        rows = [_row(db, name) for name in names]
    return [row.breaker for row in rows if row is not None]


class _Row(NamedTuple):
    """Row of a breaker, with the process that probes."""

    breaker: Breaker
    pid: int | None
    started: str
    probe: float


def _row(db: sqlite3.Connection, account: str) -> _Row | None:
    """Read the row of an account; None if there is no valid row."""
    if not database.has_breakers(db):
        return None
    row = db.execute(
        "SELECT until, opened, reason, failures, run, pid, started, probe FROM breakers WHERE account = ?",
        (account,),
    ).fetchone()
    match row:
        case (float(until), float(opened), str(reason), int(failures), run, pid, started, probe):
            is_probed = isinstance(pid, int) and isinstance(started, str) and isinstance(probe, float)
            breaker = Breaker(account, until, opened, reason, failures, str(run) if is_probed else None)
            return _Row(breaker, *((pid, started, probe) if is_probed else (None, "", 0.0)))
    return None


def _is_open(row: _Row, now: float) -> bool:
    """Whether the time of the next probe is in the future and the clock was not set back."""
    breaker = row.breaker
    return now < breaker.until <= breaker.opened + MAX_RESET_S and now > breaker.opened - _CLOCK_TOLERANCE_S


def _must_wait(row: _Row, now: float) -> bool:
    """Whether a call must wait: the breaker is open, or another call probes."""
    if _is_open(row, now):
        return True
    is_recent = abs(now - row.probe) < PROBE_TIMEOUT_S
    return (
        row.pid is not None and is_recent and database.is_alive(row.breaker.run or "", row.pid, row.started)
    )
