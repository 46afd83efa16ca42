"""Stored data: images, journals and snapshots; time to load an image."""

from __future__ import annotations

import gc
import json
from time import perf_counter

import loops
import rig
from measure import Contestant, take_turns
from place import Place
from report import BYTES, Section, row
from sizes import Sizes

from llc.runtime.project.verify import verify_image
from llc.vm.code.image import Image
from llc.vm.tiered import Machine

_SMALL = 10
_CAPTURED = 1_000_000


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="storage",
        title="Images, journals, snapshots",
        about=(
            "The peer of an image is its source. Journal of a step: the difference between the journals "
            "of many and of few `true` steps, divided by the difference in steps. With 1 MB captured, the"
            " output of a first action stays captured all the time. A snapshot is the JSON of "
            "`Machine.snapshot()` at an effect. Loading is `Image.from_bytes`; an image from elsewhere is"
            " also verified."
        ),
    )
    many = sizes.states
    texts = {
        "three steps": loops.THREE_STEPS,
        f"{many:,} states": loops.machine(many, many),
    }
    for name, text in texts.items():
        _image(found, name, text, sizes)
    _journal(found, place, sizes)
    _snapshots(found, sizes)
    return found


def _image(found: Section, name: str, text: str, sizes: Sizes) -> None:
    image = rig.image_of(text)
    data = image.to_bytes()
    bare = Image.from_bytes(data)
    bare.sources = ()
    source = ("its YAML", [float(len(text.encode()))])
    found.add(
        row(f"image of {name}", [float(len(data))], BYTES, peer=source),
        row(f"image of {name}, without sources", [float(len(bare.to_bytes()))], BYTES, peer=source),
    )
    repeats = max(1, 100_000 // len(data))

    def timed(verified: bool) -> Contestant:
        def run() -> float:
            started_at = perf_counter()
            for _ in range(repeats):
                loaded = Image.from_bytes(data)
                if verified:
                    verify_image(loaded)
            return (perf_counter() - started_at) / repeats

        return run

    gc.disable()  # as in `llc`: `runtime/cli/entry.py`
    try:
        turns = take_turns({"load": timed(False), "verified": timed(True)}, sizes.compile_rounds)
    finally:
        gc.enable()
    found.add(
        row(f"load the image of {name}", turns["load"]),
        row(f"load and verify the image of {name}", turns["verified"]),
    )


def _journal(found: Section, place: Place, sizes: Sizes) -> None:
    few, many = 2, 2 + sizes.run_steps
    writer = f"yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c {_CAPTURED}"

    def size(text: str) -> float:
        return float(rig.drive(rig.image_of(text), place.folder).journal_bytes)

    plain = (size(loops.repeated("true", many)) - size(loops.repeated("true", few))) / sizes.run_steps
    holding = (size(loops.captured(writer, many)) - size(loops.captured(writer, few))) / sizes.run_steps
    found.add(
        row("journal of a `true` step", [plain], BYTES),
        row(
            "journal of a `true` step, 1 MB captured",
            [holding],
            BYTES,
            peer=("nothing captured", [plain]),
            aim=1024,
            aim_is_absolute=True,
        ),
    )


def _snapshots(found: Section, sizes: Sizes) -> None:
    def size(text: str, steps: int) -> float:
        machine = Machine(rig.image_of(text))
        rig.step(machine, steps)
        return float(len(json.dumps(machine.snapshot(), separators=(",", ":"))))

    three = size(loops.THREE_STEPS, 2)
    few, many = sizes.iterations
    found.add(
        row("snapshot in a three-step loop", [three], BYTES),
        row(
            f"snapshot after {many:,} `true` steps",
            [size(loops.repeated("true", many), many)],
            BYTES,
            peer=(f"after {few:,}", [size(loops.repeated("true", many), few)]),
        ),
        row(
            f"snapshot after a lap of {sizes.states:,} states",
            [size(loops.machine(sizes.states, sizes.states), sizes.states)],
            BYTES,
            peer=(f"after a lap of {_SMALL}", [size(loops.machine(_SMALL, _SMALL), _SMALL)]),
        ),
    )
