"""Many sleepers in one process, without llc: `python many_sleepers.py asyncio|threads COUNT SECONDS`.

Prints the peak of the resident memory and the seconds until all of them slept, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time


async def _tasks(count: int, seconds: float) -> None:
    await asyncio.gather(*(asyncio.sleep(seconds) for _ in range(count)))


def _threads(count: int, seconds: float) -> None:
    threads = [threading.Thread(target=time.sleep, args=(seconds,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _peak() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def main() -> None:
    kind, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    started_at = time.perf_counter()
    if kind == "asyncio":
        asyncio.run(_tasks(count, seconds))
    else:
        _threads(count, seconds)
    print(json.dumps({"peak": _peak(), "started": time.perf_counter() - started_at - seconds}))


if __name__ == "__main__":
    main()
