"""Simulate many histories: `cd tests && python -m simulation --seconds 600`, `… --seed 133 --faults 0,2`.

With `--database` the runs are in a database, on a real server that is started for them.

Prints the numbers of histories and faults. For the first failures: the seed, the faults without which it does
not fail, the trace, and the command that repeats it. The exit code is then 1.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .simulation import Simulation, Violation, installed, simulate

# Simulates a history, given a seed and the numbers of its faults; None for all.
Simulate = Callable[[int, "Sequence[int] | None"], Simulation]

# Number of failures that are shown completely.
MAX_SHOWN = 3


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
    enabled_faults = (
        None if options.faults is None else [int(number) for number in options.faults.split(",") if number]
    )
    with installed(), _simulation_mode(options.database) as simulate:
        if options.seed is not None:
            simulation = simulate(options.seed, enabled_faults)
            print("\n".join(simulation.trace))
            print(_result_text(simulation))
            return int(simulation.error is not None)
        return _simulate_many(simulate, options)


@contextmanager
def _simulation_mode(in_database: bool) -> Iterator[Simulate]:
    """The function that simulates a history of runs in files or in a database."""
    if not in_database:
        yield simulate
        return
    from .cluster import clustered

    with clustered() as simulate_cluster:
        yield simulate_cluster


def _simulate_many(simulate: Simulate, options: Any) -> int:
    first, count, seconds = options.first, options.count, options.seconds
    started_at = time.monotonic()
    seed, faults = first, 0
    failed: list[int] = []
    while time.monotonic() - started_at < seconds if count is None else seed < first + count:
        simulation = simulate(seed)
        faults += simulation.injected
        if simulation.error is not None:
            failed.append(seed)
            if options.one:
                print(_result_text(simulation))
                return 1
            if len(failed) <= MAX_SHOWN:
                _show_failure(simulate, simulation, " --database" if options.database else "")
        seed += 1
    took = time.monotonic() - started_at
    done = seed - first
    pace = f"{took:.1f} s, {60 * done / took:.0f} a minute"
    print(f"{done} histories with {faults} faults in {pace}; {len(failed)} failed")
    if failed:
        print(f"seeds: {', '.join(map(str, failed[:50]))}")
    return int(bool(failed))


def _show_failure(simulate: Simulate, simulation: Simulation, flag: str) -> None:
    needed = needed_faults(simulation, simulate)
    shrunk = simulate(simulation.seed, needed)
    print("\n".join(shrunk.trace[-60:]))
    print(_result_text(shrunk))
    print("faults: " + ", ".join(str(shrunk.plan[number]) for number in needed))
    chosen = ",".join(map(str, needed))
    print(f"again: cd tests && python -m simulation{flag} --seed {simulation.seed} --faults '{chosen}'\n")


def needed_faults(simulation: Simulation, simulate: Simulate = simulate) -> Sequence[int]:
    """The faults of a failed history without which it does not fail."""
    needed = list(range(len(simulation.plan)))
    for number in list(needed):
        remaining = [other for other in needed if other != number]
        if simulate(simulation.seed, remaining).error is not None:
            needed = remaining
    return needed


def _result_text(simulation: Simulation) -> str:
    error = simulation.error
    if error is None:
        return f"seed {simulation.seed}: every promise held"
    if isinstance(error, Violation):
        return f"seed {simulation.seed}: {error}"
    return f"seed {simulation.seed}: {''.join(traceback.format_exception(error, limit=-8))}"


if __name__ == "__main__":
    raise SystemExit(main())
