"""Shell completion of command lines, and the completion script for bash.

The protocol is that of Typer, whose scripts serve the other shells: `_LLC_COMPLETE` names the shell, other
variables contain the line. bash splits words at `:` and `=`, which occur in names and parameters of tasks.
The script for bash joins these parts again, which Typer's script does not.
"""

from __future__ import annotations

import shlex
from os.path import dirname, expanduser, join

from ...ir.python_internals import suppress
from ..host import environment, files
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ..project.options import FLAG, CommandParameter
from . import parse, project_folder, subcommands
from .output import write, write_data
from .subcommands import SUBCOMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    # A completion: the word and its description or ''.
    Completion = tuple[str, str]

# Template of the script for bash.
SCRIPT = join(dirname(__file__), "completion.bash")

_LINE = "_TYPER_COMPLETE_ARGS"


def answer(program: str, words: list[str], request: str) -> int:
    """Answer a completion request of a shell, such as `complete_bash`; return the exit code."""
    action, _, shell = request.partition("_")
    if action != "complete" or shell not in _SHELLS:
        return _answer_with_typer(program, words)
    read_line, format_completions = _SHELLS[shell]
    code = EXIT_OK
    try:
        # Shells read one completion from each line, so omit names with a line break.
        completions = [completion for completion in complete(*read_line()) if "\n" not in completion[0]]
    except Exception as error:
        # An error message would appear in the middle of the edited line.
        from ...ir.diagnostics import CompileError
        from ..journal.journal import JournalError

        if not isinstance(error, UserError | CompileError | JournalError):
            raise
        completions, code = [], EXIT_FAILURE
    if shell == "fish" and environment.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return EXIT_OK if completions else EXIT_FAILURE
    text = format_completions(completions) if code == EXIT_OK else ""
    if text:
        write_data(text + "\n")
    return code


def complete(words: Sequence[str], start: str) -> Iterator[Completion]:
    """Completions of the incomplete word `start` after `words`.

    Raises UserError, CompileError or JournalError if the project's files cannot be read.
    """
    subcommand = subcommands.program("")
    options, arguments, is_closed = parse.split(subcommand, words)
    for row, _, text in options:
        if row is not None and row.name == "directory" and text is not None:
            project_folder.change(text)
    if arguments:
        name, *words = arguments
        if name not in SUBCOMMANDS:
            return
        subcommand = subcommands.find(name)
        options, arguments, is_closed = parse.split(subcommand, words)
    # An option without its value is the last one: the value is the next word.
    pending = next((row for row, _, text in options[-1:] if row and row.kind != FLAG and text is None), None)
    name, sign, value = start.partition("=")
    if pending is not None:
        yield from ((word, "") for word in _values(pending, [], start))
    elif is_closed or not start.startswith("-"):
        at = min(len(arguments), len(subcommand.arguments) - 1)
        if not subcommand.name:
            yield from ((name, row[0]) for name, row in SUBCOMMANDS.items() if name.startswith(start))
        elif at >= 0 and (at == len(arguments) or subcommand.arguments[at].is_repeated):
            yield from ((word, "") for word in _values(subcommand.arguments[at], arguments, start))
    else:
        used = {row for row, _, _ in options if row is not None and not row.is_repeated}
        for row in (*subcommand.options, parse.HELP):
            if sign and name in row.names:
                yield from ((f"{name}={word}", "") for word in _values(row, [], value))
            elif not sign and row not in used:
                yield from ((name, row.doc) for name in row.names if name.startswith(start))


def _values(row: CommandParameter, arguments: list[str], start: str) -> list[str]:
    """Values of a parameter: from its completer, or the words of a metavar that lists all values."""
    if row.completer:
        project_folder.enter((), {"quiet": True})
        completer = subcommands.load(row.completer)
        words: list[str] = completer(*([arguments] if completer.__code__.co_argcount > 1 else []), start)
        return words
    if "|" in row.metavar and row.metavar.islower():
        return [word for word in row.metavar.split("|") if word.startswith(start)]
    return []


