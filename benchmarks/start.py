"""Time of commands with little work."""

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
            "Each figure is a new process of a regular installation in its own environment; the peer is "
            "the same interpreter doing nothing. The loop has three states whose action is `true`. "
            "Without a cache: `.loops/.cache` is removed before each run, so the loop is read, checked, "
            "compiled and stored, or the image is verified. No command here imports the command-line "
            "library. Completion is the request that a shell sends when Tab is pressed."
        ),
    )
    place.write_loop("three", loops.THREE_STEPS)
    path = place.inside(".loops", "three.yaml")

    images = place.fresh("images")
    image = images.inside("three.llb")
    place.seconds([*place.llc, "compile", path, "-o", image])

    def uncached(where: Place, name: str) -> float:
        shutil.rmtree(where.inside(".loops", ".cache"), ignore_errors=True)
        return where.seconds([*where.llc, "run", name])

    def completing(line: str) -> float:
        asked = {"_LLC_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
        return place.seconds(place.llc, more=asked)

    turns = take_turns(
        {
            "pass": lambda: place.seconds([place.python, "-c", "pass"]),
            "uncached": lambda: uncached(place, "three"),
            "cached": lambda: place.seconds([*place.llc, "run", "three"]),
            "help": lambda: place.seconds([*place.llc, "--help"]),
            "help of run": lambda: place.seconds([*place.llc, "run", "--help"]),
            "a verb": lambda: completing("llc r"),
            "an option": lambda: completing("llc run --max"),
            "a loop": lambda: completing("llc run t"),
            "status": lambda: place.seconds([*place.llc, "status"]),
            "validate": lambda: place.seconds([*place.llc, "validate", path]),
            "compile": lambda: place.seconds([*place.llc, "compile", path, "-o", place.inside("three.llb")]),
            "new image": lambda: uncached(images, image),
            "image": lambda: images.seconds([*images.llc, "run", image]),
        },
        sizes.start_rounds,
    )
    peer = ("`python -c pass`", turns["pass"])
    found.add(
        row("`llc run` of three steps, first run (no cache)", turns["uncached"], peer=peer, aim=5),
        row("`llc run` of three steps, from the cache", turns["cached"], peer=peer, aim=5),
        row("`llc run` of three steps, an image (verified first)", turns["new image"], peer=peer),
        row("`llc run` of three steps, an image that was run before", turns["image"], peer=peer),
        row("`llc status`", turns["status"], peer=peer, aim=5),
        row("`llc --help`", turns["help"], peer=peer, aim=8),
        row("`llc run --help`", turns["help of run"], peer=peer),
        row("completion of a subcommand: `llc r`", turns["a verb"], peer=peer),
        row("completion of an option: `llc run --max`", turns["an option"], peer=peer),
        row("completion of a loop's name: `llc run t`", turns["a loop"], peer=peer),
        row("`llc validate` of the same loop", turns["validate"], peer=peer),
        row("`llc compile -o` of the same loop", turns["compile"], peer=peer),
    )
    return found
