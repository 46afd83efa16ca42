"""Usage errors: reported like other errors, with the correct usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llc.runtime.cli import dispatch
from llc.runtime.cli.subcommands import SUBCOMMANDS


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def llc(*words: str) -> int:
    """Run a command line; returns the exit code."""
    return dispatch.command("llc", list(words))


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_each_subcommand_refuses_an_unknown_option(
    subcommand: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the nearest option or the command that lists the options; stdout stays empty."""
    assert llc(subcommand, "--no-such-optoin") == 2
    out, shown = capfd.readouterr()
    assert out == ""
    assert shown.startswith("error[")
    assert "--no-such-optoin" in shown
    assert " = help: " in shown


@pytest.mark.parametrize(
    ("line", "error", "help"),
    [
        (
            "run x --contxt a=1",
            "[unknown-option]: `llc run` has no option `--contxt`",
            "did you mean `--context`?",
        ),
        ("run x -z", "[unknown-option]: `llc run` has no option `-z`", "`llc run --help` lists the options"),
        ("run x y z", "[bad-argument]: unexpected argument `y z`", "usage: llc run [OPTIONS] LOOP"),
        ("run x --jobs", "[bad-option]: --jobs needs a value: --jobs N", "limit of concurrently performed"),
        (
            "run x --jobs=x",
            "[bad-option]: --jobs must be a whole number, not `x`",
            "limit of concurrently performed",
        ),
        (
            "run x --jobs 0",
            "[bad-option]: --jobs must be at least 1, not `0`",
            "limit of concurrently performed",
        ),
        ("run x --quiet=1", "[bad-option]: --quiet takes no value", "show no progress"),
        ("stop --wait soon", "[bad-option]: --wait must be a number, not `soon`", "seconds to wait"),
        ("stop --wait inf", "[bad-option]: --wait must be a number, not `inf`", "seconds to wait"),
        ("stop --wait nan", "[bad-option]: --wait must be a number, not `nan`", "seconds to wait"),
        ("create --timeout inf", "[bad-option]: --timeout must be a number, not `inf`", "the whole run"),
        ("logs x -n -1", "[bad-option]: -n must be at least 0, not `-1`", "only the last N events"),
        ("logs", "[missing-argument]: `llc logs` needs RUN|LOOP", "; such as `llc logs fix-types`"),
        ("resume", "[missing-argument]: `llc resume` needs RUN", "a loop's name, or a run's id"),
        ("fork x --at one", "[bad-option]: --at must be a whole number, not `one`", "before the effect"),
        ("trace x --at", "[bad-option]: --at needs a value: --at N", "only this point"),
        ("run --hel", "[unknown-option]: `llc run` has no option `--hel`", "did you mean `--help`?"),
        ("run x --budget usd", "[bad-option]: --budget takes UNIT=N, not `usd`", "such as --budget usd=2"),
        ("valdate", "[unknown-command]: llc has no command `valdate`", "did you mean `validate`?"),
        ("--verbose valdate", "[unknown-command]: llc has no command `valdate`", "did you mean `validate`?"),
        ("--verbose -", "[unknown-command]: llc has no command `-`", "commands: `run`"),
        ("--verson", "[unknown-option]: `llc` has no option `--verson`", "did you mean `--version`?"),
    ],
)
def test_a_usage_error_has_an_error_and_a_help_line(
    line: str, error: str, help: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the words of the subcommand's help."""
    assert llc(*line.split()) == 2
    shown = capfd.readouterr().err.splitlines()
    assert shown[0] == f"error{error}"
    assert shown[1].startswith(" = help: ")
    assert help in shown[1]
    assert len(shown) == 2


@pytest.mark.parametrize("line", ["--help=1", "run --help=1"])
def test_help_takes_no_value(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert llc(*line.split()) == 2
    assert (
        capfd.readouterr().err
        == "error[bad-option]: --help takes no value\n = help: show this message and exit\n"
    )


@pytest.mark.parametrize("subcommand", ["run", "resume", "fork"])
def test_a_usage_error_with_json_is_a_json_object(subcommand: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert llc(subcommand, "x", "--json", "--bogus") == 2
    error = json.loads(capfd.readouterr().out)["error"]
    assert (error["kind"], error["message"]) == ("usage", f"`llc {subcommand}` has no option `--bogus`")


def test_arguments_in_messages_are_sanitised(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without secrets and control characters, and truncated."""
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    assert llc("run", "x", "--jobs", "correct-horse" + "\x1b[2J" + "y" * 999) == 2
    shown = capfd.readouterr().err
    assert "correct-horse" not in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) < 200
