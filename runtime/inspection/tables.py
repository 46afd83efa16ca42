"""Tables for people, shared by the views of runs."""

from __future__ import annotations

from ..host.screen import Screen, fit, printable

# Columns of one cell.
_WIDEST = 60


def columns(rows: list[list[str]], screen: Screen, dropped: tuple[str, ...] = ()) -> str:
    """Rows in aligned columns; the first row has their headings.

    dropped: headings of columns to leave out, in this order, where a terminal is too narrow for all.
    """
    cells = [[fit(printable(" ".join(cell.split())), _WIDEST) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    for heading in dropped if screen.is_live else ():
        if heading in cells[0] and sum(widths) + 2 * (len(widths) - 1) >= screen.width:
            at = cells[0].index(heading)
            del widths[at]
            for row in cells:
                del row[at]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "".join(
        (screen.paint(line, "dim") if number == 0 else line) + "\n" for number, line in enumerate(lines)
    )
