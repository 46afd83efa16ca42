"""Verdicts by an agent, if no model key is set or the loop requests an agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: judged
initial: work
max_iterations: 2
agent: mine
LLMstates:
  work:
    action: echo finished
    evaluate: {type: llm_structured}
    route: ROUTE
  done: {terminal: true}
  lost: {terminal: true, status: failure}
"""
# Replies as Claude Code does. `answer.json` has the reply; `asked.json` gets the arguments and the prompt.
AGENT = """import json, os, sys
asked = {"words": sys.argv[1:], "prompt": sys.stdin.read()}
schema_path = sys.argv[sys.argv.index("--schema-file") + 1] if "--schema-file" in sys.argv else None
if schema_path: asked["schema"] = json.load(open(schema_path))
json.dump(asked, open("asked.json", "w"))
answer = json.load(open("answer.json"))
emit = lambda **event: print(json.dumps(event), flush=True)
emit(type="system", subtype="init", session_id="s", model="m")
emit(type="assistant", session_id="s", message={"id": "1", "content": [{"type": "text", "text": "Looking."}]})
end = {"type": "result", "is_error": False, "num_turns": 1, "session_id": "s", "total_cost_usd": 0.02}
emit(**end, **answer) if "is_error" not in answer else emit(**{**end, **answer})
"""


@pytest.fixture
def judge(llc: Llc, project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs the loop with an agent that gives `answer`; returns the outcome and what the agent was asked."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "LLC_AGENT"):
        monkeypatch.delenv(name, raising=False)
    (project_dir / "agent.py").write_text(AGENT)
    config = {"agents": {"mine": {"extends": "claude", "argv": [sys.executable, "agent.py", "{options}"]}}}
    (project_dir / ".loops" / "config.yaml").write_text(json.dumps(config))

    def judge(answer: dict[str, Any], llm: str = "", route: str = "", **extra: Any) -> dict[str, Any]:
        if extra:
            mine = {**config["agents"]["mine"], **extra}
            (project_dir / ".loops" / "config.yaml").write_text(json.dumps({"agents": {"mine": mine}}))
        (project_dir / "answer.json").write_text(json.dumps(answer))
        text = LOOP.replace("LLM", f"llm: {{{llm}}}\n" if llm else "")
        text = text.replace("ROUTE", route or "{success: done, _: lost}")
        (project_dir / ".loops" / "judged.yaml").write_text(text)
        completed = llc("run", "judged", "--json")
        outcome: dict[str, Any] = json.loads(completed.stdout)
        if (project_dir / "asked.json").exists():
            outcome["asked"] = json.loads((project_dir / "asked.json").read_text())
            (project_dir / "asked.json").unlink()
        return outcome

    return judge


def verdict(word: str) -> dict[str, Any]:
    return {"result": "Judged.", "structured_output": {"verdict": word, "confidence": 0.9, "reason": "seen"}}


@pytest.mark.parametrize(("word", "state"), [("success", "done"), ("failure", "lost")])
def test_agent_judges_if_no_key_is_set(judge: Callable[..., Any], llc: Llc, word: str, state: str) -> None:
    """The agent gets question, output and schema in a read-only mode; its cost is counted."""
    outcome = judge(verdict(word))
    assert outcome["final_state"] == state
    arguments = outcome["asked"]["words"]
    assert json.loads(arguments[arguments.index("--json-schema") + 1])["required"] == [
        "verdict",
        "confidence",
        "reason",
    ]
    assert arguments[arguments.index("--permission-mode") + 1] == "plan"
    assert "<action_output>\nfinished\n" in outcome["asked"]["prompt"]
    (row,) = json.loads(llc("history", "--json").stdout)["runs"]
    assert row["usd"] == 0.02


def test_loop_can_select_the_agent_or_the_model(
    judge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`llm.judge` decides; without it, an agent judges only if no key is set."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    assert judge(verdict("success"), "judge: agent")["final_state"] == "done"
    assert "asked" not in judge(verdict("success"))
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert "asked" not in judge(verdict("success"), "judge: model")


def test_answer_without_a_verdict_is_cannot_judge(judge: Callable[..., Any]) -> None:
    """The route `cannot_judge` handles it; without that route, or with an invalid verdict, it is an error."""
    answer = {"result": "It looks fine."}
    assert judge(answer, route="{success: done, cannot_judge: lost, _: done}")["final_state"] == "lost"
    assert "answered without a verdict" in str(judge(answer)["error"])
    assert "breaks the schema" in str(judge(verdict("perhaps"))["error"])


def test_answer_text_may_be_the_verdict(judge: Callable[..., Any]) -> None:
    """For agents that take the schema from a file."""
    answer = {"result": json.dumps(verdict("success")["structured_output"])}
    options = [["--schema-file", "{schema_file}"]]
    outcome = judge(answer, options=options)
    assert outcome["final_state"] == "done"
    assert outcome["asked"]["schema"]["type"] == "object"
    arguments = outcome["asked"]["words"]
    assert not Path(arguments[arguments.index("--schema-file") + 1]).exists()


def test_failed_judge_is_an_error_with_its_message(judge: Callable[..., Any]) -> None:
    outcome = judge({"result": "Not logged in", "is_error": True})
    assert "the agent cannot judge: " in str(outcome["error"])
    assert "Not logged in" in str(outcome["error"])
