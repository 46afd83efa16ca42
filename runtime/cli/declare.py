"""How the verbs of the command line are declared: as data.

`entry` reads plain words by it at once, `plumbing` gives it to the command-line library, which knows the
rest: help, completion, and what to say of words that cannot be read. Each group of verbs is a module beside
this one (`verbs.HOMES`). What a verb does stands in a module of its own that is imported when the verb is
used: neither a command that does something else nor help nor completion must wait for it.
"""

from __future__ import annotations

import os.path

from ..host import files
from ..project.options import ANY, FLAG, MAYBE, ONE, SOME, Argument, Option
from .verbs import HOMES

__all__ = ["ANY", "JSON", "LOOP", "MAYBE", "ONE", "SOME", "Argument", "Verb", "command", "declared", "find"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    # What does a verb, given the values of its parameters by name; the exit code.
    Doing = Callable[[dict[str, Any]], int]


class Verb:
    """A verb: its parameters, and what does it.

    examples: command lines for its help. is_open: what stands behind its first argument is not its own.
    masks: it sees to it by itself that no secret is shown.
    """

    __slots__ = ("arguments", "do", "examples", "is_open", "masks", "name", "options")

    def __init__(
        self, name: str, parameters: Iterable[Option | Argument], do: Doing, examples: Iterable[str]
    ) -> None:
        self.name = name
        self.arguments = [row for row in parameters if isinstance(row, Argument)]
        self.options = [row for row in parameters if isinstance(row, Option)]
        self.do = do
        self.examples = tuple(examples)
        self.is_open = False
        self.masks = False


declared: dict[str, Verb] = {}


def command(
    rows: Iterable[Option],
    *own: Option | Argument,
    examples: Iterable[str] = (),
    is_open: bool = False,
    masks: bool = False,
) -> Callable[[Doing], Doing]:
    """Declare a verb whose parameters are `own` and those of `rows`; see `Verb`."""

    def declare(function: Doing) -> Doing:
        name = function.__name__.rstrip("_")
        verb = declared[name] = Verb(name, (*own, *rows), function, examples)
        verb.is_open = is_open
        verb.masks = masks
        return function

    return declare


def find(name: str) -> Verb:
    """The verb of a name in `VERBS`; its module is imported."""
    if name not in declared:
        from importlib import import_module

        import_module(f"{__package__}.{HOMES[name]}")
    return declared[name]


# --- what may stand for a parameter -------------------------------------------------------------


def complete_loop(incomplete: str) -> list[str]:
    """What a loop's name or path may go on with."""
    from ..runs.loops import is_path, loop_files

    names = [name for name in loop_files() if name.startswith(incomplete)]
    folder, _, start = incomplete.rpartition("/")
    try:
        entries = sorted(files.listdir(folder or "."))
    except OSError:
        return names
    for file in entries:
        path = os.path.join(folder, file) if folder else file
        if file.startswith(start) and (start or not file.startswith(".")):
            if files.isdir(path):
                names.append(path + "/")
            elif is_path(file):
                names.append(path)
    return names


def complete_run(incomplete: str) -> list[str]:
    """Unfinished runs, and the loops they are of."""
    from ..host.paths import ROOT
    from ..runs import runs

    found = list(runs.runs_in(ROOT))
    names = dict.fromkeys(name for run in found for name in (run.name, run.id))
    return [name for name in names if name.startswith(incomplete)]


def complete_any_run(incomplete: str) -> list[str]:
    """Runs, ended or not, and the loops they are of; the latest first."""
    from ..host.paths import HISTORY, ROOT, RUNNING
    from ..runs import runs

    found = [run for folder in (RUNNING, HISTORY) for run in runs.runs_in(ROOT, folder)]
    found.sort(key=lambda run: run.id[-20:], reverse=True)
    names = dict.fromkeys(name for run in found for name in (run.name, run.id))
    return [name for name in names if name.startswith(incomplete)]


LOOP = Argument(
    "loop", ONE, "A loop's name, or the path of a .yaml, .sexp or .llb file.", "LOOP", complete_loop
)
JSON = Option("json", "--json", FLAG, "Write JSON to stdout.")
