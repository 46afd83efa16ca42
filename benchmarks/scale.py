"""A machine of 10,000 states: compilation and steps."""

from __future__ import annotations

import resource
from collections.abc import Callable
from time import perf_counter

import loops
import rig
from measure import Contestant, take_turns
from place import Place
from report import Section, row
from sizes import Sizes

from llc.vm.code.image import Image
from llc.vm.tiered import Machine

_SMALL = 10


def section(place: Place, sizes: Sizes) -> Section:
    many = sizes.states
    found = Section(
        name="scale",
        title=f"A machine of {many:,} states",
        about=(
            "Each state has an action with a variable, is evaluated, routed in two ways and counted; "
            "every tenth state captures its output. `llc compile -o x.llb` is the complete "
            "command, by elapsed time and by processor time; its phases are processor time in "
            "a separate process. A "
            "step is `Machine.resume` with the result of an action, up to the next action, in this "
            "process; no action is performed. In ten states: control stays in ten of them; the limit is"
            " a tenth more than the small machine. Through all states: each state in turn, so "
            "the work is spread over a thousand times the memory, with cache misses; the "
            "limit is a quarter more. "
            "First entry: the image was just loaded, so the code of each state is decoded. All of these"
            " run in the interpreter, because a function of more than 3,000 states is not translated; the"
            " speed of the translated small machine is shown for comparison."
        ),
    )
    _compile(found, place, sizes)
    _steps(found, sizes)
    return found


def _compile(found: Section, place: Place, sizes: Sizes) -> None:
    large = place.write_loop("large", loops.machine(sizes.states, sizes.states))
    small = place.write_loop("small", loops.machine(_SMALL, _SMALL))
    target = place.inside("x.llb")
    on_cpu: dict[str, list[float]] = {large: [], small: []}

    def compiled(path: str) -> Contestant:
        def run() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = place.seconds([*place.llc, "compile", path, "-o", target])
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            on_cpu[path].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            return seconds

        return run

    turns = take_turns({"large": compiled(large), "small": compiled(small)}, sizes.compile_rounds)
    peer = f"the same of {_SMALL} states"
    found.add(
        row(
            f"`llc compile` of {sizes.states:,} states",
            turns["large"],
            peer=(peer, turns["small"]),
            aim=2,
            aim_is_absolute=True,
        ),
        row(
            f"`llc compile` of {sizes.states:,} states, processor time",
            on_cpu[large][-sizes.compile_rounds :],
            peer=(peer, on_cpu[small][-sizes.compile_rounds :]),
        ),
    )
    phases = [place.answer("compile_phases.py", large) for _ in range(sizes.compile_rounds)]
    found.add(*(row(f"phase: {name}", [taken[name] for taken in phases]) for name in phases[0]))


def _steps(found: Section, sizes: Sizes) -> None:
    many = sizes.states
    small = rig.image_of(loops.machine(_SMALL, _SMALL))
    large = rig.image_of(loops.machine(many, many))
    corner = rig.image_of(loops.machine(many, _SMALL))

    def on(machine: Machine) -> Contestant:
        return lambda: _timed(lambda: rig.step(machine, many)) / many

    tier = "interpreter"
    # Machines of an image share what one has decoded.
    kept, kept_small = large.to_bytes(), small.to_bytes()

    def first() -> float:
        machine = Machine(Image.from_bytes(kept), tier=tier)
        return _timed(lambda: rig.step(machine, many)) / many

    def first_small() -> float:
        machines = [Machine(Image.from_bytes(kept_small), tier=tier) for _ in range(many // _SMALL)]

        def all_of_them() -> None:
            for machine in machines:
                rig.step(machine, _SMALL)

        return _timed(all_of_them) / many

    turns = take_turns(
        {
            "small": on(Machine(small, tier=tier)),
            "small, translated": on(Machine(small)),
            "corner": on(Machine(corner, tier=tier)),
            "large": on(Machine(large, tier=tier)),
            "first": first,
            "first small": first_small,
        },
        sizes.machine_rounds,
    )
    peer = (f"a step in a {_SMALL}-state machine", turns["small"])
    again = (f"first entry in a {_SMALL}-state machine", turns["first small"])
    found.add(
        row(f"a step in a {many:,}-state machine, in ten states", turns["corner"], peer=peer, aim=1.1),
        row(f"a step in a {many:,}-state machine, through all states", turns["large"], peer=peer, aim=1.25),
        row(f"a step in a {many:,}-state machine, first entry", turns["first"], peer=again),
        row(f"a step in a {_SMALL}-state machine, translated", turns["small, translated"], peer=peer),
    )


def _timed(action: Callable[[], object]) -> float:
    started_at = perf_counter()
    action()
    return perf_counter() - started_at
