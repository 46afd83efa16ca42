"""Run llc in this process and write its memory peak: `python peak.py FILE WORDS…` runs `llc WORDS…`.

FILE receives the exit code and the peak of the resident memory in bytes, as JSON. The process reads its
own peak, because the peak that a parent gets for a child includes the parent's memory if the child was
started by vfork.
"""

from __future__ import annotations

import json
import resource
import sys


def peak_bytes() -> int:
    """Return the peak of the resident memory since the start of this program, in bytes."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    file, *words = sys.argv[1:]
    sys.argv = ["llc", *words]
    from llc.runtime.cli.entry import main as llc

    exit_code = llc()
    with open(file, "w") as out:
        json.dump({"exit_code": exit_code, "peak": peak_bytes()}, out)


if __name__ == "__main__":
    main()
