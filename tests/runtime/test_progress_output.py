"""Progress output in a pipe or a file; terminal output has its own tests."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.runtime.host.screen import Screen, columns, fit, printable
from llc.runtime.journal.outcome import Outcome
from llc.runtime.project.limits import iteration_limits
from llc.runtime.terminal import action_text
from llc.runtime.terminal.progress import ProgressDisplay

Show = Callable[..., str]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Write progress to a file and return the text: `show(lambda display: …, encoding=…)`."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def show(
        write: Callable[[ProgressDisplay], object],
        limit: int | None = 20,
        verbose: bool = False,
        encoding: str = "utf-8",
    ) -> str:
        path = tmp_path / "shown"
        with path.open("w", encoding=encoding) as file:
            write(ProgressDisplay(Screen(file), {"": limit}, verbose))
        return path.read_text(encoding)

    return show


def action(display: ProgressDisplay, command: str, *output: str, kind: str = "shell") -> None:
    display.effect_start(kind, {"command": command})
    for text in output:
        display.output("output", text)
    display.effect_end(kind, {"duration_ms": 10})


def enter(display: ProgressDisplay, state: str, iteration: int = 1) -> None:
    display.note("state_enter", {"state": state, "iteration": iteration})


def judge(display: ProgressDisplay, type: str, verdict: str, **details: Any) -> None:
    display.note("evaluate", {"state": "x", "type": type, "verdict": verdict, "details": details})


def route(display: ProgressDisplay, to: str) -> None:
    display.note("route", {"from": "x", "to": to})


def ended(status: str = "success", **facts: Any) -> Outcome:
    outcome = Outcome("run", "program", "loop", status)
    outcome.final_state, outcome.iterations, outcome.duration_ms = "done", 1, 154_000
    for name, value in facts.items():
        setattr(outcome, name, value)
    return outcome


def test_progress_is_that_of_the_seed(show: Show) -> None:
    def write(display: ProgressDisplay) -> None:
        enter(display, "check")
        action(display, "mypy src/")
        judge(display, "exit_code", "failure", exit_code=1)
        route(display, "fix")
        enter(display, "fix")
        action(display, "/ll:manage_issue bug fix", kind="agent")
        judge(display, "llm_structured", "success", confidence=0.92)
        route(display, "verify")
        enter(display, "verify")
        action(display, "pytest tests/")
        judge(display, "exit_code", "success", exit_code=0)
        route(display, "done")
        enter(display, "done")
        display.note("loop_complete", {"final_state": "done"})
        display.end(ended())

    assert show(write) == (
        "[1/20] check → mypy src/\n"
        "       ✗ failure (exit 1)\n"
        "       → fix\n"
        "[1/20] fix → /ll:manage_issue bug fix\n"
        "       ✓ success (confidence: 0.92)\n"
        "       → verify\n"
        "[1/20] verify → pytest tests/\n"
        "       ✓ success (exit 0)\n"
        "       → done\n"
        "\n"
        "Loop completed: done (1 iteration, 2m 34s)\n"
    )


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ({"exit_code": 127, "stderr": "bash: rufff: command not found"}, "✗ exit 127"),
        ({"exit_code": 3}, "✗ exit 3"),
        ({"exit_code": 139, "signal": "SIGSEGV"}, "✗ ended by SIGSEGV"),
        (
            {"exit_code": 127, "error": {"kind": "not-found", "message": "`claude` is not on PATH"}},
            "✗ `claude` is not on PATH",
        ),
    ],
)
def test_a_failed_action_without_evaluation_is_shown(show: Show, result: dict[str, Any], line: str) -> None:
    """Its failure is shown although the loop continues."""

    def write(display: ProgressDisplay) -> None:
        enter(display, "fix")
        display.effect_start("shell", {"command": "rufff"})
        display.effect_end("shell", {"duration_ms": 10, **result})
        route(display, "check")

    assert show(write) == f"[1/20] fix → rufff\n       {line}\n       → check\n"


def test_output_in_a_pipe_has_a_bar(show: Show) -> None:
    """Lines are joined over chunks; a line without newline is shown at the end."""
    text = show(lambda display: action(display, "x", "one\ntw", "o\nthree"))
    assert text.splitlines()[1:] == ["       │ one", "       │ two", "       │ three"]


def test_a_state_without_action_has_its_line(show: Show) -> None:
    """A decision state shows its name, verdict and route."""

    def write(display: ProgressDisplay) -> None:
        enter(display, "decide", 3)
        judge(display, "output_numeric", "success", value=3, target=5, operator="le")
        route(display, "done")

    assert show(write) == "[3/20] decide\n       ✓ success (3 ≤ 5)\n       → done\n"


def test_without_a_limit_only_the_iteration_is_shown(show: Show) -> None:
    assert show(lambda d: (enter(d, "a", 7), action(d, "x")), limit=None) == "[7] a → x\n"


@pytest.mark.parametrize(
    ("type", "verdict", "details", "shown"),
    [
        ("exit_code", "error", {"exit_code": 2}, "✗ error (exit 2)"),
        ("exit_code", "error", {"exit_code": 127, "message": "`foo` not found"}, "✗ error (`foo` not found)"),
        ("llm_structured", "success_uncertain", {"confidence": 0.5}, "• success_uncertain (confidence: 0.5)"),
        ("output_contains", "failure", {"matched": False, "pattern": "x"}, "✗ failure (not found)"),
        ("output_contains", "success", {"matched": True, "pattern": "x"}, "✓ success (found)"),
        (
            "output_json",
            "success",
            {"path": ".n", "value": 0, "target": 0, "operator": "eq"},
            "✓ success (.n: 0 = 0)",
        ),
        (
            "convergence",
            "progress",
            {"previous": 5, "current": 3, "target": 0},
            "• progress (5 → 3, target 0)",
        ),
        ("convergence", "target", {"previous": None, "current": 0, "target": 0}, "✓ target (0, target 0)"),
        (
            "convergence",
            "stall",
            {"previous": 3.5, "current": 3.5, "target": 0},
            "• stall (3.5 → 3.5, target 0)",
        ),
        ("other", "blocked", {}, "• blocked"),
        ("other", "failure", {"length": 3, "seen": [1]}, "✗ failure (length 3)"),
    ],
)
def test_a_verdict_is_shown_with_its_measure(
    show: Show, type: str, verdict: str, details: dict[str, Any], shown: str
) -> None:
    assert show(lambda display: judge(display, type, verdict, **details)).strip() == shown


def test_symbols_are_replaced_in_an_ascii_encoding(show: Show) -> None:
    def write(display: ProgressDisplay) -> None:
        enter(display, "a")
        action(display, "echo é", "é\n")
        judge(display, "output_numeric", "failure", value=9, target=5, operator="le")
        route(display, "b")

    assert show(write, encoding="ascii") == (
        "[1/20] a -> echo ?\n       | ?\n       x failure (9 <= 5)\n       -> b\n"
    )


def test_colour_is_off_in_a_pipe_and_can_be_forced(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR enables colour in a pipe; NO_COLOR overrides it."""

    def write(display: ProgressDisplay) -> None:
        judge(display, "exit_code", "success", exit_code=0)

    assert "\x1b" not in show(write)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32m✓ success\x1b[0m (exit 0)" in show(write)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in show(write)


def test_a_script_is_shown_by_its_first_line(show: Show) -> None:
    """An ellipsis marks that there are more lines."""
    text = show(lambda d: (enter(d, "a"), action(d, "\n  set -e\n  make\n")))
    assert text == "[1/20] a → set -e …\n"


def test_a_large_output_is_shortened_and_counted(show: Show) -> None:
    """After some thousand lines only the last lines and the number of omitted lines are shown."""
    total = action_text.MAX_LIVE_LINES + 500
    text = show(lambda d: action(d, "x", *(f"line {n}\n" for n in range(total))))
    lines = text.splitlines()
    assert f"{500 - action_text.LAST_LINES} lines not shown" in lines[-1 - action_text.LAST_LINES]
    assert lines[-1].endswith(f"line {total - 1}")
    assert len(lines) == 1 + action_text.MAX_LIVE_LINES + 1 + action_text.LAST_LINES


def test_verbose_shows_all_output(show: Show) -> None:
    total = action_text.MAX_LIVE_LINES + 500
    text = show(lambda d: action(d, "x", "line\n" * total), verbose=True)
    assert text.count("│ line") == total


def test_a_line_without_end_is_shortened(show: Show) -> None:
    """100 MB without a newline are shown as one short line."""
    chunk = "x" * 1_000_000
    text = show(lambda d: action(d, "y", *(chunk for _ in range(100))))
    assert len(text) < 3 * action_text.MAX_LINE_CHARACTERS


def test_escape_sequences_of_output_are_removed(show: Show) -> None:
    """Also bells and direction marks."""
    hostile = "a\x1b[2Jb\x1b]0;title\x07c\x07d\x1b(Be\u202ef\x9b31mg\n"
    text = show(lambda d: action(d, "x", hostile))
    assert text.splitlines()[-1] == "       │ abcdef31mg"


def test_a_rewritten_line_is_shown_in_its_last_state(show: Show) -> None:
    """For example a progress bar with carriage returns."""
    text = show(lambda d: action(d, "x", "10%\r50%\r100%\nwindows\r\n"))
    assert text.splitlines()[-2:] == ["       │ 100%", "       │ windows"]


@given(st.text())
def test_printable_text_has_no_controls(text: str) -> None:
    """Of the control characters only tab and newline remain."""
    shown = printable(text)
    assert all(ch in "\t\n" or ch >= " " for ch in shown)
    assert "\x1b" not in shown


@given(st.text(), st.integers(0, 50))
def test_fit_does_not_exceed_the_width(text: str, width: int) -> None:
    assert columns(fit(text, width)) <= max(width, 0) or columns(text) <= width


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (ended("failure"), "Loop failed: done (1 iteration, 2m 34s)"),
        (
            ended("limit", terminated_by="max_iterations", final_state="fix", iterations=20),
            "Loop stopped by max_iterations: fix (20 iterations, 2m 34s)",
        ),
        (ended("error", final_state="fix"), "Loop ended by an error: fix (1 iteration, 2m 34s)"),
        (ended("interrupted", final_state="fix"), "Loop interrupted: fix (1 iteration, 2m 34s)"),
    ],
)
def test_the_last_line_has_the_status(show: Show, outcome: Outcome, line: str) -> None:
    assert show(lambda display: display.end(outcome)).splitlines()[-1] == line


