"""Flows whose tasks a model does, from the command line: the real client, a local Messages API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Llc = Callable[..., subprocess.CompletedProcess[str]]

SUMMARISE = """
(defatom user:summarise (params text) (instructions "Summarise: {{text}}"))
(user:summarise (text "a long story"))
"""


@pytest.fixture
def llc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in a project."""
    (tmp_path / ".loops").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR", "LLC_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def llc(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llc", *words], capture_output=True, text=True, check=False
        )

    return llc


def test_a_task_of_a_flow_is_done_by_a_model(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """From `defatom` to its TaskResult; what the model says is shown as it comes."""
    messages_server.then(answers.text("It is\nshort.", tokens=(1000, 200)))
    (tmp_path / ".loops" / "sum.sexp").write_text(SUMMARISE)
    done = llc("run", "sum", "--json")
    assert json.loads(done.stdout)["value"] == {
        "status": "COMPLETE",
        "content": "It is\nshort.",
        "notes": {
            "model": "claude-haiku-4-5",
            "usage": {
                "input_tokens": 1000,
                "output_tokens": 200,
                "tokens": 1200,
                "cache_read_tokens": 0,
                "cache_write_tokens": 0,
                "usd": 0.002,
            },
        },
    }
    assert "│ short." in done.stderr
    (sent,) = messages_server.requests
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Summarise: a long story"}]}
    ]
