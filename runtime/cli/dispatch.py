"""The dispatcher: reads a command line by the table of subcommands and performs it.

Typer is imported only to install completion. Converts the errors of a command to its exit code, except for
those of a run, which has an outcome (`launch.report`).
"""

from __future__ import annotations

from ..host import environment, files
from ..host.errors import EXIT_OK, EXIT_USAGE, UserError, clean, suggest
from ..host.paths import ROOT
from . import output, parse, verbs
from .table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# They mask secrets themselves, after the configuration is read for the run.
_MASKING = ("run", "resume")


def start(program: str, words: list[str]) -> int:
    """Perform a command line or complete one; the exit code."""
    request = environment.environ.get(f"_{program.replace('-', '_').upper()}_COMPLETE")
    if request is not None:
        from . import completion

        code = completion.answer(request)
        return _typer(program, words) if code is None else code
    if words[:1] in (["help"], ["--help"], ["-h"]) and len(words) < 3:
        words = [*words[1:], "--help"]
    if words and _is_run(program, words[0]):
        from ..launch import early_signals  # as for `run`; other subcommands do without it

        early_signals.take()
        words = ["run", *words]
    return command(program, words)


def _is_run(program: str, word: str) -> bool:
    """Whether a command line that begins with this word means `run`: `llc NAME` for a loop that is there."""
    if word in VERBS:
        return False
    if program == "ll-loop":
        names = {name for row in verbs.find("run").options for name in row.names}
        return not word.startswith("-") or word.partition("=")[0] in names
    if word.startswith("-"):
        return False
    from ..runs.lookup import is_loop  # only for a word that is no subcommand

    return is_loop(word, ROOT)


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
        from . import completion

        code = completion.set_up(program, "install_completion" in own)
        return _typer(program, words) if code is None else code
    name, *rest = own.get("words") or [""]
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
    if name not in _MASKING:
        output.mask()
    code = verbs.load(verb.function)(**given)
    assert isinstance(code, int)
    return code


def _show_page(path: str, verb: verbs.Verb | None) -> int:
    from . import help

    output.write(help.program_page(path) if verb is None else help.verb_page(path, verb))
    return EXIT_OK


def _typer(program: str, words: list[str]) -> int:
    from . import typer_app

    return typer_app.main(program, words)


def _unknown(program: str, name: str) -> UserError:
    from ..runs.loops import is_path, loop_files

    is_loop = name in loop_files() or (is_path(name) and files.isfile(name))
    help = f"to run it: {program} run {name}" if is_loop else suggest(name, VERBS, "commands")
    return UserError("unknown-command", f"{program} has no command `{clean(name, 60)}`", help)


def answered(words: list[str], action: Callable[[], int]) -> int:
    """The exit code of a command, whose errors are shown to the user. words: the command line."""
    try:
        return action()
    except UserError as error:
        return output.refuse(error, words)
    except Exception as error:
        from ..launch import failures

        if failures.is_internal(error):
            raise
        output.show(*failures.diagnostics(error))
        return failures.exit_code(error)
