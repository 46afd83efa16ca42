"""Measures llc and writes RESULTS.md: `python benchmarks/run.py`; see README.md.

The exit code is 0 even if a target is missed: a busy machine is not a defect.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from place import ROOT, Place, install

if TYPE_CHECKING:
    from report import Section
    from sizes import Sizes

# Sections by name: module and function. Imported after the installation of llc.
SECTIONS = {
    "steps": ("steps", "section"),
    "start": ("start", "section"),
    "subcommands": ("subcommands", "section"),
    "scale": ("scale", "section"),
    "compiling": ("throughput", "section"),
    "iterations": ("memory", "iterations"),
    "output": ("memory", "output"),
    "storage": ("storage", "section"),
    "reading": ("reading", "section"),
    "resuming": ("resuming", "section"),
    "context": ("context", "section"),
    "graphs": ("graphs", "section"),
    "reports": ("reports", "section"),
    "pages": ("pages", "section"),
    "programs": ("programs", "section"),
    "general": ("general", "section"),
    "building": ("building", "section"),
    "many": ("many", "section"),
}
# Comparisons with peers, which are installed first; only with `--peers` or by name.
PEERS = {
    "peers-steps": ("peers", "steps"),
    "peers-growing": ("peers", "growing"),
    "peers-events": ("peers", "events"),
    "peers-programs": ("peers", "computing"),
    "peers-start": ("peers", "starts"),
    "peers-many": ("peers", "many_asleep"),
    "peers-histories": ("histories", "section"),
}
# Sections with their own database server; only by name.
SERVERS = {"cluster": ("cluster", "section")}
# The same commands of two checkouts: only with `--against`.
AGAINST = "against"


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="llc-bench-", dir=given.folder) as folder:
        if given.here:
            return _measure(given, Place(folder, sys.executable))
        _say("installing llc in its own environment")
        words = [install(folder), os.path.abspath(__file__), "--here", *sys.argv[1:]]
        return subprocess.run(words).returncode


def _measure(given: argparse.Namespace, place: Place) -> int:
    from dataclasses import replace

    from report import as_json, as_markdown, as_table
    from sizes import FULL, TINY

    sizes = replace(TINY if given.tiny else FULL, installs_peers=not given.no_install)
    found: list[Section] = []
    for name in given.names:
        if name == AGAINST:
            measured = _against(given, place)
        else:
            module, function = {**SECTIONS, **PEERS, **SERVERS}[name]
            measured = getattr(import_module(module), function)
        _say(f"measuring {name}")
        section = measured(place.fresh(name), sizes)
        found.append(section)
        for note in section.notes:
            _say(note)
        if not given.json:
            print(f"## {section.title}\n\n{as_table(section.rows)}\n", flush=True)
        if given.output:  # after each section, so that an interrupted measurement keeps its results
            with open(given.output, "w", encoding="utf-8") as file:
                file.write(as_markdown(found))
    if given.json:
        print(json.dumps(as_json(found), indent=2, ensure_ascii=False))
    missed = [row.what for section in found for row in section.rows if row.is_reached is False]
    _say(f"missed: {', '.join(missed)}" if missed else "every target is reached")
    return 0


def _against(given: argparse.Namespace, place: Place) -> Callable[[Place, Sizes], Section]:
    """The section that compares this installation with another one."""
    from against import section

    os.mkdir(place.inside("other"))
    if os.path.isdir(given.against):
        _say(f"installing the llc of {given.against}")
        python = install(place.inside("other"), given.against)
    else:
        python = given.against
    other = Place(place.inside("other"), python).fresh("against")
    return lambda own, sizes: section(own, other, sizes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure llc and compare the figures with their targets.")
    parser.add_argument(
        "only",
        nargs="*",
        metavar="SECTION",
        help=f"any of {', '.join([*SECTIONS, 'peers', *PEERS, *SERVERS])}; default all up to `many`",
    )
    parser.add_argument("--peers", action="store_true", help="also measure the peers")
    parser.add_argument(
        "--no-install", action="store_true", help="use only installed peers; others are absent"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to check that the benchmarks work")
    parser.add_argument(
        "--here", action="store_true", help="measure the llc of this interpreter instead of installing one"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--output", metavar="FILE", help="report file (default RESULTS.md if all sections are measured)"
    )
    parser.add_argument(
        "--folder", metavar="DIR", help="folder of the journals (default: the temporary folder)"
    )
    parser.add_argument(
        "--against",
        metavar="CHECKOUT",
        help="only compare with the llc of another checkout or interpreter",
    )
    given = parser.parse_args()
    known = [*SECTIONS, "peers", *PEERS, *SERVERS]
    unknown = [name for name in given.only if name not in known]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(known)}")
    names = [*(given.only or SECTIONS), *(["peers"] if given.peers else [])]
    given.names = list(
        dict.fromkeys(section for name in names for section in (PEERS if name == "peers" else [name]))
    )
    if given.against:
        given.names = [AGAINST, *(given.names if given.only else [])]
    if given.output is None and not (given.only or given.tiny or given.against):
        given.output = os.path.join(ROOT, "benchmarks", "RESULTS.md")
    return given


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
