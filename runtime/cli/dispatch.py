"""The dispatcher: reads a command line by the table of subcommands and performs it.

Typer is imported only to install completion. Converts the errors of a command to its exit code, except for
those of a run, which has an outcome (`launch.report`).
"""

from __future__ import annotations

from ..host import environment
from ..host.errors import EXIT_OK, EXIT_USAGE, UserError, clean, suggest
from ..host.paths import ROOT
from ..runs.loop_names import is_loop
from . import databases, output, parse, project_folder, verbs
from .table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

# They mask secrets themselves, after the configuration is read for the run.
_MASKING = ("run", "resume")


def start(program: str, words: list[str]) -> int:
    """Perform a command line or complete one; the exit code."""
    request = environment.environ.get(f"_{program.replace('-', '_').upper()}_COMPLETE")
    if request is not None:
        code = _completion().answer(request)
        return _typer(program, words) if code is None else code
    if words[:1] in (["help"], ["--help"], ["-h"]) and len(words) < 3:
        words = [*words[1:], "--help"]
    elif program == "ll-loop" and words and _is_option_of_run(words[0]):
        words = ["run", *words]
    return command(program, words)


def _is_option_of_run(word: str) -> bool:
    return any(word.partition("=")[0] in row.names for row in verbs.find("run").options)


def _is_run(program: str, word: str) -> bool:
    """Whether the first word, which is no subcommand, means `run`: `llc NAME` for a loop that is there."""
    return program == "ll-loop" or is_loop(word, project_folder.nearest() or ROOT)


def command(program: str, words: list[str]) -> int:
    """Perform a command line and show its errors; the exit code."""
    return answered(words, lambda: perform(program, words))


def perform(program: str, words: list[str]) -> int:
    """Perform a command line; the exit code. Raises UserError for one that cannot be read."""
    own = parse.read(program, verbs.program(program), words)
    if own is None:
        return _show_page(program, None)
    if "version" in own:
        from .version import version_text

        output.write(version_text("verbose" in own))
        return EXIT_OK
    if "install_completion" in own or "show_completion" in own:
        code = _completion().set_up(program, "install_completion" in own)
        return _typer(program, words) if code is None else code
    if "directory" in own:
        project_folder.change(own["directory"])
    name, *rest = own.get("words") or [""]
    if name and name not in VERBS and _is_run(program, name):
        name, rest = "run", [name, *rest]
    if name == "run" and words[0] != "run":
        from ..launch import early_signals  # `entry` took them for lines that begin with `run`

        early_signals.install()
    if not name:
        _show_page(program, None)
        return EXIT_USAGE
    if name not in VERBS:
        output.mask()  # the word may be a secret in the wrong place
        raise _unknown(program, name)
    verb = verbs.find(name)
    given = parse.read(f"{program} {name}", verb, rest)
    if given is None:
        return _show_page(f"{program} {name}", verb)
    given = project_folder.enter([*verb.arguments, *verb.options], given)
    if name not in _MASKING:
        output.mask()
    given = databases.choose(verb, given)
    view, given = databases.enter(verb, given)
    try:
        code = verbs.load(verb.function)(**given)
    finally:
        if view is not None:
            view.close()
    assert isinstance(code, int)
    return code


def _show_page(path: str, verb: verbs.Verb | None) -> int:
    from . import help

    output.write(help.program_page(path) if verb is None else help.verb_page(path, verb))
    return EXIT_OK


def _completion() -> ModuleType:
    from . import completion

    return completion


def _typer(program: str, words: list[str]) -> int:
    from . import typer_app

    return typer_app.main(program, words)


def _unknown(program: str, name: str) -> UserError:
    help = f"to run it: {program} run {name}" if is_loop(name) else suggest(name, VERBS, "commands")
    return UserError("unknown-command", f"{program} has no command `{clean(name, 60)}`", help)


def answered(words: list[str], action: Callable[[], int]) -> int:
    """The exit code of a command, whose errors are shown to the user. words: the command line."""
    try:
        return action()
    except Exception as error:
        from ..launch import failures

        if failures.is_internal(error):
            raise
        output.show(*failures.diagnostics(error))
        code = failures.exit_code(error)
        if isinstance(error, UserError) and code == EXIT_USAGE:
            output.answer_usage(words, error.message)
        return code
