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
    texts, arguments = _split(path, subcommand, words)
    if any(row is HELP for row, _ in texts):
        return None
    values: dict[str, Any] = {}
    # As in Click, the last value of an option is used, and the others are not checked.
    last = {row.name: at for at, (row, _) in enumerate(texts) if not row.is_repeated}
    for at, (row, text) in enumerate(texts):
        if row.is_repeated:
            values.setdefault(row.name, []).append(_value(row, text or ""))
        elif last[row.name] == at:
            values[row.name] = True if text is None else _value(row, text)
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


def _split(
    path: str, subcommand: Subcommand, words: Sequence[str]
) -> tuple[list[tuple[CommandParameter, str | None]], list[str]]:
    """The options with their texts (None for a flag), and the arguments."""
    by_name = {name: row for row in (*subcommand.options, HELP) for name in row.names}
    texts: list[tuple[CommandParameter, str | None]] = []
    arguments: list[str] = []
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if word == "--" or (subcommand.is_open and not _is_option(word)):
            arguments += reversed(queue if word == "--" else [*queue, word])
            break
        if not _is_option(word):
            arguments.append(word)
            continue
        name, sign, text = word.partition("=")
        if word.startswith("--"):
            options = [(name, text if sign else None)]
        else:
            options = _split_letters(word, by_name)
        for name, value in options:
            row = by_name.get(name)
            if row is None:
                raise _unknown(path, name, by_name)
            if row.kind == FLAG:
                if value is not None:
                    raise UserError("bad-option", f"{name} takes no value", _describe(row))
            elif value is None:
                if not queue:
                    message = f"{name} needs a value" + (f": {name} {row.metavar}" if row.metavar else "")
                    raise UserError("bad-option", message, _describe(row))
                value = queue.pop()
            texts.append((row, value))
    return texts, arguments


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


def _value(row: CommandParameter, text: str) -> Any:
    try:
        return row.read(text)
    except ValueError as error:
        raise UserError(
            "bad-option", f"{row.names[0]} must be {error}, not `{_printable(text)}`", _describe(row)
        ) from None


def _unknown(path: str, name: str, known: dict[str, CommandParameter]) -> UserError:
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
