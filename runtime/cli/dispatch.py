"""Dispatcher: parse a command line with the table of subcommands, and execute it.

Owns the conversion of errors to the output and exit code of a command, except for the errors of a run, which
has an outcome (`launch.report`). Typer is imported only to install completion.
"""

from __future__ import annotations

from ..host import environment
from ..host.errors import EXIT_OK, EXIT_USAGE, UserError, clean, suggest
from ..host.paths import ROOT
from ..runs.loop_names import is_loop
from . import databases, output, parse, project_folder, subcommands
from .table import SUBCOMMANDS

# Subcommands that start the masking of secrets themselves, after they read the configuration of the run.
_SELF_MASKING = ("run", "resume")


def start(program: str, words: list[str]) -> int:
    """Execute a command line, or answer a completion request; return the exit code."""
    request = environment.environ.get(f"_{program.replace('-', '_').upper()}_COMPLETE")
    if request is not None:
        from . import completion

        return completion.answer(program, words, request)
    if words[:1] in (["help"], ["--help"], ["-h"]) and len(words) < 3:
        words = [*words[1:], "--help"]
    elif program == "ll-loop" and words and _is_option_of_run(words[0]):
        words = ["run", *words]
    return command(program, words)


def _is_option_of_run(word: str) -> bool:
    return any(word.partition("=")[0] in row.names for row in subcommands.find("run").options)


def _is_run(program: str, word: str) -> bool:
    """Return whether `run` is implied by the first word, which is no subcommand: `llc NAME` for a loop."""
    return program == "ll-loop" or is_loop(word, project_folder.nearest() or ROOT)


def command(program: str, words: list[str]) -> int:
    """Execute a command line and show its errors; return the exit code."""
    try:
        return _execute(program, words)
    except Exception as error:
        from ..launch import failures

        if failures.is_internal(error):
            raise
        output.show(*failures.diagnostics(error))
        code = failures.exit_code(error)
        if isinstance(error, UserError) and code == EXIT_USAGE:
            output.answer_usage(words, error.message)
        return code


def _execute(program: str, words: list[str]) -> int:
    """Execute a command line; return the exit code. Raises UserError for an invalid command line."""
    program_options = parse.read(program, subcommands.program(program), words)
    if program_options is None:
        return _show_page(program, None)
    if "version" in program_options:
        from .version import version_text

        output.write(version_text("verbose" in program_options))
        return EXIT_OK
    if "install_completion" in program_options or "show_completion" in program_options:
        from . import completion

        return completion.set_up(program, words, "install_completion" in program_options)
    if "directory" in program_options:
        project_folder.change(program_options["directory"])
    name, *rest = program_options.get("words") or [""]
    if name and name not in SUBCOMMANDS and _is_run(program, name):
        name, rest = "run", [name, *rest]
    if name == "run" and words[0] != "run":
        from ..launch import early_signals  # `entry` installs them only if the first word is `run`

        early_signals.install()
    if not name:
        _show_page(program, None)
        return EXIT_USAGE
    if name not in SUBCOMMANDS:
        output.mask()  # the word may be a misplaced secret
        raise _unknown(program, name)
    subcommand = subcommands.find(name)
    values = parse.read(f"{program} {name}", subcommand, rest)
    if values is None:
        return _show_page(f"{program} {name}", subcommand)
    values = project_folder.enter([*subcommand.arguments, *subcommand.options], values)
    if name not in _SELF_MASKING:
        output.mask()
    values = databases.choose(subcommand, values)
    view, values = databases.enter(subcommand, values)
    try:
        code = subcommands.load(subcommand.function)(**values)
    finally:
        if view is not None:
            view.close()
    assert isinstance(code, int)
    return code


def _show_page(path: str, subcommand: subcommands.Subcommand | None) -> int:
    from . import help

    output.write(help.program_page(path) if subcommand is None else help.subcommand_page(path, subcommand))
    return EXIT_OK


def _unknown(program: str, name: str) -> UserError:
    help = f"to run it: {program} run {name}" if is_loop(name) else suggest(name, SUBCOMMANDS, "commands")
    return UserError("unknown-command", f"{program} has no command `{clean(name, 60)}`", help)
