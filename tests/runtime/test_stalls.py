"""Stalls: after rounds without a change a loop ends or takes `on_stall`; no false alarms."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.effects.stalls import normalised

Run = Callable[..., subprocess.CompletedProcess[str]]


def write_project(project_dir: Path, agent: str, check: str = "cat wrong; exit 1", more: str = "") -> None:
    """A loop of the paradigm `invariants` in a git repository; `agent` is the shell script of its agent."""
    (project_dir / ".loops/l.yaml").write_text(
        f"paradigm: invariants\nname: l\nmax_iterations: 8\nagent: stub\n{more}\nconstraints:\n"
        f"  - {{name: tests, check: {json.dumps(check)}, fix: {{prompt: Repair it}}}}\n"
    )
    (project_dir / ".loops/config.yaml").write_text(
        'agents: {stub: {argv: [./stub, "{prompt}"], output: text}}'
    )
    (project_dir / "stub").write_text(f"#!/bin/sh\n{agent}\n")
    (project_dir / "stub").chmod(0o755)
    (project_dir / "wrong").write_text("1 failed\n")
    git(project_dir, "init", "-q")
    (project_dir / ".gitignore").write_text("n\nfound\n.loops/.*\n")
    git(project_dir, "add", ".")
    git(project_dir, "commit", "-qm", "begin")


def git(project_dir: Path, *words: str) -> None:
    name = ("-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", *name, *words], cwd=project_dir, check=True, capture_output=True)


def run_loop(llc: Run, *words: str) -> tuple[int, str, int]:
    """The exit code, the reason of the end, and the number of agent calls."""
    done = llc("run", "l", "--json", *words)
    outcome = json.loads(done.stdout)
    (path,) = Path().glob(".loops/.history/l-*/*.events.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    calls = [event for event in events if event["event"] == "action_complete" and event["kind"] == "agent"]
    return done.returncode, outcome["terminated_by"], len(calls)


LIMIT = 3


def test_an_agent_that_changes_nothing_is_a_stall(llc: Run, project_dir: Path) -> None:
    """After three rounds without a change the run ends as by a limit, with the reason."""
    write_project(project_dir, "echo I repaired it")
    assert run_loop(llc) == (LIMIT, "stall", 3)
    shown = llc("logs", "l").stdout
    assert "stall" in shown


def test_noise_does_not_hide_a_stall(llc: Run, project_dir: Path) -> None:
    """Times, durations, temporary paths, hashes, addresses and colours differ in each round."""
    noise = (
        'd=$(mktemp -d); printf "\\033[31mFAILED\\033[0m %s at %s 0x%x in 0.%ds %s\\n" $d "$(date +%T.%N)" '
        "$$ $$ $(date +%N | sha1sum | cut -c1-12); exit 1"
    )
    write_project(project_dir, "echo done", noise)
    assert run_loop(llc) == (LIMIT, "stall", 3)


@pytest.mark.parametrize(
    "agent",
    [
        "git -c user.name=t -c user.email=t@t commit -q --allow-empty -m more",
        "echo x >> notes.md; echo there was an error, stalled, cannot repair",
        'echo "round $(cat n 2>/dev/null | wc -l) failed" > found; echo >> n',
    ],
    ids=["commits", "progress", "other-reason"],
)
def test_changes_are_not_a_stall(llc: Run, project_dir: Path, agent: str) -> None:
    """An empty commit, a changed file and another failure are changes; the agent's words are ignored."""
    write_project(project_dir, agent, "cat found 2>/dev/null; exit 1")
    assert run_loop(llc) == (LIMIT, "max_iterations", 8)


def test_a_change_resets_the_count_of_rounds(llc: Run, project_dir: Path) -> None:
    """Two rounds without a change, one with a change, then three without."""
    write_project(project_dir, "echo >> n; if [ $(wc -l < n) = 3 ]; then echo more > new.txt; fi")
    assert run_loop(llc) == (LIMIT, "stall", 6)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("stall: false", ("max_iterations", 8)),
        ("stall: 1", ("stall", 1)),
        ("stall: {rounds: 5}", ("stall", 5)),
    ],
)
def test_the_key_stall_sets_the_number_of_rounds(
    llc: Run, project_dir: Path, more: str, expected: tuple[str, int]
) -> None:
    """`stall: false` disables the detection."""
    write_project(project_dir, "true", more=more)
    assert run_loop(llc) == (LIMIT, *expected)


FSM = """
name: l
initial: check
agent: stub
stall: 2
on_stall: gave_up
states:
  check: {action: exit 1, on_success: done, on_failure: fix}
  fix: {action: Repair it, action_type: prompt, next: check}
  gave_up: {action: echo given up, next: failed}
  failed: {terminal: true, status: failure}
  done: {terminal: true}
"""


def test_a_stall_is_routed(llc: Run, project_dir: Path) -> None:
    """`on_stall` names the next state, and a replay is identical."""
    write_project(project_dir, "true")
    (project_dir / ".loops/l.yaml").write_text(FSM)
    assert run_loop(llc) == (1, "terminal", 3)
    assert "given up" in llc("logs", "l").stdout
    assert llc("replay", "l").returncode == 0


def test_a_loop_of_states_stalls_only_with_the_key(llc: Run, project_dir: Path) -> None:
    write_project(project_dir, "true")
    (project_dir / ".loops/l.yaml").write_text(
        FSM.replace("stall: 2\non_stall: gave_up\n", "max_iterations: 6\non_error: gave_up\n")
    )
    assert run_loop(llc)[1] == "max_iterations"


def test_a_stalled_run_replays(llc: Run, project_dir: Path) -> None:
    """The journal has the end that the host decided."""
    write_project(project_dir, "true")
    assert run_loop(llc)[1] == "stall"
    done = llc("replay", "l")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("FAIL /home/a/x/test_a.py:3 in 0.31s", "FAIL /srv/b/test_a.py:3 in 12 seconds"),
        ("at 0x7f01 commit 1a2b3c4d5e", "at 0xff commit 9f8e7d6c5b"),
        ("2026-01-02T03:04:05Z took 1:02", "2026-11-12 13:14:15 took 3:04"),
        ("\x1b[1;31mE\x1b[0m  x", "E x"),
    ],
)
def test_equal_failures_are_equal_after_normalisation(first: str, second: str) -> None:
    assert normalised(first) == normalised(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2 failed", "1 failed"),
        ("FAIL test_a.py:3", "FAIL test_a.py:4"),
        ("deadbeef", "feedface"),
        ("x y", "x z"),
    ],
)
def test_different_failures_differ_after_normalisation(first: str, second: str) -> None:
    assert normalised(first) != normalised(second)


def test_normalisation_of_hostile_output_is_fast() -> None:
    """Megabytes without a line break, and texts that cause backtracking."""
    for text in (
        "/a" * 2_000_000,
        "1:" * 2_000_000,
        "\x1b]" * 1_000_000,
        "deadbee1" * 500_000,
        "-" * 4_000_000,
    ):
        normalised(text)


def test_an_agent_result_has_the_facts_of_its_round(project_dir: Path, llc: Run) -> None:
    write_project(project_dir, "true", more="stall: 1")
    run_loop(llc)
    (path,) = project_dir.glob(".loops/.history/l-*/*.events.jsonl")
    rounds: list[dict[str, Any]] = [
        event["result"]["round"]
        for event in map(json.loads, path.read_text().splitlines())
        if event["event"] == "action_complete" and event["kind"] == "agent"
    ]
    assert [facts["repeated"] for facts in rounds] == [0]
    assert rounds[0]["tree"]
