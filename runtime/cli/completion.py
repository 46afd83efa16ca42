"""Shell completion of command lines, and the completion script for bash.

The protocol is that of Typer, whose scripts serve the other shells: `_LLC_COMPLETE` names the shell, other
variables contain the line. bash splits words at `:` and `=`, which occur in names and parameters of tasks.
The script for bash joins these parts again, which Typer's script does not.
"""

from __future__ import annotations

import shlex
from os.path import dirname, expanduser, join

from ..host import environment, files
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ..project.options import FLAG, CommandParameter
from . import project_folder, subcommands
from .output import write, write_data
from .parse import HELP
from .subcommands import SUBCOMMANDS, Subcommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    # A completion: the word and its description or ''.
    Completion = tuple[str, str]

# Template of the script for bash.
SCRIPT = join(dirname(__file__), "completion.bash")

_LINE = "_TYPER_COMPLETE_ARGS"


def answer(request: str) -> int | None:
    """Answer a completion request of a shell; return the exit code. None for another kind of request.

    request: such as `complete_bash`.
    """
    action, _, shell = request.partition("_")
    if action != "complete" or shell not in _SHELLS:
        return None
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
    remaining = iter(words)
    name = next((word for word in remaining if not word.startswith("-")), None)
    if name is None:
        yield from ((name, row[0]) for name, row in SUBCOMMANDS.items() if name.startswith(start))
        yield from _option_names((*subcommands.program("").options, HELP), start, set(words))
    elif name in SUBCOMMANDS:
        yield from _complete_subcommand(subcommands.find(name), list(remaining), start)


def _complete_subcommand(subcommand: Subcommand, words: list[str], start: str) -> Iterator[Completion]:
    options = (*subcommand.options, HELP)
    by_name = {name: row for row in options for name in row.names}
    arguments: list[str] = []
    used: set[str] = set()
    # The option whose value is the next word.
    pending: CommandParameter | None = None
    only_arguments = False
    for word in words:
        if pending is not None:
            pending = None
        elif only_arguments or not word.startswith("-") or word == "-":
            arguments.append(word)
            only_arguments = only_arguments or subcommand.is_open
        elif word == "--":
            only_arguments = True
        else:
            name, sign, _ = word.partition("=")
            row = by_name.get(name)
            if row is not None:
                used.update(row.names if not row.is_repeated else ())
                pending = row if row.kind != FLAG and not sign else None
    name, sign, value = start.partition("=")
    if pending is not None:
        yield from _values(pending, [], start)
    elif only_arguments or not start.startswith("-"):
        at = min(len(arguments), len(subcommand.arguments) - 1)
        if at >= 0 and (at == len(arguments) or subcommand.arguments[at].is_repeated):
            yield from _values(subcommand.arguments[at], arguments, start)
    elif sign:
        if name in by_name:
            yield from ((f"{name}={word}", "") for word, _ in _values(by_name[name], [], value))
    else:
        yield from _option_names(options, start, used)


def _option_names(options: Iterable[CommandParameter], start: str, used: set[str]) -> Iterator[Completion]:
    """Names of the unused options, if the incomplete word is an option."""
    if start.startswith("-"):
        for row in options:
            yield from ((name, row.doc) for name in row.names if name.startswith(start) and name not in used)


def _values(row: CommandParameter, arguments: list[str], start: str) -> Iterator[Completion]:
    """Values of a parameter: from its completer, or the words of a metavar that lists all values."""
    words: list[str] = []
    if row.completer:
        project_folder.enter((), {"quiet": True})
        completer = subcommands.load(row.completer)
        words = completer(arguments, start) if completer.__code__.co_argcount > 1 else completer(start)
    elif "|" in row.metavar and row.metavar.islower():
        words = [word for word in row.metavar.split("|") if word.startswith(start)]
    yield from ((word, "") for word in words)


def set_up(program: str, is_install: bool) -> int | None:
    """Show or install the completion script if the shell is bash; else None."""
    import shellingham

    try:
        shell = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        return None
    if shell != "bash":
        return None
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
