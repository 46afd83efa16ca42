"""Help pages: one for the program, one for each subcommand, from the table of subcommands."""

from __future__ import annotations

import sys

from ..host import environment
from ..host.screen import Screen
from ..project.options import FLAG, CommandParameter
from . import parse
from .subcommands import SUBCOMMANDS, Subcommand, program

# Limits of the page width in columns, and of the width of the first column.
_MAX_WIDTH, _MIN_WIDTH = 78, 50
_MAX_TERM_WIDTH = 30
# Limit of options for a page without headings.
_MAX_WITHOUT_HEADINGS = 8


def program_page(name: str) -> str:
    """Help page of the program: its options and subcommands. name: of the program."""
    about = program(name)
    groups = {"Options": [_option(row) for row in (*about.options, parse.HELP)]}
    for subcommand, (doc, *_, group) in SUBCOMMANDS.items():
        groups.setdefault(group, []).append((subcommand, doc))
    return _page(name, about, groups)


def subcommand_page(name: str, subcommand: Subcommand) -> str:
    """Help page of a subcommand. name: of the program and the subcommand."""
    groups = {"Arguments": [(row.metavar, row.doc) for row in subcommand.arguments]}
    for row in subcommand.options:
        title = row.heading if len(subcommand.options) > _MAX_WITHOUT_HEADINGS else ""
        groups.setdefault(title or "Options", []).append(_option(row))
    return _page(name, subcommand, groups)


def _page(name: str, subcommand: Subcommand, groups: dict[str, list[tuple[str, str]]]) -> str:
    """Usage, description, terms with their meanings in groups, and examples."""
    width = _width()
    head = f"Usage: {name} "
    usage = _wrap(parse.usage(name, subcommand).removeprefix(f"{name} "), width, head, " " * len(head))
    parts = [usage, _wrap(subcommand.doc, width, "  ", "  ")]
    parts += [_section(title, rows, width) for title, rows in groups.items() if rows]
    if subcommand.examples:
        parts.append(["  Examples:", *(f"    {line}" for line in subcommand.examples)])
    return "\n".join(line for part in parts for line in [*part, ""])


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


def _section(title: str, rows: list[tuple[str, str]], width: int) -> list[str]:
    """Lines with terms and their meanings in two columns; a term that is too wide has a separate line."""
    column = min(max(len(term) for term, _ in rows), _MAX_TERM_WIDTH) + 2
    lines = [f"{title}:"]
    for term, meaning in rows:
        wrapped = _wrap(meaning, max(width - column - 2, 10))
        if len(term) > column - 2:
            lines.append(f"  {term}")
            term = ""
        lines.append(f"  {term:{column}}{wrapped[0]}".rstrip())
        lines += [" " * (column + 2) + line for line in wrapped[1:]]
    return lines


def _width() -> int:
    """Page width: the width of the terminal, within the limits."""
    columns = environment.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    return max(min((width or Screen(sys.stdout).width) - 2, _MAX_WIDTH), _MIN_WIDTH)
