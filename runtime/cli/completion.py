"""Completion of a line in a shell, and the script for bash.

The protocol is Typer's, whose scripts serve the other shells: `_LLC_COMPLETE` names the shell, other
variables hold the line. bash splits words at `:` and `=`, which names and parameters of tasks contain;
Typer's script does not join them again.
"""

from __future__ import annotations

import shlex
from os.path import dirname, expanduser, join

from ..host import environment, files
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ..project.options import FLAG, CommandParameter
from . import project_folder, verbs
from .output import write, write_data
from .parse import HELP
from .verbs import VERBS, Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    # A word, and its meaning or ''.
    Offer = tuple[str, str]

# The script for bash, with the names of its parts.
SCRIPT = join(dirname(__file__), "completion.bash")

_LINE = "_TYPER_COMPLETE_ARGS"


def answer(request: str) -> int | None:
    """Answer a shell that completes a line; the exit code. None if the request is another one.

    request: such as `complete_bash`.
    """
    asked, _, shell = request.partition("_")
    if asked != "complete" or shell not in _SHELLS:
        return None
    read, tell = _SHELLS[shell]
    code = EXIT_OK
    try:
        # Shells take an offer from each line, so a name with two lines is left out.
        offers = [offer for offer in following(*read()) if "\n" not in offer[0]]
    except Exception as error:
        # Error messages would disturb the line that is being typed.
        from ...ir.diagnostics import CompileError
        from ..journal.journal import JournalError

        if not isinstance(error, UserError | CompileError | JournalError):
            raise
        offers, code = [], EXIT_FAILURE
    if shell == "fish" and environment.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return EXIT_OK if offers else EXIT_FAILURE
    told = tell(offers) if code == EXIT_OK else ""
    if told:
        write_data(told + "\n")
    return code


def following(words: Sequence[str], start: str) -> Iterator[Offer]:
    """The words that may replace `start`, which is being typed, after `words`.

    Raises UserError, CompileError or JournalError if the project's files cannot be read.
    """
    behind = iter(words)
    name = next((word for word in behind if not word.startswith("-")), None)
    if name is None:
        yield from ((verb, row[0]) for verb, row in VERBS.items() if verb.startswith(start))
        yield from _names((*verbs.program("").options, HELP), start, set(words))
    elif name in VERBS:
        yield from _of_verb(verbs.find(name), list(behind), start)


def _of_verb(verb: Verb, words: list[str], start: str) -> Iterator[Offer]:
    options = (*verb.options, HELP)
    by_name = {name: row for row in options for name in row.names}
    placed: list[str] = []
    given: set[str] = set()
    wanting: CommandParameter | None = None
    are_placed = False
    for word in words:
        if wanting is not None:
            wanting = None
        elif are_placed or not word.startswith("-") or word == "-":
            placed.append(word)
            are_placed = are_placed or verb.is_open
        elif word == "--":
            are_placed = True
        else:
            name, sign, _ = word.partition("=")
            row = by_name.get(name)
            if row is not None:
                given.update(row.names if not row.is_repeated else ())
                wanting = row if row.kind != FLAG and not sign else None
    name, sign, value = start.partition("=")
    if wanting is not None:
        yield from _values(wanting, [], start)
    elif are_placed or not start.startswith("-"):
        at = min(len(placed), len(verb.arguments) - 1)
        if at >= 0 and (at == len(placed) or verb.arguments[at].is_repeated):
            yield from _values(verb.arguments[at], placed, start)
    elif sign:
        if name in by_name:
            yield from ((f"{name}={offer}", "") for offer, _ in _values(by_name[name], [], value))
    else:
        yield from _names(options, start, given)


def _names(options: Iterable[CommandParameter], start: str, given: set[str]) -> Iterator[Offer]:
    """The names of options that were not given, if the word that is being typed is an option."""
    if start.startswith("-"):
        for row in options:
            yield from ((name, row.doc) for name in row.names if name.startswith(start) and name not in given)


def _values(row: CommandParameter, placed: list[str], start: str) -> Iterator[Offer]:
    """Values of a parameter: those of its completer, or the words of a metavar that lists all values."""
    found: list[str] = []
    if row.completer:
        project_folder.enter((), {"quiet": True})
        complete = verbs.load(row.completer)
        found = complete(placed, start) if complete.__code__.co_argcount > 1 else complete(start)
    elif "|" in row.metavar and row.metavar.islower():
        found = [word for word in row.metavar.split("|") if word.startswith(start)]
    yield from ((word, "") for word in found)


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
    """A line's words as a shell splits them; quotes may still be open at its end."""
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


def _to_zsh(offers: list[Offer]) -> str:
    if offers and all(word.endswith(("=", "/")) for word, _ in offers):
        # The word continues, so no blank follows.
        return "compadd -S '' -- " + " ".join(shlex.quote(word) for word, _ in offers)
    rows = (":".join(f'"{_escaped(text)}"' for text in offer if text) for offer in offers)
    return "_arguments '*: :((" + "\n".join(rows) + "))'" if offers else "_files"


def _escaped(text: str) -> str:
    for sign, escaped in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
        text = text.replace(sign, escaped)
    return text


def _to_powershell(offers: list[Offer]) -> str:
    return "\n".join(f"{word}:::{doc or ' '}" for word, doc in offers)


# How each shell passes the line, and how it takes the answer.
_SHELLS: dict[str, tuple[Callable[[], tuple[list[str], str]], Callable[[list[Offer]], str]]] = {
    "bash": (_from_bash, lambda offers: "\n".join(word for word, _ in offers)),
    "zsh": (_from_line, _to_zsh),
    "fish": (_from_line, lambda offers: "\n".join("\t".join(filter(None, offer)) for offer in offers)),
    "powershell": (_from_powershell, _to_powershell),
    "pwsh": (_from_powershell, _to_powershell),
}
