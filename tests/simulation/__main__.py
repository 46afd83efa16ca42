"""Simulate many histories: `cd tests && python -m simulation --seconds 600`, `… --seed 133 --faults 0,2`.

With `--database` the runs are in a database: a real server, which is started for it.

Prints how many histories and faults there were. For the first ones that break a promise: the seed, the faults
without which it does not happen, the trace, and the command that repeats it. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .simulation import Simulation, Violation, installed, simulate

# Makes a history of a seed and the numbers of its faults, None for all.
Simulate = Callable[[int, "Sequence[int] | None"], Simulation]

# Failures that are shown in full.
SHOWN = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m simulation", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--seed", type=int, help="one seed, with its trace")
    parser.add_argument(
        "--faults", help="numbers of the faults of the plan that happen, such as 0,2; '' for none"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--count", type=int, help="the number of seeds")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for how long, without --count (default: 10)"
    )
    parser.add_argument("--one", action="store_true", help="end at the first failure")
    parser.add_argument("--database", action="store_true", help="runs in a database, driven by workers")
    options = parser.parse_args()
    kept = None if options.faults is None else [int(number) for number in options.faults.split(",") if number]
    with installed(), _chosen(options.database) as simulate:
        if options.seed is not None:
            simulation = simulate(options.seed, kept)
            print("\n".join(simulation.trace))
            print(_text(simulation))
            return int(simulation.error is not None)
        return _many(simulate, options)


@contextmanager
def _chosen(in_database: bool) -> Iterator[Simulate]:
    """How histories are made: of runs in files, or in a database."""
    if not in_database:
        yield simulate
        return
    from .cluster import clustered

    with clustered() as simulate_cluster:
        yield simulate_cluster


def _many(simulate: Simulate, options: Any) -> int:
    first, count, seconds = options.first, options.count, options.seconds
    begun = time.monotonic()
    seed, faults = first, 0
    failed: list[int] = []
    while time.monotonic() - begun < seconds if count is None else seed < first + count:
        simulation = simulate(seed)
        faults += simulation.injected
        if simulation.error is not None:
            failed.append(seed)
            if options.one:
                print(_text(simulation))
                return 1
            if len(failed) <= SHOWN:
                _show(simulate, simulation, " --database" if options.database else "")
        seed += 1
    took = time.monotonic() - begun
    done = seed - first
    pace = f"{took:.1f} s, {60 * done / took:.0f} a minute"
    print(f"{done} histories with {faults} faults in {pace}; {len(failed)} failed")
    if failed:
        print(f"seeds: {', '.join(map(str, failed[:50]))}")
    return int(bool(failed))


def _show(simulate: Simulate, simulation: Simulation, flag: str) -> None:
    needed = smallest(simulation, simulate)
    small = simulate(simulation.seed, needed)
    print("\n".join(small.trace[-60:]))
    print(_text(small))
    print("faults: " + ", ".join(str(small.plan[number]) for number in needed))
    chosen = ",".join(map(str, needed))
    print(f"again: cd tests && python -m simulation{flag} --seed {simulation.seed} --faults '{chosen}'\n")


def smallest(simulation: Simulation, simulate: Simulate = simulate) -> Sequence[int]:
    """The faults of a failed history without which it does not fail."""
    needed = list(range(len(simulation.plan)))
    for number in list(needed):
        fewer = [other for other in needed if other != number]
        if simulate(simulation.seed, fewer).error is not None:
            needed = fewer
    return needed


def _text(simulation: Simulation) -> str:
    error = simulation.error
    if error is None:
        return f"seed {simulation.seed}: every promise held"
    if isinstance(error, Violation):
        return f"seed {simulation.seed}: {error}"
    return f"seed {simulation.seed}: {''.join(traceback.format_exception(error, limit=-8))}"


if __name__ == "__main__":
    raise SystemExit(main())
