"""What `--help` shows: a page for the program, one for each verb, made of how they are declared.

Owns the look. The command-line library shows these pages too, where it reads the words; most who ask for
help need not wait for it.
"""

from __future__ import annotations

import textwrap

from ..host import environment, terminal
from ..project.options import FLAG, Option
from .verbs import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .declare import Verb

HELP = Option("help", "--help -h", FLAG, "Show this message and exit.")
# What the program takes before a verb.
PROGRAM = (
    Option("version", "--version -V", FLAG, "Show the version and exit."),
    Option("verbose", "--verbose", FLAG, "With --version: show more."),
    Option("install", "--install-completion", FLAG, "Install completion for the current shell."),
    Option(
        "show",
        "--show-completion",
        FLAG,
        "Show completion for the current shell, to copy it or customize the installation.",
    ),
    HELP,
)
ABOUT = "Compile automation loops to states and jumps, and run them."
# The widest that is read with ease, the narrowest that holds a term and what it means.
_WIDEST, _NARROWEST = 78, 50
_WIDEST_TERM = 30


def asked(words: Sequence[str], is_open: bool = False) -> bool:
    """Whether a verb's words plainly ask for its help. is_open: as a `Verb` has it.

    Where other options stand before, the command-line library has to read them.
    """
    for word in words:
        if word in HELP.names:
            return True
        if is_open or word.startswith("-"):
            return False
    return False


def program(name: str) -> str:
    """The page of a program by its name: its options and verbs."""
    width = _width()
    options = [_option(row) for row in PROGRAM]
    return _page(
        _usage(name, ["[OPTIONS]", "COMMAND", "[ARGS]..."], width),
        _paragraph(ABOUT, width),
        _section("Options", options, width),
        _section("Commands", VERBS.items(), width),
    )


def verb(name: str, verb: Verb) -> str:
    """The page of a verb, which is called by the program's name and its own."""
    width = _width()
    examples = "".join(f"    {line}\n" for line in verb.examples)
    return _page(
        _usage(name, pieces(verb), width),
        _paragraph(VERBS[verb.name], width),
        _section("Arguments", [(row.metavar, row.doc) for row in verb.arguments], width),
        _section("Options", [_option(row) for row in verb.options], width),
        f"  Examples:\n{examples}" if examples else "",
    )


def pieces(verb: Verb) -> list[str]:
    """What a verb is followed by."""
    return ["[OPTIONS]", *(row.metavar for row in verb.arguments)]


def _page(*parts: str) -> str:
    return "\n".join(filter(None, parts))


def _usage(name: str, parts: Iterable[str], width: int) -> str:
    head = f"Usage: {name} "
    text = " ".join(parts)
    return textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * len(head)) + "\n"


def _paragraph(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="  ") + "\n"


def _option(row: Option) -> tuple[str, str]:
    names = sorted(row.names, key=lambda name: name.startswith("--"))
    term = ", ".join(names) + (f" {row.metavar}" if row.metavar and row.kind != FLAG else "")
    more = [f"default: {row.default}"] if row.default else []
    if row.most is not None:
        more.append(f"{row.least}<=x<={row.most}")
    elif row.least is not None:
        more.append(f"x>={row.least}")
    return term, row.doc + (f"  [{'; '.join(more)}]" if more else "")


def _section(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    """Terms and what they mean, in two columns; a term that is too wide has a line of its own."""
    rows = list(rows)
    if not rows:
        return ""
    column = min(max(len(term) for term, _ in rows), _WIDEST_TERM) + 2
    lines = [f"{title}:"]
    for term, meaning in rows:
        wrapped = textwrap.wrap(meaning, max(width - column - 2, 10), replace_whitespace=False) or [""]
        if len(term) > column - 2:
            lines.append(f"  {term}")
            term = ""
        lines.append(f"  {term:{column}}{wrapped[0]}".rstrip())
        lines += [" " * (column + 2) + line for line in wrapped[1:]]
    return "\n".join(lines) + "\n"


def _width() -> int:
    """How wide a page is: as the terminal, in bounds."""
    try:
        columns = int(environment.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0:
        try:
            columns = terminal.get_terminal_size(1).columns or 80
        except OSError:
            columns = 80
    return max(min(columns - 2, _WIDEST), _NARROWEST)
