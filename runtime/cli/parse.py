"""The reader of words: a command line read by the table of subcommands, with the grammar of Click.

To import Click takes as long as the interpreter's own start, four times as long as all of `dispatch`. A test
reads random lines with Typer too: both accept the same lines and find the same values.
Owns the error messages of lines that cannot be read; Typer has no public interface to what is wrong with one.
"""

from __future__ import annotations

from ..host.errors import UserError, clean, nearest
from ..host.secrets import masked
from ..project.options import FLAG, CommandParameter
from . import output
from .verbs import Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


HELP = CommandParameter("help", ("--help", "-h"), FLAG, "Show this message and exit.")
_LONGEST = 60


def read(path: str, verb: Verb, words: Sequence[str]) -> dict[str, Any] | None:
    """The values that words give to the parameters of a subcommand, by name; None where they ask for help.

    path: program and subcommand, for messages. Raises UserError.
    """
    texts, placed = _split(path, verb, words)
    if any(row is HELP for row, _ in texts):
        return None
    given: dict[str, Any] = {}
    # As with Click, the last value of an option counts, and the others are not read.
    last = {row.name: at for at, (row, _) in enumerate(texts) if not row.is_repeated}
    for at, (row, text) in enumerate(texts):
        if row.is_repeated:
            given.setdefault(row.name, []).append(_value(row, text or ""))
        elif last[row.name] == at:
            given[row.name] = True if text is None else _value(row, text)
    for row in verb.arguments:
        if not placed:
            if row.is_required:
                help = _described(row)
                if verb.examples:
                    help += f"; such as `{verb.examples[0]}`"
                raise UserError("missing-argument", f"`{path}` needs {row.metavar}", help)
        elif row.is_repeated:
            given[row.name], placed = placed, []
        else:
            given[row.name] = placed.pop(0)
    if placed:
        raise UserError(
            "bad-argument", f"unexpected argument `{_shown(' '.join(placed))}`", f"usage: {usage(path, verb)}"
        )
    return given


def usage(path: str, verb: Verb) -> str:
    """What a line of a subcommand consists of."""
    return " ".join([path, "[OPTIONS]", *(row.metavar for row in verb.arguments)])


def _split(
    path: str, verb: Verb, words: Sequence[str]
) -> tuple[list[tuple[CommandParameter, str | None]], list[str]]:
    """The options with their texts, None for a flag, and the arguments."""
    by_name = {name: row for row in (*verb.options, HELP) for name in row.names}
    texts: list[tuple[CommandParameter, str | None]] = []
    placed: list[str] = []
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if word == "--" or (verb.is_open and not _is_option(word)):
            placed += reversed(queue if word == "--" else [*queue, word])
            break
        if not _is_option(word):
            placed.append(word)
            continue
        name, sign, text = word.partition("=")
        if word.startswith("--"):
            found = [(name, text if sign else None)]
        else:
            found = _letters(word, by_name)
        for name, value in found:
            row = by_name.get(name)
            if row is None:
                raise _unknown(path, name, by_name)
            if row.kind == FLAG:
                if value is not None:
                    raise UserError("bad-option", f"{name} takes no value", _described(row))
            elif value is None:
                if not queue:
                    needed = f"{name} needs a value" + (f": {name} {row.metavar}" if row.metavar else "")
                    raise UserError("bad-option", needed, _described(row))
                value = queue.pop()
            texts.append((row, value))
    return texts, placed


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _letters(word: str, by_name: dict[str, CommandParameter]) -> list[tuple[str, str | None]]:
    """Short options in one word: `-qv`, `-n5`."""
    found: list[tuple[str, str | None]] = []
    for at, letter in enumerate(word[1:], 2):
        name = f"-{letter}"
        row = by_name.get(name)
        takes_rest = row is not None and row.kind != FLAG and at < len(word)
        found.append((name, word[at:] if takes_rest else None))
        if takes_rest or row is None:
            break
    return found


def _value(row: CommandParameter, text: str) -> Any:
    try:
        return row.read(text)
    except ValueError as error:
        raise UserError(
            "bad-option", f"{row.names[0]} must be {error}, not `{_shown(text)}`", _described(row)
        ) from None


def _unknown(path: str, name: str, known: dict[str, CommandParameter]) -> UserError:
    if name in ("-C", "--directory"):
        return UserError(
            "unknown-option", f"`{path}` has no option `{name}`", f"it comes first: `llc {name} DIR …`"
        )
    if name == "--db" and "--on" in known:
        return UserError("unknown-option", f"`{path}` has no option `--db`", "on workers: --on URL")
    found = nearest(name, [one for one in known if one.startswith("--") == name.startswith("--")])
    help = f"did you mean `{found}`?" if found is not None else f"`{path} --help` lists the options"
    return UserError("unknown-option", f"`{path}` has no option `{_shown(name)}`", help)


def _described(row: CommandParameter) -> str:
    """What a parameter is, by its help."""
    return row.doc[:1].lower() + row.doc[1:].rstrip(".")


def _shown(text: str) -> str:
    """A word of the command line, without secrets and control characters, of limited length."""
    output.mask()
    text = clean(masked(text))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
