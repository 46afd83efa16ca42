"""What `--help` shows, whoever reads the words: in every width, on every way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from llc.runtime.cli import declare, entry, help
from llc.runtime.cli.verbs import VERBS
from llc.runtime.project.options import FLAG, NUMBER, TEXT, Argument, Option

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
        Argument("what", "any", "What it is about.", "[WHAT]…"),
        Option("loud", "--loud -l", FLAG, "Say it so that everybody who is near can hear it well."),
        Option("count", "-n", NUMBER, "How often.", "N", default=3, least=1, most=9),
        Option("at", "--at-what-time-of-the-day", TEXT, "When.", "TIME"),
    )
    verb = declare.Verb("run", rows, lambda given: 0, ["llc run a-word"])
    assert (
        help.verb("llc run", verb)
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
    pages = [help.program("llc"), *(help.verb(f"llc {name}", declare.find(name)) for name in VERBS)]
    for page in pages:
        told = page.partition("  Examples:")[0]
        terms = {
            row.metavar for verb in declare.declared.values() for row in (*verb.arguments, *verb.options)
        }
        for line in told.splitlines():
            assert len(line) <= width or any(term and line.endswith(term) for term in terms), line


@pytest.mark.parametrize("verb", ["run", "task", "validate"])
def test_the_command_line_library_shows_the_same_page(verb: str) -> None:
    """It reads what is not plain: an option before `--help`."""
    plain = shown(verb, "--help")
    assert plain[0] == 0
    assert plain[1].startswith(f"Usage: llc {verb} [OPTIONS] ")
    assert shown(verb, "--arg", "a=1", "--help") == plain == shown(verb, "-h")


def test_the_program_has_a_page() -> None:
    """Also where nothing was asked for, which is an error; whoever reads the words."""
    code, page = shown("--help")
    assert (code, page) == (0, help.program("llc")) == shown("--verbose", "--help")
    assert shown() == (2, page) == shown("--verbose")


def test_what_stands_behind_a_task_is_its_own() -> None:
    """`--help` there asks for the task's page, not for the verb's."""
    assert help.asked(["--help"], is_open=True)
    assert not help.asked(["user:review", "--help"], is_open=True)
    assert help.asked(["loop", "--help"])
    assert not help.asked(["--", "--help"])


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