def test_a_failed_phase_has_its_own_line(show: Show) -> None:
    """A flow that ends by an error in a state it has just entered ends with that state's line."""

    def write(display: ProgressDisplay) -> None:
        enter(display, "director", 2)
        outcome = Outcome("run", "flow", "flow", "error")
        display.end(outcome)

    assert show(write, limit=None) == "[2] director\n"


@pytest.mark.parametrize(
    ("usages", "end_of_line"),
    [
        ([{"usd": 0.5, "tokens": 1000}, {"usd": 0.25, "tokens": 500}], "1m 0s, 0.7500 USD, 1,500 tokens)"),
        ([{"usd": 0.5, "tokens": 1000}, {"usd": None, "tokens": 500}], "1m 0s, 1,500 tokens)"),
        ([{"usd": None, "tokens": None}], "1m 0s)"),
        ([], "1m 0s)"),
    ],
)
def test_the_last_line_has_the_cost(show: Show, usages: list[dict[str, Any]], end_of_line: str) -> None:
    """The sum of all calls; a resumed run shows no cost, as earlier calls are not counted."""
    done = ended("success", duration_ms=60_000)

    def write(display: ProgressDisplay) -> None:
        for usage in usages:
            display.effect_end("agent", {"usage": usage})
        display.end(done)

    def write_run(display: ProgressDisplay) -> None:
        display.begin("r", "l")
        write(display)

    assert show(write_run).endswith(end_of_line + "\n")
    assert show(write).endswith("1m 0s)\n")


