"""Times are local for people and UTC in data; money has one notation everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.host.screen import Screen
from llc.runtime.journal import quantities
from llc.runtime.terminal import task_result

# Five and a half hours behind UTC, so that hour and minute differ from UTC.
ZONE = "EARLY+5:30"
LOOP = """name: one
initial: a
states:
  a: {action: "sleep 30", on_success: b, on_failure: b}
  b: {terminal: true}
"""


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", ZONE)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_time_stamp_is_shown_in_local_time(zone: None) -> None:
    """With the local day; a text that is not a time stamp is shown unchanged."""
    assert quantities.local_time("2024-01-15T02:10:00.123Z") == ("2024-01-14", "20:40:00.123")
    assert quantities.moment_text("2024-01-15T02:10:00.123Z") == "2024-01-14 20:40:00"
    assert quantities.zone_name("2024-01-15T02:10:00.123Z") == "EARLY"
    assert quantities.moment_text("yesterday") == "yesterday "


@pytest.mark.parametrize(
    ("unit", "amount", "text"),
    [
        ("usd", 0, "0 USD"),
        ("usd", 5.0, "5 USD"),
        ("usd", 0.5, "0.5000 USD"),
        ("usd", 12345.678901, "12,345.6789 USD"),
        ("tokens", 1, "1 token"),
        ("tokens", 1980, "1,980 tokens"),
        ("calls", 2, "2 calls"),
        ("seconds", 2.25, "2.2 seconds"),
    ],
)
def test_an_amount_is_shown_with_its_unit(unit: str, amount: float, text: str) -> None:
    """Money has no decimals or four."""
    assert quantities.amount_text(unit, amount) == text


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_commands_show_local_time_and_data_has_utc(
    project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`history` and `logs` show local time; `--json` and files have UTC."""
    monkeypatch.setenv("TZ", ZONE)
    Path(".loops/one.yaml").write_text(LOOP.replace("sleep 30", "true"))
    assert run("run", "one", "-q").returncode == 0
    (row,) = json.loads(run("history", "--json").stdout)["runs"]
    began = datetime.fromisoformat(row["started_at"])
    assert began.utcoffset() == timedelta(0)
    local = began - timedelta(hours=5, minutes=30)
    assert f"{local:%Y-%m-%d %H:%M:%S}" in run("history").stdout
    shown = run("logs", "one").stdout.splitlines()
    assert shown[0] == f"{local:%Y-%m-%d} (EARLY)"
    assert shown[1].startswith(f"{local:%H:%M:}")
    assert json.loads(run("logs", "one", "--json").stdout.splitlines()[0])["ts"] == row["started_at"]


def test_a_locked_path_is_refused_with_the_local_time(
    project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock has the time in UTC, the message in local time."""
    monkeypatch.setenv("TZ", ZONE)
    Path(".loops/one.yaml").write_text(LOOP)
    first = subprocess.Popen([sys.executable, "-m", "llc", "run", "one", "-q"])
    try:
        end = time.monotonic() + 60
        lock_files: list[Any] = []
        while not lock_files and time.monotonic() < end:
            lock_files = [
                path for path in project_dir.glob(".loops/.running/*/lock") if "since" in path.read_text()
            ]
            time.sleep(0.05)
        since = datetime.fromisoformat(json.loads(lock_files[0].read_text())["since"])
        assert since.utcoffset() == timedelta(0)
        refused = run("run", "one", "-q")
        local = since - timedelta(hours=5, minutes=30)
        assert f"since {local:%Y-%m-%d %H:%M:%S})" in refused.stderr
    finally:
        first.terminate()
        first.wait(30)


def test_every_view_has_the_same_notation_of_money(project_dir: Path) -> None:
    """The last line of a run, `status`, `logs`, `history` and the result of a task."""
    Path(".loops/one.yaml").write_text(LOOP.replace("sleep 30", "/fix"))
    Path("world.yaml").write_text("- {state: a, exit_code: 0, usage: {usd: 0.02, tokens: 1980}}\n")
    done = run("run", "one", "--script", "world.yaml")
    assert "0.0200 USD, 1,980 tokens)" in done.stdout
    assert "0.0200 USD, 1,980 tokens" in run("status", "one").stdout
    assert "0.0200 USD, 1,980 tokens)" in run("logs", "one").stdout
    shown = run("history", "one").stdout
    assert "0.0200 USD and 1,980 tokens in all" in shown
    result = {"status": "COMPLETE", "notes": {"usage": {"usd": 0.02, "tokens": 1980}}}
    assert "(0.0200 USD, 1,980 tokens)" in task_result.headline(result, Screen(sys.stdout))
