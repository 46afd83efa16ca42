"""Table of library functions: implementation, number of operands, meaning and examples of each name.

`checks` and lowering read this table, `spec/library.md` is printed from it, and a test runs every example.
A name that a program binds itself hides the library's.

The names themselves are listed in `stdlib/library.txt`. Three kinds of entry:
- `Primitive`: applied in place (`ir.primitives`); as a value it is a function that applies it.
- `Defined`: defined under its own name in `stdlib/<file>`, in the language itself, because it calls
  functions or performs effects. Two forms exist in those files only: `(effect:perform kind (name
  expression)…)` gives an effect's result map, `(effect:note kind (name expression)…)` emits a note.
- `Spread`: `apply`, a call whose last argument is a list of further arguments.
"""

from __future__ import annotations

import re

import attrs

from ...ir.records import frozen
from ...stdlib import read_text


@frozen
class Primitive:
    """Call `op` with `least`..`most` operands (None: any number), evaluated left to right."""

    op: str
    least: int
    most: int | None


@frozen
class Defined:
    """Call the function of this name in `stdlib/<file>` with `least`..`most` arguments."""

    file: str
    least: int
    most: int | None


@frozen
class Spread:
    """Call the first argument with those that follow, the last of which is a list of arguments."""

    least: int
    most: int | None


Entry = Primitive | Defined | Spread


@frozen
class Row:
    """A library name. `examples` are expressions with their values, as the language writes them."""

    name: str
    operands: str
    entry: Entry
    doc: str
    section: str
    examples: tuple[tuple[str, str], ...]


def _rows(table: str) -> list[Row]:
    rows: list[Row] = []
    section = ""
    for line in table.splitlines():
        if line.startswith("#"):
            section = line[1:].strip()
        elif line and line[0] not in "; ":
            head, _, what = line.rpartition(" : ")
            name, _, operands = head.partition(" ")
            rows.append(Row(name, operands, _entry(what, operands), "", section, ()))
        elif line.startswith(" "):
            left, arrow, right = line.strip().partition(" => ")
            row = rows.pop()
            if arrow:
                row = attrs.evolve(row, examples=(*row.examples, (left, right)))
            else:
                row = attrs.evolve(row, doc=f"{row.doc} {left}".strip())
            rows.append(row)
    return rows


def _entry(what: str, operands: str) -> Entry:
    words = operands.split()
    required = [word for word in words if not re.search("[?…]$", word)]
    most = None if "…" in operands else len(words)
    if what == "spread":
        return Spread(len(required), most)
    if what.endswith(".sexp"):
        return Defined(what, len(required), most)
    return Primitive(what, len(required), most)


ROWS = tuple(_rows(read_text("library.txt")))
# Operations that have names in `stdlib/` only.
OPERATIONS: dict[str, Entry] = {"list:array": Primitive("array", 1, 1)}
# These, and the functions behind calls of tools and tasks. Programs cannot use their names.
PRIVATE: dict[str, Entry] = OPERATIONS | {
    f"calls:{name}": Defined("calls.sexp", count, count)
    for name, count in (
        ("argument", 3),
        ("arguments", 3),
        ("ask", 4),
        ("choice?", 1),
        ("choices", 1),
        ("context", 2),
        ("converted", 3),
        ("fail", 2),
        ("files", 2),
        ("fits?", 2),
        ("found", 2),
        ("history_config", 2),
        ("known-settings", 4),
        ("pair?", 1),
        ("path?", 1),
        ("settings", 4),
        ("shell", 2),
        ("shell-problem", 1),
        ("shown", 1),
        ("task", 2),
        ("task-result", 2),
        ("tool", 2),
        ("type-words", 1),
        ("whole", 1),
    )
}
LIBRARY: dict[str, Entry] = {row.name: row.entry for row in ROWS} | PRIVATE

if len(LIBRARY) != len(ROWS) + len(PRIVATE):
    raise AssertionError("a name occurs twice in the library")