def set_up(program: str, words: list[str], is_install: bool) -> int:
    """Show or install the completion script of the current shell; return the exit code."""
    import shellingham

    with suppress(shellingham.ShellDetectionFailure):
        if shellingham.detect_shell()[0] == "bash":
            return _set_up_bash(program, is_install)
    return _answer_with_typer(program, words)


def _answer_with_typer(program: str, words: list[str]) -> int:
    from . import typer_app

    return typer_app.main(program, words)


def _set_up_bash(program: str, is_install: bool) -> int:
    name = program.replace("-", "_")
    parts = {
        "complete_func": f"_{name}_completion",
        "prog_name": program,
        "autocomplete_var": f"_{name.upper()}_COMPLETE",
    }
    with files.open(SCRIPT, encoding="utf-8") as file:
        text = file.read() % parts
    if not is_install:
        write(text)
        return EXIT_OK
    folder, settings = expanduser("~/.bash_completions"), expanduser("~/.bashrc")
    path = f"{folder}/{program}.sh"
    files.makedirs(folder, exist_ok=True)
    with files.open(path, "w", encoding="utf-8") as file:
        file.write(text)
    line = f"source '{path}'\n"
    with files.open(settings, "a+", encoding="utf-8") as file:
        file.seek(0)
        if line not in file.read():
            file.write(f"\n{line}")
    write(f"bash completion installed in {path}\nCompletion will take effect once you restart the terminal\n")
    return EXIT_OK


# --- the shells ---------------------------------------------------------------------------------


def _from_bash() -> tuple[list[str], str]:
    words = _split(environment.environ.get("COMP_WORDS", ""))
    at = int(environment.environ.get("COMP_CWORD", "0"))
    return words[1:at], words[at] if at < len(words) else ""


def _from_line() -> tuple[list[str], str]:
    line = environment.environ.get(_LINE, "")
    words = _split(line)[1:]
    return (words[:-1], words[-1]) if words and not line.endswith(" ") else (words, "")


def _from_powershell() -> tuple[list[str], str]:
    words = _split(environment.environ.get(_LINE, ""))[1:]
    start = environment.environ.get("_TYPER_COMPLETE_WORD_TO_COMPLETE", "")
    return words[:-1] if start else words, start


def _split(line: str) -> list[str]:
    """The words of a line as a shell splits them; a quote may still be open at its end."""
    reader = shlex.shlex(line, posix=True)
    reader.whitespace_split = True
    reader.commenters = ""
    words = []
    try:
        for word in reader:
            words.append(word)
    except ValueError:
        words.append(reader.token)
    return words


def _to_zsh(completions: list[Completion]) -> str:
    if completions and all(word.endswith(("=", "/")) for word, _ in completions):
        # The word is a prefix, so no space follows it.
        return "compadd -S '' -- " + " ".join(shlex.quote(word) for word, _ in completions)
    rows = (":".join(f'"{_escape_zsh(text)}"' for text in completion if text) for completion in completions)
    return "_arguments '*: :((" + "\n".join(rows) + "))'" if completions else "_files"


def _escape_zsh(text: str) -> str:
    for sign, escaped in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
        text = text.replace(sign, escaped)
    return text


def _to_powershell(completions: list[Completion]) -> str:
    return "\n".join(f"{word}:::{doc or ' '}" for word, doc in completions)


# By shell: function that reads the words and the incomplete word, and function that formats the completions.
_SHELLS: dict[str, tuple[Callable[[], tuple[list[str], str]], Callable[[list[Completion]], str]]] = {
    "bash": (_from_bash, lambda completions: "\n".join(word for word, _ in completions)),
    "zsh": (_from_line, _to_zsh),
    "fish": (_from_line, lambda completions: "\n".join("\t".join(filter(None, row)) for row in completions)),
    "powershell": (_from_powershell, _to_powershell),
    "pwsh": (_from_powershell, _to_powershell),
}
