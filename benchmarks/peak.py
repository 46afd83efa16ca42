"""Runs llc in this process and says how much memory it took at most.

`python peak.py FILE WORDS…` is `llc WORDS…`; FILE then holds, as JSON, the exit code and the peak
of the resident memory in bytes. The peak is asked for from inside: what a parent is told of its
child includes the parent's own memory where the child was started by vfork.
"""

from __future__ import annotations

import json
import resource
import sys


def peak_bytes() -> int:
    """The most memory that was resident since this program started."""
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
