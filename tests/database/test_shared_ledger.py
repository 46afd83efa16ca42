"""Ledgers and circuit breakers of a cluster: limits hold for all workers together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from clusters import LIMIT_S, Cluster

from llc.runtime.database.connection import Address
from llc.runtime.database.shared_ledger import SharedLedger
from llc.runtime.host import clock
from llc.runtime.ledger import breakers, ledger
from llc.runtime.ledger import database as tables
from llc.runtime.ledger.ledger import Call, Denied, Grant
from llc.runtime.ledger.limits import Limit

LOOP = """
name: {0}
initial: fix
scope: [{0}]
states:
  fix: {{action: "do it", action_type: prompt, next: done}}
  done: {{terminal: true}}
"""
AGENT = """#!/bin/sh
echo "$@" >> "$CALLS"
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok",
"total_cost_usd":0.02,"session_id":"s","usage":{"input_tokens":900,"output_tokens":100}}' | tr -d '\\n'
"""
# Reserves and settles calls until a limit is reached, and prints their number.
SPENDER = """
import sys
from llc.runtime.database.connection import Address
from llc.runtime.database.shared_ledger import SharedLedger
from llc.runtime.ledger import database, ledger
database.shared = SharedLedger(Address.parse(sys.argv[1]), "p", "nobody")
count = 0
while True:
    call = ledger.Call("p", sys.argv[2], count, "claude", "claude", "")
    found = ledger.reserve(call, (), {})
    if isinstance(found, ledger.Denied):
        break
    ledger.settle(found.row, True, {"usage": {"usd": 0.01, "tokens": 5}, "duration_ms": 3})
    count += 1
print(count)
"""


@pytest.fixture
def shared(database: str) -> Iterator[SharedLedger]:
    tables.shared = SharedLedger(Address.parse(database), "p", "nobody")
    yield tables.shared
    tables.shared = None


def _call(seq: int, account: str = "claude") -> Call:
    return Call("p", "run", seq, account, "claude", "")


def test_amounts_are_counted_as_in_a_file(shared: SharedLedger) -> None:
    """Reserve, settle, release, and the balances of a day, a project and an account."""
    for limit in (Limit("all", "", "day", "usd", 1.0), Limit("account", "claude", "ever", "tokens", 1000)):
        ledger.set_limit(limit)
    ledger.set_limit(Limit("all", "", "day", "usd", 2.0))
    assert [limit.amount for limit in ledger.limits()] == [2.0, 1000.0]
    first = ledger.reserve(_call(1, "claude:sub"), (), {"usd": 0.5})
    assert isinstance(first, Grant)
    assert first.held == {"usd": 0.5, "tokens": 250.0}
    assert [left.seq for left in ledger.open_reservations("p", "run")] == [1]
    ledger.settle(first.row, True, {"usage": {"usd": 0.25, "tokens": 600}, "duration_ms": 1500})
    second = ledger.reserve(_call(2), (), {})
    assert isinstance(second, Grant)
    ledger.release(second.row, False)
    day, account = ledger.balances()
    assert (day.spent, account.spent, day.held) == (0.25, 600, 0)
    assert ledger.accounts() == ["claude:sub"]
    (row,) = ledger.usage_by_day("2000-01-01")
    assert (row["calls"], row["usd"], row["tokens"], row["seconds"]) == (1, 0.25, 600, 1.5)
    third = ledger.reserve(_call(3), (), {"tokens": 400})
    assert isinstance(third, Grant)
    ledger.settle(third.row, True, {"usage": {"usd": 0.1, "tokens": 400}})
    denied = ledger.reserve(_call(4), (), {})
    assert isinstance(denied, Denied)
    assert denied.is_used_up
    assert ledger.remove_limits("account", "claude", None) == 1


def test_breakers_are_shared(shared: SharedLedger) -> None:
    """Open until the reset; a probe of a dead owner blocks no other call."""
    reset = clock.time() + 3600
    breakers.trip("claude", "quota", reset, "run")
    admission = breakers.admit("claude", "other")
    assert admission.breaker is not None
    assert [one.account for one in breakers.open_breakers()] == ["claude"]
    with tables.transaction() as db:
        db.execute("UPDATE breakers SET until = ?", (clock.time() - 1,))
    assert breakers.admit("claude", "run").is_probe
    assert breakers.admit("claude", "other").is_probe
    breakers.release("claude", "other")
    assert breakers.close("claude")
    assert not breakers.close("claude")


def test_concurrent_processes_do_not_exceed_a_limit(shared: SharedLedger) -> None:
    """The calls of four processes reach the limit exactly."""
    ledger.set_limit(Limit("all", "", "day", "calls", 20))
    words = [sys.executable, "-c", SPENDER, shared.address.url]
    spenders = [
        subprocess.Popen([*words, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)
    ]
    assert sum(int(one.communicate(timeout=LIMIT_S)[0]) for one in spenders) == 20


def test_two_workers_share_a_limit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Five runs, three calls a day: three agents are started, and two runs end with the limit."""
    place = tmp_path_factory.mktemp("bin")
    (place / "claude").write_text(AGENT)
    (place / "claude").chmod(0o755)
    calls = place / "calls"
    for name, value in (("PATH", f"{place}:{os.environ['PATH']}"), ("CALLS", calls)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("XDG_DATA_HOME", str(place / "data"))
    said = cluster.llc("budget", "set", "day", "3calls", "--db", cluster.url)
    assert said.returncode == 0, said.stderr
    for number in range(5):
        (cluster.folder / ".loops" / f"fix{number}.yaml").write_text(LOOP.format(f"fix{number}"))
    cluster.start()
    cluster.start()
    runs = [cluster.submit(f"fix{number}", "--no-preflight") for number in range(5)]
    over = ("ended", "stopped")
    for run in runs:
        postgres.until(lambda run=run: cluster.row(run)["status"] in over)
    asked = [line for line in calls.read_text().splitlines() if "--session-id" in line]
    assert len(asked) == 3, calls.read_text()
    found = json.loads(cluster.llc("budget", "--db", cluster.url, "--json").stdout)
    (row,) = found["ledgers"]
    assert (row["spent"], row["reserved"], found["today"]["calls"]) == (3, 0, 3)
    assert found["project"] == cluster.folder.name
    assert not Path(place / "data").exists()
