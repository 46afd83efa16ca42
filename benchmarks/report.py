"""Rows of measurements, printed as a Markdown table.

Owns the row and the format of figures. A row has a figure, optionally the figure of a peer and a
target; whether the target is reached follows from the figures.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from measure import middle, quartiles, ratios

SECONDS, BYTES, TIMES, RATE = "seconds", "bytes", "times", "a second"
_SCALES = {
    SECONDS: ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    BYTES: ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")),
    TIMES: ((1, "×"),),
    RATE: ((1, "/s"),),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a figure, and the figure of its peer.

    aim: target, the maximum of the ratio; of the figure itself if `aim_is_absolute`. A peer without a
    figure could not be measured.
    """

    what: str
    unit: str
    figure: float
    spread: tuple[float, float] | None = None
    peer: str = ""
    peer_figure: float | None = None
    ratio: float | None = None
    ratio_spread: tuple[float, float] | None = None
    aim: float | None = None
    aim_is_absolute: bool = False

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is reached; None without a target."""
        held = self.figure if self.aim_is_absolute else self.ratio
        return None if self.aim is None or held is None else held <= self.aim


@dataclass(frozen=True, kw_only=True)
class Section:
    """The rows of one question, and a description of the measurement."""

    name: str
    title: str
    about: str
    rows: list[Row] = field(default_factory=list)
    # Sentences that follow what it is about: what could not be measured.
    notes: list[str] = field(default_factory=list)

    def add(self, *rows: Row) -> None:
        self.rows.extend(rows)


def row(
    what: str,
    values: Sequence[float],
    unit: str = SECONDS,
    *,
    peer: tuple[str, Sequence[float]] | None = None,
    aim: float | None = None,
    aim_is_absolute: bool = False,
) -> Row:
    """Create a row from the rounds of a contestant and, round by round, of its peer. No rounds: absent."""
    many = len(values) > 1
    facts: dict[str, Any] = {} if peer is None else {"peer": peer[0]}
    if peer is not None and peer[1]:
        peers = peer[1]
        found = ratios(values, peers)
        facts |= {
            "peer_figure": middle(peers),
            "ratio": middle(found),
            "ratio_spread": quartiles(found) if many else None,
        }
    return Row(
        what=what,
        unit=unit,
        figure=middle(values),
        spread=quartiles(values) if many else None,
        aim=aim,
        aim_is_absolute=aim_is_absolute,
        **facts,
    )


def shown(figure: float, unit: str) -> str:
    """Format a figure with three digits and a suitable unit: `1.35 ms`."""
    scales = _SCALES[unit]
    scale, name = next((pair for pair in scales if abs(figure) >= pair[0]), scales[-1])
    return f"{_digits(figure / scale)} {name}"


def _digits(number: float) -> str:
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.{2 if abs(number) < 10 else 1 if abs(number) < 100 else 0}f}"


def _spread(spread: tuple[float, float] | None, show: Any) -> str:
    return "" if spread is None else f" ({show(spread[0])} – {show(spread[1])})"


def as_table(rows: Iterable[Row]) -> str:
    """Format the rows as a Markdown table."""
    lines = [
        "| measured | median (quartiles) | compared with | its median | ratio (quartiles) | target | |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in rows:

        def show(figure: float, unit: str = line.unit) -> str:
            return shown(figure, unit)

        ratio = "" if line.ratio is None else f"{_digits(line.ratio)} ×{_spread(line.ratio_spread, _digits)}"
        aim = ""
        if line.aim is not None:
            aim = f"≤ {show(line.aim)}" if line.aim_is_absolute else f"≤ {line.aim:g} ×"
        cells = (
            line.what,
            show(line.figure) + _spread(line.spread, show),
            line.peer,
            show(line.peer_figure) if line.peer_figure is not None else "absent" if line.peer else "",
            ratio,
            aim,
            {None: "", True: "reached", False: "**missed**"}[line.is_reached],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> str:
    """Describe the machine and the date of the measurement in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores, {shown(memory, BYTES)}, "
        f"load {os.getloadavg()[0]:.1f} at the end, on {date.today().isoformat()}"
    )


def as_markdown(sections: Sequence[Section]) -> str:
    """Format the complete report, the content of RESULTS.md."""
    parts = [
        "# Results\n",
        "Written by `python benchmarks/run.py`; README.md describes how each figure is measured.",
        f"Measured with {machine()}. Ratios are medians of the ratios of the rounds.\n",
    ]
    for section in sections:
        about = " ".join([section.about, *section.notes])
        parts.append(f"## {section.title}\n\n{about}\n\n{as_table(section.rows)}\n")
    return "\n".join(parts)


def as_json(sections: Sequence[Section]) -> dict[str, Any]:
    return {
        "machine": machine(),
        "sections": [
            {
                "name": section.name,
                "title": section.title,
                "notes": section.notes,
                "rows": [{**asdict(line), "reached": line.is_reached} for line in section.rows],
            }
            for section in sections
        ],
    }