def test_a_closed_pipe_does_not_end_the_run() -> None:
    read, write = os.pipe()
    os.close(read)
    with io.open(write, "w", encoding="utf-8") as file:  # noqa: UP020 - a descriptor, not a path
        screen = Screen(file)
        for _ in range(3):
            screen.write("text\n")


def test_a_closed_stdout_does_not_end_the_run() -> None:
    screen = Screen(None)
    screen.write("text\n")
    assert not screen.is_live


def test_inner_loops_are_shown_with_their_names(tmp_path: Path) -> None:
    """Each state has its loop and that loop's limit; the end of each loop is shown."""
    path = tmp_path / "shown"
    with path.open("w", encoding="utf-8") as file:
        limits = iteration_limits(
            {
                "limits": {},
                "loops": [{"name": "fix", "limits": {"max_iterations": 5}}, {"name": "say", "limits": {}}],
            }
        )
        display = ProgressDisplay(Screen(file), limits)
        display.note("loop_start", {"loop": "fix"})
        display.note("state_enter", {"loop": "fix", "state": "check", "iteration": 2})
        action(display, "mypy")
        display.note("route", {"loop": "fix", "from": "check", "to": "done"})
        display.note("state_enter", {"loop": "fix", "state": "done", "iteration": 2})
        ends = {"final_state": "done", "iterations": 2, "terminated_by": "terminal"}
        display.note("loop_complete", {"loop": "fix", "status": "success", **ends})
        display.note("state_enter", {"loop": "say", "state": "a", "iteration": 1})
        action(display, "echo")
        ends = {"final_state": "a", "iterations": 1, "terminated_by": "timeout"}
        display.note("loop_complete", {"loop": "say", "status": "limit", **ends})
    assert path.read_text("utf-8").splitlines() == [
        "[2/5] fix/check → mypy",
        "      → done",
        "fix completed: done (2 iterations)",
        "[1] say/a → echo",
        "say stopped by timeout: a (1 iteration)",
    ]
