"""Time of each subcommand in a new process, with little work."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import loops
from measure import take_turns
from place import Place
from report import Section, row
from sizes import Sizes

_FLOW = "(define (one-more x) (+ x 1))\n\n(one-more 2)\n"

# The measured commands, in a project of one loop, one flow, and runs of the loop that have ended.
_COMMANDS = (
    "--version",
    "run three --quiet",
    "batch three --quiet",
    "create -p goal --name made --goal clean --tool true --tool true --yes --force",
    "validate three",
    "compile three",
    "disasm three",
    "fmt --check",
    "list",
    "replay three",
    "trace three --at 2",
    "record three -o case.yaml --force",
    "fork three --at 2 --quiet",
    "test",
    "status",
    "stop --all",
    "answer",
    "logs three",
    "profile three",
    "history",
    "clean --dry-run",
    "task '(+ 1 2)'",
    "repl",
    "index",
    "context three",
    "tools",
    "mcp list",
    "schema",
)


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="subcommands",
        title="Each subcommand, cold",
        about=(
            "Each subcommand once, as a new process, in a project with a loop of three steps, a flow of "
            "two lines, a recorded case and a finished run. `repl` reads the end of its input at once. "
            "The compile cache is warm. `resume` has its own section. `attach` is omitted, because it "
            "lasts as long as the run that it shows."
        ),
    )
    place.write_loop("three", loops.THREE_STEPS)
    with open(place.inside(".loops", "little.sexp"), "w") as file:
        file.write(_FLOW)
    place.seconds([*place.llc, "run", "three", "--quiet"])
    place.seconds([*place.llc, "record", "three"])
    turns = take_turns(
        {"pass": lambda: place.seconds([place.python, "-c", "pass"])}
        | {words: _timed(place, words) for words in _COMMANDS},
        sizes.subcommand_rounds,
    )
    peer = ("`python -c pass`", turns["pass"])
    found.add(*(row(f"`llc {words}`", turns[words], peer=peer) for words in _COMMANDS))
    return found


def _timed(place: Place, words: str) -> Callable[[], float]:
    return lambda: place.seconds([*place.llc, *shlex.split(words)])
