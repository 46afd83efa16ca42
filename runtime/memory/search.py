"""Search in the index: selection of terms, scores of files, best lines.

A request is data: its words become terms like those of files, and a term consists of letters and digits, so
no text can change the query's syntax. Each source of words (the query, inputs, history) is searched
separately with SQLite's BM25; the score of a file is the weighted sum.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from ..host import files
from .ignore import read_entry
from .index import Index, decode, exclusion_reason
from .terms import MAX_WORD, terms

# Strategy → full-text table, and the weight of a term in each of its columns.
STRATEGIES = {"content": "contents", "metadata": "metadata"}
WEIGHTS = {"contents": (8.0, 1.0), "metadata": (2.0, 8.0, 1.0, 0.5)}
# Limits per source: number of distinct terms that are weighted, and number of terms that are searched.
MAX_WEIGHTED = 3_000
MAX_TERMS = 48
# Characters; only the end of a longer text is used, because the latest part is the most relevant.
MAX_TEXT = 256 << 10
MAX_SNIPPET = 200
# Significant digits of a score; files with a smaller difference rank as equal.
_SCORE_DIGITS = 6


class Source(NamedTuple):
    """Words to search for, and their weight relative to the query's weight."""

    text: str
    weight: float


class Match(NamedTuple):
    """A matching file. line, snippet: number (from 1) and text of its best line; None without one."""

    path: str
    score: float
    line: int | None
    snippet: str | None


def find(index: Index, root: str, sources: list[Source], strategy: str, limit: int) -> list[Match]:
    """The best `limit` files, best first, then by path. sources: the query comes first."""
    table = STRATEGIES[strategy]
    scores: defaultdict[int, float] = defaultdict(float)
    term_weights: dict[str, float] = {}
    with index.reading():
        file_count = index.execute("SELECT count(*) FROM files WHERE reason IS NULL").fetchone()[0]
        query_terms = 0
        for source in sources:
            selected = _select_terms(index, table, source.text, file_count)
            if not selected:
                continue
            # A source with many terms must not outweigh the query.
            query_terms = query_terms or len(selected)
            weight = source.weight * min(1.0, query_terms / len(selected))
            for row_id, rank in _ranks(index, table, list(selected)):
                scores[row_id] -= weight * rank
            for term, value in selected.items():
                term_weights[term] = term_weights.get(term, 0.0) + weight * value
        found = _by_path(index, scores)
    found.sort(key=lambda item: (-item[1], item[0]))
    return [_match(root, path, score, term_weights) for path, score in found[:limit]]


def _by_path(index: Index, scores: dict[int, float]) -> list[tuple[bytes, float]]:
    paths = dict(index.execute("SELECT id, path FROM files NOT INDEXED").fetchall()) if scores else {}
    return [
        (paths[row_id], float(f"{score:.{_SCORE_DIGITS}g}"))
        for row_id, score in scores.items()
        if row_id in paths
    ]


def _select_terms(index: Index, table: str, text: str, file_count: int) -> dict[str, float]:
    """The most significant terms of a text with their weights (inverse document frequency)."""
    counts = Counter(terms(_truncate(text)))
    weights: dict[str, float] = {}
    for term in list(counts)[:MAX_WEIGHTED]:
        row = index.execute(f"SELECT doc FROM {table}_words WHERE term = ?", (term,)).fetchone()
        if row is not None:
            weights[term] = math.log(1 + max(0, file_count - row[0] + 0.5) / (row[0] + 0.5))
    if len(weights) <= MAX_TERMS:
        return weights
    best = sorted(weights, key=lambda term: (-weights[term] * (1 + math.log(counts[term])), term))
    return {term: weights[term] for term in best[:MAX_TERMS]}


def _truncate(text: str) -> str:
    """The end of a long text, starting after its first, possibly partial, word."""
    if len(text) <= MAX_TEXT:
        return text
    end = text[-MAX_TEXT:]
    first_word = re.match(rf"\w{{0,{MAX_WORD}}}", end)
    return end[first_word.end() :] if first_word else end


def _ranks(index: Index, table: str, selected: list[str]) -> list[tuple[int, float]]:
    """Row id and BM25 score of each file with one of the terms; lower is better."""
    query = " OR ".join(f'"{term}"' for term in selected)
    weights = ", ".join(map(str, WEIGHTS[table]))
    return index.execute(
        f"SELECT rowid, bm25({table}, {weights}) FROM {table} WHERE {table} MATCH ?", (query,)
    ).fetchall()


# --- best line --------------------------------------------------------------------------------


def _match(root: str, path: bytes, score: float, weights: dict[str, float]) -> Match:
    line, snippet = _best_line(read_entry(root, path), weights)
    return Match(files.fsdecode(path), score, line, snippet)


def _best_line(data: bytes | None, weights: dict[str, float]) -> tuple[int | None, str | None]:
    """Number and snippet of the first line with the highest total weight; (None, None) without terms."""
    if data is None or exclusion_reason(data) is not None:
        return None, None
    best_weight, best_number, best_line = 0.0, None, None
    for number, line in enumerate(decode(data).split("\n"), 1):
        weight = sum(weights.get(term, 0.0) for term in set(terms(line))) if line else 0.0
        if weight > best_weight * 1.000001:
            best_weight, best_number, best_line = weight, number, line
    return best_number, None if best_line is None else _snippet(best_line, weights)


def _snippet(line: str, weights: dict[str, float]) -> str:
    """A line without surrounding blanks; for a long line, the part around the first term."""
    line = line.strip()
    if len(line) <= MAX_SNIPPET:
        return line
    words = re.finditer(r"\w+", line)
    positions = (match.start() for match in words if any(term in weights for term in terms(match[0])))
    start = max(0, min(next(positions, 0) - MAX_SNIPPET // 4, len(line) - MAX_SNIPPET + 2))
    excerpt = line[start : start + MAX_SNIPPET - 2].strip()
    return f"{'…' if start else ''}{excerpt}{'…' if start + MAX_SNIPPET - 2 < len(line) else ''}"


def as_map(match: Match) -> dict[str, Any]:
    """A match as plain data, without the fields that are None."""
    return {name: value for name, value in match._asdict().items() if value is not None}
