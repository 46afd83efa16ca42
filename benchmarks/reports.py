"""`llc report`: its time, the size of the page, and the speed of the page in a browser."""

from __future__ import annotations

import json
import os
import sys
import zlib
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import take_turns
from place import ROOT, Place
from report import BYTES, Section, row
from sizes import Sizes

_LOOP = """
name: long
initial: check
max_iterations: 1000000
states:
  check: {action: "mypy src/", capture: found, on_success: done, on_failure: fix}
  fix: {action: "repair", next: check}
  done: {terminal: true}
"""
_KIB = 1024
_SCRUB = """(async () => {
  const from = performance.now();
  for (let move = 0; move < %d; move += 1) {
    const row = Math.floor((report.rows.length - 1) * ((move * 37) %% 100) / 100);
    report.go(row, true);
    await new Promise((done) => {
      const is_there = () => document.documentElement.dataset.shown === String(row);
      const look = () => is_there() ? done() : setTimeout(look, 0);
      look();
    });
  }
  return (performance.now() - from) / %d / 1000;
})()"""


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="reports",
        title="Reports of runs with {:,} and {:,} effects".format(*sizes.report_effects),
        about=(
            "`llc report` of a scripted run of two states. The page itself is the size of the file "
            "without the compressed journal. In Chromium, from disk: the time from opening the address to"
            " the first step, and from one position to another, arbitrary one."
        ),
    )
    pages = [_measure(found, place.fresh(str(n)), n, sizes.report_rounds) for n in sizes.report_effects]
    _in_browser(found, pages, sizes)
    return found


def _measure(found: Section, place: Place, effects: int, rounds: int) -> Path:
    """Measure a report; return its page."""
    place.write_loop("long", _LOOP)
    results = [
        {"exit_code": 1, "output": f"src/a.py:{n}: error: name x{n * 7 % 1000} is not defined\n"}
        for n in range(effects // 2 - 1)
    ]
    rules = [
        {"state": "check", "results": [*results, {"exit_code": 0}]},
        {"state": "fix", "output": "Fixed.\n"},
    ]
    with open(place.inside("world.yaml"), "w") as file:
        json.dump({"rules": rules}, file)
    place.seconds([*place.llc, "run", "long", "--script", "world.yaml", "--quiet"])
    words = [*place.llc, "report", "long", "-o", "page.html"]
    turns = take_turns({"report": lambda: place.seconds(words)}, rounds)
    found.add(row(f"`llc report`, {effects:,} effects", turns["report"]))
    page = place.inside("page.html")
    size = os.path.getsize(page)
    (journal,) = Path(place.folder).rglob("*.events.jsonl")
    compressed = len(zlib.compress(journal.read_bytes(), 9))
    found.add(row(f"its page, {effects:,} effects", [float(size)], BYTES))
    less = [float(size - compressed)]
    found.add(row("without the compressed journal", less, BYTES, aim=150 * _KIB, aim_is_absolute=True))
    return Path(page)


def _in_browser(found: Section, pages: list[Path], sizes: Sizes) -> None:
    sys.path.append(os.path.join(ROOT, "tests"))
    from browser import Browser, browser_program

    if browser_program() is None:
        found.notes.append("no browser is installed: the page was not opened")
        return
    browser = Browser()
    try:
        browser.resize(1280)
        for page, effects in zip(pages, sizes.report_effects, strict=True):
            _open(found, browser, page, effects, sizes)
    finally:
        browser.close()


def _open(found: Section, browser: Any, page: Path, effects: int, sizes: Sizes) -> None:
    moves = sizes.report_moves

    def load() -> float:
        started_at = perf_counter()
        browser.open(page)
        return perf_counter() - started_at

    def scrub() -> float:
        return float(browser.evaluate(_SCRUB % (moves, moves)))

    turns = take_turns({"load": load, "scrub": scrub}, sizes.report_rounds)
    found.add(row(f"opening it, {effects:,} effects", turns["load"], aim=1.0, aim_is_absolute=True))
    found.add(row(f"showing another position, {effects:,} effects", turns["scrub"]))
