"""`llc graph`: time for a diagram, and its readability."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

from place import ROOT, Place
from report import Section, row
from sizes import Sizes

# States of a picture, and how long it may take.
_AIMS = {70: 0.1, 300: 2.0}


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="graphs",
        title="Pictures of machines with {}, {} and {} states".format(*sizes.graph_states),
        about=(
            "The SVG of `llc graph` of generated loops: most states lead to the next state, one in four "
            "also to any other state, and errors of all states lead to one state. Two routes that cross "
            "several times count as one crossing."
        ),
    )
    for states in sizes.graph_states:
        place.write_loop(f"wide{states}", _generated(states))
        timed = place.answer("graph_layouts.py", "time", f".loops/wide{states}.yaml", str(sizes.graph_rounds))
        rounds = [timed[name] for name in sorted(timed)]
        aim = _AIMS.get(states)
        found.add(row(f"{states} states", rounds, aim=aim, aim_is_absolute=aim is not None))
    galleries = {"golden loops": Path(ROOT, "tests", "golden")}
    little = os.environ.get("LLC_LITTLE_LOOPS")
    if little:
        words = [little, "-c", "import little_loops; print(little_loops.__path__[0])"]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        galleries["loops of little-loops"] = Path(said.strip(), "loops")
    else:
        found.notes.append("LLC_LITTLE_LOOPS names no Python: loops of little-loops were left out.")
    for name, folder in galleries.items():
        facts = place.answer("graph_layouts.py", "quality", str(folder))
        found.notes.append(
            "{loops:.0f} {name}: {crossings:.0f} crossings, at most {most:.0f} in one, not more than "
            "10 in {part:.0%}; {covered:.0f} labels on a state, {overlaps:.0f} states on another, the "
            "first state in the top row in {top:.0%}.".format(name=name, **facts)
        )
    return found


def _generated(states: int) -> str:
    """Return a generated loop with the given number of states and its terminal states; deterministic."""
    chance = random.Random(states)
    lines = [f"name: wide{states}", "initial: s0", "max_iterations: 9", "states:"]
    for number in range(states - 2):
        after = f"s{number + 1}" if number < states - 3 else "done"
        other = chance.randrange(states - 2) if number % 4 == 3 else None
        routes = f"on_success: {after}, on_failure: s{other}" if other is not None else f"next: {after}"
        lines.append(f"  s{number}: {{action: 'make part-{number}', {routes}, on_error: failed}}")
    return "\n".join([*lines, "  done: {terminal: true}", "  failed: {terminal: true, status: failure}\n"])
