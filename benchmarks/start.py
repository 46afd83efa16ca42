"""How long a command takes that does little."""

from __future__ import annotations

import shutil

import loops
from measure import take_turns
from place import Place
from report import Section, row
from sizes import Sizes


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="start",
        title="Whole commands, cold",
        about=(
            "Each figure is a new process of a regular install in its own environment; the peer is the same "
            "interpreter doing nothing. The loop has three states whose action is `true`. Without a cache: "
            "`.loops/.cache` is removed before each run, so the loop is read, checked, compiled and kept. "
            "Help is made by the command-line library, which no other command here waits for."
        ),
    )
    place.write_loop("three", loops.THREE_STEPS)
    path = place.inside(".loops", "three.yaml")

    def uncached() -> float:
        shutil.rmtree(place.inside(".loops", ".cache"), ignore_errors=True)
        return place.seconds([*place.llc, "run", "three"])

    turns = take_turns(
        {
            "pass": lambda: place.seconds([place.python, "-c", "pass"]),
            "uncached": uncached,
            "cached": lambda: place.seconds([*place.llc, "run", "three"]),
            "help": lambda: place.seconds([*place.llc, "--help"]),
            "help of run": lambda: place.seconds([*place.llc, "run", "--help"]),
            "status": lambda: place.seconds([*place.llc, "status"]),
            "validate": lambda: place.seconds([*place.llc, "validate", path]),
            "compile": lambda: place.seconds([*place.llc, "compile", path, "-o", place.inside("three.llb")]),
            "image": lambda: place.seconds([*place.llc, "run", place.inside("three.llb")]),
        },
        sizes.start_rounds,
    )
    peer = ("`python -c pass`", turns["pass"])
    found.add(
        row("`llc run` of three steps, first run (no cache)", turns["uncached"], peer=peer, aim=5),
        row("`llc run` of three steps, from the cache", turns["cached"], peer=peer, aim=5),
        row("`llc run` of three steps, an image (verified first)", turns["image"], peer=peer),
        row("`llc status`", turns["status"], peer=peer, aim=5),
        row("`llc --help`", turns["help"], peer=peer, aim=8),
        row("`llc run --help`", turns["help of run"], peer=peer),
        row("`llc validate` of the same loop", turns["validate"], peer=peer),
        row("`llc compile -o` of the same loop", turns["compile"], peer=peer),
    )
    return found
