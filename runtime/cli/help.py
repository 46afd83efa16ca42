"""Help pages: one for the program, one for each subcommand, from the table of subcommands."""

from __future__ import annotations

from ..host import environment, terminal
from ..project.options import FLAG, CommandParameter
from . import parse
from .subcommands import SUBCOMMANDS, Subcommand, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


# Limits of the page width in columns, and of the width of the first column.
_MAX_WIDTH, _MIN_WIDTH = 78, 50
_MAX_TERM_WIDTH = 30
# Limit of options for a page without headings.
_MAX_WITHOUT_HEADINGS = 8


def program_page(name: str) -> str:
    """Help page of the program: its options and subcommands. name: of the program."""
    about = program(name)
    width = _width()
    commands: dict[str, list[tuple[str, str]]] = {}
    for subcommand, (doc, *_, group) in SUBCOMMANDS.items():
        commands.setdefault(group, []).append((subcommand, doc))
    return _page(
        _usage(parse.usage(name, about), width),
        _paragraph(about.doc, width),
        _section("Options", [_option(row) for row in (*about.options, parse.HELP)], width),
        *(_section(title, rows, width) for title, rows in commands.items()),
    )


def subcommand_page(name: str, subcommand: Subcommand) -> str:
    """Help page of a subcommand. name: of the program and the subcommand."""
    width = _width()
    options: dict[str, list[tuple[str, str]]] = {}
    for row in subcommand.options:
        title = row.heading if len(subcommand.options) > _MAX_WITHOUT_HEADINGS else ""
        options.setdefault(title or "Options", []).append(_option(row))
    examples = "".join(f"    {line}\n" for line in subcommand.examples)
    return _page(
        _usage(parse.usage(name, subcommand), width),
        _paragraph(subcommand.doc, width),
        _section("Arguments", [(row.metavar, row.doc) for row in subcommand.arguments], width),
        *(_section(title, rows, width) for title, rows in options.items()),
        f"  Examples:\n{examples}" if examples else "",
    )


def _page(*parts: str) -> str:
    return "\n".join(filter(None, parts))


def _usage(usage: str, width: int) -> str:
    head = f"Usage: {usage.partition(' [')[0]} "
    text = usage.removeprefix(head.removeprefix("Usage: "))
    return "\n".join(_wrap(text, width, head, " " * len(head))) + "\n"


def _paragraph(text: str, width: int) -> str:
    return "\n".join(_wrap(text, width, "  ", "  ")) + "\n"


def _wrap(text: str, width: int, head: str = "", indent: str = "") -> list[str]:
    """Lines of at most `width` columns, the first with `head`; avoids the slow import of `textwrap`."""
    lines: list[str] = []
    line, is_bare = head, True
    for word in text.split(" "):
        if not is_bare and len(line) + 1 + len(word) > width:
            lines.append(line.rstrip())
            line, is_bare = indent, True
        line += word if is_bare else f" {word}"
        is_bare = is_bare and not word
    return [*lines, line]


def _option(row: CommandParameter) -> tuple[str, str]:
    names = sorted(row.names, key=lambda name: name.startswith("--"))
    term = ", ".join(names) + (f" {row.metavar}" if row.metavar and row.kind != FLAG else "")
    more = [f"default: {row.default}"] if row.default else []
    if row.most is not None:
        more.append(f"{row.least}<=x<={row.most}")
    elif row.least is not None:
        more.append(f"x>={row.least}")
    return term, row.doc + (f"  [{'; '.join(more)}]" if more else "")


def _section(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    """Terms and their meanings in two columns; a term that is too wide has a separate line."""
    rows = list(rows)
    if not rows:
        return ""
    column = min(max(len(term) for term, _ in rows), _MAX_TERM_WIDTH) + 2
    lines = [f"{title}:"]
    for term, meaning in rows:
        wrapped = _wrap(meaning, max(width - column - 2, 10))
        if len(term) > column - 2:
            lines.append(f"  {term}")
            term = ""
        lines.append(f"  {term:{column}}{wrapped[0]}".rstrip())
        lines += [" " * (column + 2) + line for line in wrapped[1:]]
    return "\n".join(lines) + "\n"


def _width() -> int:
    """Page width: the width of the terminal, within the limits."""
    try:
        columns = int(environment.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0:
        try:
            columns = terminal.get_terminal_size(1).columns or 80
        except OSError:
            columns = 80
    return max(min(columns - 2, _MAX_WIDTH), _MIN_WIDTH)
