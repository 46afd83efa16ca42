"""The output of `--help`, for every terminal width and every way to request it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from llc.runtime.cli import entry, help, parse, subcommands
from llc.runtime.cli.subcommands import SUBCOMMANDS, Subcommand
from llc.runtime.project.options import FLAG, INTEGER, TEXT, CommandParameter

START = "import sys; from llc.runtime.cli.entry import main; sys.argv[0] = 'llc'; sys.exit(main())"


def run_help(*words: str, columns: int = 80) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", START, *words],
        env={**os.environ, "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_page_of_a_subcommand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage, description, arguments, options with their limits and defaults, and examples."""
    monkeypatch.setenv("COLUMNS", "60")
    rows = (
        CommandParameter("what", (), TEXT, "What it is about.", "[WHAT]…"),
        CommandParameter(
            "loud", ("--loud", "-l"), FLAG, "Say it so that everybody who is near can hear it well."
        ),
        CommandParameter("count", ("-n",), INTEGER, "How often.", "N", "", 3, 1, 9),
        CommandParameter("at", ("--at-what-time-of-the-day",), TEXT, "When.", "TIME"),
    )
    subcommand = Subcommand("run", "Run a loop.", "", False, ("llc run a-word",), rows)
    assert (
        help.subcommand_page("llc run", subcommand)
        == """\
Usage: llc run [OPTIONS] [WHAT]…

  Run a loop.

Arguments:
  [WHAT]…  What it is about.

Options:
  -l, --loud                      Say it so that everybody
                                  who is near can hear it
                                  well.
  -n N                            How often.  [default: 3;
                                  1<=x<=9]
  --at-what-time-of-the-day TIME  When.

  Examples:
    llc run a-word
"""
    )


@pytest.mark.parametrize("columns", [1, 50, 72, 80, 300])
def test_pages_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 50 and at most 78 columns; usage lines and examples are not wrapped."""
    monkeypatch.setenv("COLUMNS", str(columns))
    width = max(50, min(78, columns - 2))
    pages = [
        help.program_page("llc"),
        *(help.subcommand_page(f"llc {name}", subcommands.find(name)) for name in SUBCOMMANDS),
    ]
    for page in pages:
        text = page.partition("  Examples:")[0]
        terms = {
            row.metavar
            for subcommand in map(subcommands.find, SUBCOMMANDS)
            for row in (*subcommand.arguments, *subcommand.options)
        }
        for line in text.splitlines():
            assert len(line) <= width or any(term and line.endswith(term) for term in terms), line


@pytest.mark.parametrize("name", ["run", "task", "validate"])
def test_help_is_shown_after_other_options(name: str) -> None:
    """The values of the other options need not be valid."""
    plain = run_help(name, "--help")
    assert plain[0] == 0
    assert plain[1].startswith(f"Usage: llc {name} [OPTIONS] ")
    assert run_help(name, "--arg", "a=1", "--help") == plain == run_help(name, "-h")


def test_subcommands_and_options_are_in_sections() -> None:
    """The program's page groups the subcommands, the page of `run` its options, with machine limits last."""

    def headings(page: str) -> list[str]:
        return [line[:-1] for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")]

    groups = ["Run", "Inspect", "Author", "Test", "Cluster", "Language"]
    assert headings(run_help("--help")[1]) == ["Options", *groups]
    page = run_help("run", "--help")[1]
    sections = ["What to run", "Values", "Models", "Limits", "Execution", "Output", "Advanced"]
    assert headings(page) == ["Arguments", *sections]
    advanced = page.partition("\nAdvanced:\n")[2]
    limits = {"--fuel", "--max-depth", "--max-size", "--max-expansions", "--max-nesting", "--tier"}
    limits.add("--no-preflight")
    assert {line.split()[0] for line in advanced.splitlines() if line.startswith("  --")} == limits
    assert headings(run_help("disasm", "--help")[1]) == ["Arguments", "Options"]


def test_program_page() -> None:
    """A call without arguments also shows the page, but is an error."""
    code, page = run_help("--help")
    assert (code, page) == (0, help.program_page("llc")) == run_help("--verbose", "--help")
    assert run_help() == (2, page) == run_help("--verbose")


def test_options_after_a_task_belong_to_the_task() -> None:
    """`--help` after a task requests the page of the task, not of the subcommand."""
    task, run = subcommands.find("task"), subcommands.find("run")
    assert parse.read("llc task", task, ["--help"]) is None
    assert parse.read("llc task", task, ["user:review", "--help"]) == {"words": ["user:review", "--help"]}
    assert parse.read("llc run", run, ["loop", "--jobs", "x", "--help"]) is None
    assert parse.read("llc run", run, ["--", "--help"]) == {"loop": "--help"}


@pytest.mark.parametrize("words", [("help", "run"), ("--help", "run"), ("-h", "run"), ("run", "--help")])
def test_page_of_a_subcommand_can_be_requested_in_any_order(words: tuple[str, ...]) -> None:
    """For people who are used to other programs."""
    assert run_help(*words) == run_help("run", "-h")


def test_help_is_not_a_subcommand(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`llc help` shows the program's page; an unknown subcommand is reported."""
    assert run_help("help") == run_help("--help")
    monkeypatch.setattr(sys, "argv", ["llc", "help", "valdate"])
    assert entry.main() == 2
    assert "llc has no command `valdate`" in capfd.readouterr().err
