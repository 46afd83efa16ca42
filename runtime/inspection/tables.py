"""Tables for people, shared by the views of runs."""

from __future__ import annotations

from ..host.screen import Screen, fit, printable

_MAX_CELL_COLUMNS = 60


def columns(rows: list[list[str]], screen: Screen, dropped: tuple[str, ...] = ()) -> str:
    """Format rows in aligned columns; the first row contains the headings.

    dropped: headings of columns to omit, in this order, if the terminal is too narrow.
    """
    cells = [[fit(printable(" ".join(cell.split())), _MAX_CELL_COLUMNS) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    for heading in dropped if screen.is_live else ():
        if heading in cells[0] and sum(widths) + 2 * (len(widths) - 1) >= screen.width:
            index = cells[0].index(heading)
            del widths[index]
            for row in cells:
                del row[index]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "".join(
        (screen.paint(line, "dim") if number == 0 else line) + "\n" for number, line in enumerate(lines)
    )
