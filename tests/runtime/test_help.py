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


def shown(*words: str, columns: int = 80) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", START, *words],
        env={**os.environ, "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_page_of_a_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its usage, what it does, its arguments, its options with their bounds and defaults, examples."""
    monkeypatch.setenv("COLUMNS", "60")
    rows = (
        CommandParameter("what", (), TEXT, "What it is about.", "[WHAT]…"),
        CommandParameter(
            "loud", ("--loud", "-l"), FLAG, "Say it so that everybody who is near can hear it well."
        ),
        CommandParameter("count", ("-n",), INTEGER, "How often.", "N", "", 3, 1, 9),
        CommandParameter("at", ("--at-what-time-of-the-day",), TEXT, "When.", "TIME"),
    )
    verb = Subcommand("run", "Run a loop.", "", False, ("llc run a-word",), rows)
    assert (
        help.subcommand_page("llc run", verb)
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
def test_pages_keep_to_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No narrower than 50 columns and no wider than 78; usages and examples stand as they are written."""
    monkeypatch.setenv("COLUMNS", str(columns))
    width = max(50, min(78, columns - 2))
    pages = [
        help.program_page("llc"),
        *(help.subcommand_page(f"llc {name}", subcommands.find(name)) for name in SUBCOMMANDS),
    ]
    for page in pages:
        told = page.partition("  Examples:")[0]
        terms = {
            row.metavar
            for verb in map(subcommands.find, SUBCOMMANDS)
            for row in (*verb.arguments, *verb.options)
        }
        for line in told.splitlines():
            assert len(line) <= width or any(term and line.endswith(term) for term in terms), line


@pytest.mark.parametrize("verb", ["run", "task", "validate"])
def test_help_is_shown_after_other_options(verb: str) -> None:
    """Their values need not be valid."""
    plain = shown(verb, "--help")
    assert plain[0] == 0
    assert plain[1].startswith(f"Usage: llc {verb} [OPTIONS] ")
    assert shown(verb, "--arg", "a=1", "--help") == plain == shown(verb, "-h")


def test_subcommands_and_options_are_in_sections() -> None:
    """The program's page groups its subcommands; that of `run` its options, machine limits last."""

    def headings(page: str) -> list[str]:
        return [line[:-1] for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")]

    groups = ["Run", "Inspect", "Author", "Test", "Cluster", "Language"]
    assert headings(shown("--help")[1]) == ["Options", *groups]
    page = shown("run", "--help")[1]
    sections = ["What to run", "Values", "Models", "Limits", "Execution", "Output", "Advanced"]
    assert headings(page) == ["Arguments", *sections]
    advanced = page.partition("\nAdvanced:\n")[2]
    limits = {"--fuel", "--max-depth", "--max-size", "--max-expansions", "--max-nesting", "--tier"}
    limits.add("--no-preflight")
    assert {line.split()[0] for line in advanced.splitlines() if line.startswith("  --")} == limits
    assert headings(shown("disasm", "--help")[1]) == ["Arguments", "Options"]


def test_the_program_has_a_page() -> None:
    """Also where nothing was asked for, which is an error; whoever reads the words."""
    code, page = shown("--help")
    assert (code, page) == (0, help.program_page("llc")) == shown("--verbose", "--help")
    assert shown() == (2, page) == shown("--verbose")


def test_words_after_a_task_are_its_own() -> None:
    """`--help` there asks for the task's page, not for that of the subcommand."""
    task, run = subcommands.find("task"), subcommands.find("run")
    assert parse.read("llc task", task, ["--help"]) is None
    assert parse.read("llc task", task, ["user:review", "--help"]) == {"words": ["user:review", "--help"]}
    assert parse.read("llc run", run, ["loop", "--jobs", "x", "--help"]) is None
    assert parse.read("llc run", run, ["--", "--help"]) == {"loop": "--help"}


@pytest.mark.parametrize("words", [("help", "run"), ("--help", "run"), ("-h", "run"), ("run", "--help")])
def test_the_page_of_a_verb_is_asked_for_in_any_order(words: tuple[str, ...]) -> None:
    """As people type it who know another program."""
    assert shown(*words) == shown("run", "-h")


def test_help_is_no_verb_of_its_own(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone it shows the program's page; of what there is not it says so."""
    assert shown("help") == shown("--help")
    monkeypatch.setattr(sys, "argv", ["llc", "help", "valdate"])
    assert entry.main() == 2
    assert "llc has no command `valdate`" in capfd.readouterr().err
