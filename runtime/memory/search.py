"""Search in the index: choice of terms, scores of files, best lines.

A request is data: its words become terms as those of files do, and a term has letters and digits only, so
no text can change the query. Each source of words (the query, inputs, history) is searched separately with
SQLite's BM25; the score of a file is the weighted sum.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from ..host import files
from .ignore import read_entry
from .index import Index, decode, unfit
from .terms import LONGEST_WORD, terms

# Strategy → full-text table, and the weight of a term in each of its columns.
STRATEGIES = {"content": "contents", "metadata": "metadata"}
WEIGHTS = {"contents": (8.0, 1.0), "metadata": (2.0, 8.0, 1.0, 0.5)}
# Limits of terms per source: distinct ones that are weighed, and those of them that are searched.
MOST_WEIGHED = 3_000
MOST_TERMS = 48
# Of a longer text only the end is used: the latest part is the most relevant.
MOST_TEXT = 256 << 10
LONGEST_SNIPPET = 200
# Significant digits of a score; files that differ in later ones rank as equal.
_FIGURES = 6


class Source(NamedTuple):
    """Words to search for, and their weight relative to the query's."""

    text: str
    weight: float


class Match(NamedTuple):
    """A match. line: the number of its best line, from 1; snippet: that line."""

    path: str
    score: float
    line: int | None
    snippet: str | None


def find(index: Index, root: str, sources: list[Source], strategy: str, limit: int) -> list[Match]:
    """The best `limit` files, best first, equal ones by their paths. `sources`: the query comes first."""
    table = STRATEGIES[strategy]
    scores: defaultdict[int, float] = defaultdict(float)
    worth: dict[str, float] = {}
    with index.reading():
        files = index.execute("SELECT count(*) FROM files WHERE reason IS NULL").fetchone()[0]
        most = 0
        for source in sources:
            chosen = _choose(index, table, source.text, files)
            if not chosen:
                continue
            # What has many words must not drown what has few.
            most = most or len(chosen)
            weight = source.weight * min(1.0, most / len(chosen))
            for number, rank in _ranks(index, table, list(chosen)):
                scores[number] -= weight * rank
            for term, value in chosen.items():
                worth[term] = worth.get(term, 0.0) + weight * value
        found = _by_path(index, scores)
    found.sort(key=lambda item: (-item[1], item[0]))
    return [_match(root, path, score, worth) for path, score in found[:limit]]


def _by_path(index: Index, scores: dict[int, float]) -> list[tuple[bytes, float]]:
    paths = dict(index.execute("SELECT id, path FROM files NOT INDEXED").fetchall()) if scores else {}
    return [
        (paths[number], float(f"{score:.{_FIGURES}g}")) for number, score in scores.items() if number in paths
    ]


def _choose(index: Index, table: str, text: str, files: int) -> dict[str, float]:
    """The most significant terms of a text with their weights (inverse document frequency)."""
    counted = Counter(terms(_cut(text)))
    worth: dict[str, float] = {}
    for term in list(counted)[:MOST_WEIGHED]:
        row = index.execute(f"SELECT doc FROM {table}_words WHERE term = ?", (term,)).fetchone()
        if row is not None:
            worth[term] = math.log(1 + max(0, files - row[0] + 0.5) / (row[0] + 0.5))
    if len(worth) <= MOST_TERMS:
        return worth
    best = sorted(worth, key=lambda term: (-worth[term] * (1 + math.log(counted[term])), term))
    return {term: worth[term] for term in best[:MOST_TERMS]}


def _cut(text: str) -> str:
    """The end of a long text, starting at a word."""
    if len(text) <= MOST_TEXT:
        return text
    kept = text[-MOST_TEXT:]
    first = re.match(rf"\w{{0,{LONGEST_WORD}}}", kept)
    return kept[first.end() :] if first else kept


def _ranks(index: Index, table: str, chosen: list[str]) -> list[tuple[int, float]]:
    """Row and BM25 score of each file with one of the terms; lower is better."""
    query = " OR ".join(f'"{term}"' for term in chosen)
    weights = ", ".join(map(str, WEIGHTS[table]))
    return index.execute(
        f"SELECT rowid, bm25({table}, {weights}) FROM {table} WHERE {table} MATCH ?", (query,)
    ).fetchall()


# --- the line to show -------------------------------------------------------------------------


def _match(root: str, path: bytes, score: float, worth: dict[str, float]) -> Match:
    line, snippet = _best_line(read_entry(root, path), worth)
    return Match(files.fsdecode(path), score, line, snippet)


def _best_line(data: bytes | None, worth: dict[str, float]) -> tuple[int | None, str | None]:
    """The first line with the terms that are worth most; (None, None) where no line has any."""
    if data is None or unfit(data) is not None:
        return None, None
    best, number, shown = 0.0, None, None
    for count, line in enumerate(decode(data).split("\n"), 1):
        value = sum(worth.get(term, 0.0) for term in set(terms(line))) if line else 0.0
        if value > best * 1.000001:
            best, number, shown = value, count, line
    return number, None if shown is None else _snippet(shown, worth)


def _snippet(line: str, worth: dict[str, float]) -> str:
    """A line without the blanks around it; of a long one the part about the first term."""
    line = line.strip()
    if len(line) <= LONGEST_SNIPPET:
        return line
    found = (match.start() for match in re.finditer(r"\w+", line) if any(t in worth for t in terms(match[0])))
    start = max(0, min(next(found, 0) - LONGEST_SNIPPET // 4, len(line) - LONGEST_SNIPPET + 2))
    cut = line[start : start + LONGEST_SNIPPET - 2].strip()
    return f"{'…' if start else ''}{cut}{'…' if start + LONGEST_SNIPPET - 2 < len(line) else ''}"


def as_map(match: Match) -> dict[str, Any]:
    """A match as plain data; what there is none of is left out."""
    return {name: value for name, value in match._asdict().items() if value is not None}
