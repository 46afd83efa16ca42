"""`spec/budget.md`: its commands are accepted, its configuration is valid, its figures match the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import run_llc
from spec.blocks import take, text_of

from llc.runtime.ledger import database, ledger
from llc.runtime.project import budget, configuration

PAGE = text_of("budget.md")
(COMMANDS,) = take("budget.md", "sh")
(CONFIGURATION,) = take("budget.md", "yaml")


def test_the_commands_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for line in COMMANDS.text.splitlines():
        result = run_llc(*line.partition("#")[0].split()[1:])
        assert result.returncode == 0, (line, result.stderr)
    assert [limit.key for limit in ledger.limits()] == ["project", "account:claude"]


def test_the_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "config.yaml").write_text(CONFIGURATION.text)
    found = configuration.load(str(tmp_path))
    assert found.budget == {"usd": 5}
    assert found.ledgers["project"] == {"usd": 200, "calls": 5000}
    assert found.ledgers["day"] == {"usd": 20}


def test_the_figures_match_the_code() -> None:
    words = {4: "a quarter", 100: "a hundredth", 0.01: "a hundredth", 0.2: "a fifth"}
    assert f"reserves {words[ledger.AGENT_SHARE]} of" in PAGE
    assert f"a model's call {words[ledger.MODEL_SHARE]}" in PAGE
    assert f"{words[budget.LAST_TURN_FRACTION]} is kept for the turn" in PAGE
    assert f"no more than {words[ledger.USED_UP_FRACTION]} of its limit is left" in PAGE
    assert f"more than {ledger.MAX_CREDIBLE['usd']:,.0f} USD" in PAGE
    assert f"locked for {database.LOCK_TIMEOUT_S:.0f} seconds" in PAGE
    assert database.FILE in PAGE
