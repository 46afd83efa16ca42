"""Completers: values for the shell completion of the parameters of subcommands.

A completer gets the incomplete word. A completer with two parameters gets the preceding arguments first.
"""

from __future__ import annotations

from os.path import join, relpath, splitext

from ...ir.compile_options import LOOP_SUFFIXES
from ...stdlib import READY_LOOPS
from ..host import files
from ..host.paths import HISTORY, LOOPS, ROOT, RUNNING
from ..runs.loop_names import is_path, loop_files
from ..runs.runs import runs_in
from . import databases, project_folder, subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..journal.run_folder import RunFolder


def complete_loop(incomplete: str) -> list[str]:
    """Loops by name, and paths."""
    return [
        *_starting(loop_files(), incomplete),
        *_paths(incomplete, lambda path: is_path(path.rpartition("/")[2])),
    ]


def complete_ready_loop(incomplete: str) -> list[str]:
    """Ready loops, for `create --from`, then loops."""
    ready = _starting(READY_LOOPS, incomplete)
    return [*ready, *(name for name in complete_loop(incomplete) if name not in ready)]


def complete_run(incomplete: str) -> list[str]:
    """Unfinished runs and their loops."""
    return _starting(_in_database(False) or _names(runs_in(ROOT)), incomplete)


def complete_any_run(incomplete: str) -> list[str]:
    """Finished and unfinished runs and their loops, the latest first."""
    stored = _in_database(None)
    if stored:
        return _starting(stored, incomplete)
    runs = [run for folder in (RUNNING, HISTORY) for run in runs_in(ROOT, folder)]
    runs.sort(key=lambda run: run.id[-20:], reverse=True)
    return _starting(_names(runs), incomplete)


def complete_loop_or_run(incomplete: str) -> list[str]:
    """Loops, paths and runs."""
    return list(dict.fromkeys([*complete_loop(incomplete), *complete_any_run(incomplete)]))


def complete_case(incomplete: str) -> list[str]:
    """Cases by their names in `.loops/tests/`, and paths."""
    from ..recordings import cases

    case_paths = cases.find_cases([]) if files.isdir(cases.FOLDER) else []
    names = [splitext(relpath(path, cases.FOLDER))[0] for path in case_paths]
    paths = _paths(incomplete, lambda path: path.endswith(LOOP_SUFFIXES) and cases.is_case(path))
    return _starting([*names, *paths], incomplete)


def complete_case_or_run(incomplete: str) -> list[str]:
    """Runs, loops and cases."""
    return [*complete_any_run(incomplete), *complete_case(incomplete)]


def complete_tool(incomplete: str) -> list[str]:
    """Tools and tasks."""
    from ...frontend.tasks.registry import TaskRegistry

    return _starting(TaskRegistry(LOOPS).names(), incomplete)


def complete_server(incomplete: str) -> list[str]:
    """Configured MCP servers."""
    from ..project import configuration

    return _starting(configuration.load(ROOT).mcp, incomplete)


def _questions(run: str | None) -> list[Any]:
    from ..inspection import answer

    return answer.questions(run)


def complete_question(incomplete: str) -> list[str]:
    """Runs with an open question, and their loops."""
    stored = _in_database(False)
    if stored:
        return _starting(stored, incomplete)
    return _starting(_names(question.run for question in _questions(None)), incomplete)


def complete_answer(args: list[str], incomplete: str) -> list[str]:
    """The choices of the open questions of a run."""
    questions = _questions(args[0]) if args else []
    return _starting([choice for question in questions for choice in question.choices], incomplete)


def complete_step(args: list[str], incomplete: str) -> list[str]:
    """The states of a run with recorded file trees."""
    from ..inspection import file_changes

    states = file_changes.states_with_trees(args[0]) if args else []
    return _starting(states, incomplete)


def complete_budget_action(incomplete: str) -> list[str]:
    """The actions of `llc budget`."""
    return _starting(["set", "close"], incomplete)


def complete_db_action(incomplete: str) -> list[str]:
    """The actions of `llc db`."""
    return _starting(["init", "migrate", "check", "metrics"], incomplete)


def complete_ledger(incomplete: str) -> list[str]:
    """The ledgers that can have a limit."""
    from ..inspection import ledgers

    return _starting(ledgers.ledger_names(), incomplete)


def complete_amount(incomplete: str) -> list[str]:
    """Examples of amounts."""
    return _starting(["5usd", "20usd", "1000000tokens", "50calls", "none"], incomplete)


def _starting(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _names(runs: Iterable[RunFolder]) -> dict[str, None]:
    return dict.fromkeys(name for run in runs for name in (run.name, run.id))


def _in_database(is_ended: bool | None) -> list[str]:
    """Loops and runs of the project in its database; [] without a database. is_ended: None for all runs."""
    url = databases.default_url()
    if url is None:
        return []
    names: list[str] = subcommands.load_runtime("database.requests:list_names")(url, is_ended)
    return names


def _paths(incomplete: str, is_match: Callable[[str], bool]) -> list[str]:
    """Folders, and files for which `is_match` returns True."""
    folder, _, start = incomplete.rpartition("/")
    try:
        entries = sorted(files.listdir(join(project_folder.start, folder) or "."))
    except OSError:
        return []
    paths = []
    for file in entries:
        path = join(folder, file)
        if file.startswith(start) and (start or not file.startswith(".")):
            if files.isdir(join(project_folder.start, path)):
                paths.append(path + "/")
            elif is_match(join(project_folder.start, path)):
                paths.append(path)
    return paths
