"""A program that dies half-way, and that another process resumes from what it has kept."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter

from serving import bytes_in, serve

_DEAD = 9


def die() -> None:
    """As if the process were killed here."""
    os._exit(_DEAD)


def measure(steps: int) -> dict[str, float]:
    """Bytes that are kept of a number of steps, and seconds of the whole process that does one more."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        words = [os.path.abspath(os.path.join(folder, "kept.sqlite")), str(steps)]
        command = [sys.executable, sys.argv[0]]
        died = subprocess.run([*command, "begin", *words], capture_output=True, text=True)
        kept = bytes_in(folder)
        started_at = perf_counter()
        ended = subprocess.run([*command, "resume", *words], capture_output=True, text=True)
        seconds = perf_counter() - started_at
    if died.returncode != _DEAD or ended.returncode or ended.stdout.split()[-1:] != [str(steps + 1)]:
        raise RuntimeError(f"not resumed: {died.stderr[-300:]} {ended.stderr[-300:]}")
    return {"seconds": seconds, "bytes": kept}


def main(begin: Callable[[str, int], None], resume: Callable[[str, int], int]) -> None:
    """begin(path, steps): take the steps and `die`. resume(path, steps): how many there are at the end."""
    if len(sys.argv) == 1:
        serve(measure, steps=3)
    elif sys.argv[1] == "begin":
        begin(sys.argv[2], int(sys.argv[3]))
    else:
        print(resume(sys.argv[2], int(sys.argv[3])), flush=True)
