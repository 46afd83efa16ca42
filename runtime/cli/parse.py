"""Parser of command lines: uses the table of subcommands and the grammar of Click.

The import of Click takes as long as the start of the interpreter, four times as long as all of `dispatch`. A
test parses random lines with this parser and with Typer: both accept the same lines and find the same values.
Owns the error messages of invalid lines; Typer has no public interface to the details of an error.
"""

from __future__ import annotations

from ..host.errors import UserError, clean, nearest
from ..host.secrets import masked
from ..project.options import FLAG, CommandParameter
from . import output
from .subcommands import Subcommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


HELP = CommandParameter("help", ("--help", "-h"), FLAG, "Show this message and exit.")
_MAX_SHOWN_CHARS = 60


def read(path: str, subcommand: Subcommand, words: Sequence[str]) -> dict[str, Any] | None:
    """Parse the words after a subcommand: parameter values by name; None if the words contain `--help`.

    path: program and subcommand, for messages. Raises UserError.
    """
    options, arguments, _ = split(subcommand, words)
    texts: dict[CommandParameter, list[str | None]] = {}
    for row, name, text in options:
        if row is None:
            raise _unknown(path, name, subcommand)
        if row.kind == FLAG and text is not None:
            raise UserError("bad-option", f"{name} takes no value", _describe(row))
        if row.kind != FLAG and text is None:
            message = f"{name} needs a value" + (f": {name} {row.metavar}" if row.metavar else "")
            raise UserError("bad-option", message, _describe(row))
        texts.setdefault(row, []).append(text)
    if HELP in texts:
        return None
    values: dict[str, Any] = {}
    for row, given in texts.items():
        if row.is_repeated:
            values[row.name] = [_value(row, text) for text in given]
        else:  # as in Click, the last value is used, and the others are not checked
            values[row.name] = _value(row, given[-1])
    for row in subcommand.arguments:
        if not arguments:
            if row.is_required:
                help = _describe(row)
                if subcommand.examples:
                    help += f"; such as `{subcommand.examples[0]}`"
                raise UserError("missing-argument", f"`{path}` needs {row.metavar}", help)
        elif row.is_repeated:
            values[row.name], arguments = arguments, []
        else:
            values[row.name] = arguments.pop(0)
    if arguments:
        message = f"unexpected argument `{_printable(' '.join(arguments))}`"
        raise UserError("bad-argument", message, f"usage: {usage(path, subcommand)}")
    return values


def usage(path: str, subcommand: Subcommand) -> str:
    """Usage line of a subcommand."""
    return " ".join([path, "[OPTIONS]", *(row.metavar for row in subcommand.arguments)])


def split(
    subcommand: Subcommand, words: Sequence[str]
) -> tuple[list[tuple[CommandParameter | None, str, str | None]], list[str], bool]:
    """Split the words after a subcommand into options and arguments; the line may be invalid or incomplete.

    Returns the options as parameter (None if unknown), name and text (None without a value), the arguments,
    and whether every further word is an argument.
    """
    by_name = {name: row for row in (*subcommand.options, HELP) for name in row.names}
    options: list[tuple[CommandParameter | None, str, str | None]] = []
    arguments: list[str] = []
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if word == "--" or (subcommand.is_open and not _is_option(word)):
            arguments += reversed(queue if word == "--" else [*queue, word])
            return options, arguments, True
        if not _is_option(word):
            arguments.append(word)
            continue
        name, sign, text = word.partition("=")
        given = [(name, text if sign else None)] if word[1] == "-" else _split_letters(word, by_name)
        for name, value in given:
            row = by_name.get(name)
            if row is not None and row.kind != FLAG and value is None and queue:
                value = queue.pop()
            options.append((row, name, value))
    return options, arguments, False


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _split_letters(word: str, by_name: dict[str, CommandParameter]) -> list[tuple[str, str | None]]:
    """The short options in one word, such as `-qv` or `-n5`, with their values."""
    options: list[tuple[str, str | None]] = []
    for at, letter in enumerate(word[1:], 2):
        name = f"-{letter}"
        row = by_name.get(name)
        takes_rest = row is not None and row.kind != FLAG and at < len(word)
        options.append((name, word[at:] if takes_rest else None))
        if takes_rest or row is None:
            break
    return options


def _value(row: CommandParameter, text: str | None) -> Any:
    if text is None:
        return True
    try:
        return row.read(text)
    except ValueError as error:
        raise UserError(
            "bad-option", f"{row.names[0]} must be {error}, not `{_printable(text)}`", _describe(row)
        ) from None


def _unknown(path: str, name: str, subcommand: Subcommand) -> UserError:
    known = [other for row in (*subcommand.options, HELP) for other in row.names]
    if name in ("-C", "--directory"):
        return UserError(
            "unknown-option",
            f"`{path}` has no option `{name}`",
            f"write it before the subcommand: `llc {name} DIR …`",
        )
    if name == "--db" and "--on" in known:
        help = "to run it on workers: --on URL"
        return UserError("unknown-option", f"`{path}` has no option `--db`", help)
    similar = nearest(name, [other for other in known if other.startswith("--") == name.startswith("--")])
    help = f"did you mean `{similar}`?" if similar is not None else f"`{path} --help` lists the options"
    return UserError("unknown-option", f"`{path}` has no option `{_printable(name)}`", help)


def _describe(row: CommandParameter) -> str:
    """The help of a parameter, as the help of an error."""
    return row.doc[:1].lower() + row.doc[1:].rstrip(".")


def _printable(text: str) -> str:
    """A word of the command line without secrets and control characters, shortened."""
    output.mask()
    text = clean(masked(text))
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 1] + "…"
