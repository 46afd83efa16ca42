"""Quota: agents of an account whose quota is used up wait for its reset, behind one circuit breaker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# An agent that speaks the events of Claude Code. Its service has quota from the time in the file `reset` on.
AGENT = """#!/bin/sh
case " $* " in *" -p "*) ;; *) exit 0 ;; esac
cat > /dev/null
now=$(date +%s.%N)
echo "$now" >> "$STARTS"
reset=$(cat "$RESET")
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
if [ "$(printf '%s\\n%s\\n' "$now" "$reset" | sort -g | head -1)" = "$now" ]; then
  [ -n "$SILENT" ] || echo '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":'"${TOLD:-$reset}"'}}'
  echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"num_turns":1,"result":"You hit your limit","session_id":"s-1"}'
  exit 1
fi
echo '{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"true"}}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"done","total_cost_usd":0.5,"session_id":"s-1","usage":{"input_tokens":9,"output_tokens":1}}'
"""  # noqa: E501 -- each line is one event
LOOP = """
name: ask
initial: fix
scope: []
agent: claude
MORE
states:
  fix:
    action: "do it"
    action_type: prompt
    evaluate: {type: exit_code}
    on_success: done
    on_failure: lost
    on_error: lost
  done: {terminal: true}
  lost: {terminal: true, status: failure}
"""


class Service:
    """A project whose agent asks a service with a quota. reset: when the service has quota again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts_file, self.reset_file = folder / "starts", folder / "reset"
        self.env = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "XDG_DATA_HOME": str(folder / "data"),
            "STARTS": str(self.starts_file),
            "RESET": str(self.reset_file),
            "HOME": str(folder),
        }
        for name in ("ANTHROPIC_API_KEY", "LLC_AGENT"):
            self.env.pop(name, None)
        (folder / "bin").mkdir()
        (folder / ".loops").mkdir()
        agent = folder / "bin" / "claude"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        self.loop("")
        self.started: list[subprocess.Popen[str]] = []

    def loop(self, more: str) -> None:
        (self.folder / ".loops" / "ask.yaml").write_text(LOOP.replace("MORE", more))

    def resets_in(self, seconds: float) -> float:
        """Let the quota be used up for this time from now on; when that ends."""
        moment = float(int(time.time() + seconds + 1))
        self.reset_file.write_text(f"{moment:.0f}")
        return moment

    @property
    def starts(self) -> list[float]:
        """When the agent was started."""
        if not self.starts_file.exists():
            return []
        return [float(line) for line in self.starts_file.read_text().splitlines()]

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "llc", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env={**self.env, **env},
        )
        self.started.append(process)
        return process

    def llc(self, *words: str, **env: str) -> tuple[int, str]:
        process = self.start(*words, **env)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def events(self) -> list[dict[str, Any]]:
        """The events of the only run."""
        (path,) = self.folder.glob(".loops/.*/ask-*/*.events.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def acted(self, what: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["event"] == "agent" and event["what"] == what]

    def waits(self) -> bool:
        return bool(list(self.folder.glob(".loops/.*/ask-*/*.events.jsonl"))) and bool(
            self.acted("quota-wait")
        )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(is_so: Callable[[], object], seconds: float = 120) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_a_run_waits_for_the_reset(service: Service) -> None:
    """The agent is started again after the reset, as one effect; the wait is in journal and logs."""
    reset = service.resets_in(3)
    code, output = service.llc("run", "ask")
    assert code == 0, output
    assert "waiting for the quota of the account claude until" in output
    first, second = service.starts
    assert first < reset <= second
    (wait,) = service.acted("quota-wait")
    assert (wait["name"], wait["resets_at"]) == ("claude", reset + 1)
    assert service.acted("quota-over")[0]["delay_s"] > 0
    (result,) = [event["result"] for event in service.events() if event["event"] == "action_complete"]
    assert result["usage"]["tokens"] == 10
    assert "waiting for the quota of the account claude" in service.llc("logs", "ask")[1]
