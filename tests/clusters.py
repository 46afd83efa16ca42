"""A cluster for tests: a project, a database and its workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import fork_server
import postgres
import psycopg
from fork_server import Process
from in_process import run_llc
from keepers import kill_with_keeper

LIMIT_S = 120
# Each action writes a line at its start and one at its end.
SCRIPT = 'echo "$LLC_EFFECT_ID begins" >> log; {0}; echo "$LLC_EFFECT_ID ends" >> log'
JOB = """
name: job
initial: one
scope: [{scope}]
states:
  one: {{action: '{first}', next: two}}
  two: {{action: '{second}', next: done}}
  done: {{terminal: true}}
"""


class Cluster:
    """A project, a database and workers, which end with the test."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.workers: list[Process | subprocess.Popen[str]] = []
        (folder / ".loops").mkdir()
        self.connect()

    def connect(self) -> None:
        self.database = psycopg.connect(self.url, autocommit=True, options="-c search_path=llc")

    def loop(self, name: str, first: str = "true", second: str = "true", scope: str = "") -> None:
        text = JOB.format(first=SCRIPT.format(first), second=SCRIPT.format(second), scope=scope or name)
        (self.folder / ".loops" / f"{name}.yaml").write_text(text)

    def llc(
        self, *words: str, folder: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a client command in the test process, in `folder` if given."""
        return run_llc(*words, folder=folder or self.folder, **variables)

    def program(
        self, *words: str, folder: Path | None = None, limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Like `llc`, in a separate process."""
        return subprocess.run(
            [sys.executable, "-m", "llc", *words],
            cwd=folder or self.folder,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )

    def submit(self, name: str, *words: str) -> str:
        result = self.llc("run", name, "--on", self.url, *words)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def start(
        self, *words: str, folder: Path | None = None, is_awaited: bool = True, is_forked: bool = True
    ) -> Process | subprocess.Popen[str]:
        """Start a worker and record its output; folder: its checkout of the project."""
        log = self.folder / f"worker-{len(self.workers)}.txt"
        words, folder = ("worker", "--db", self.url, *words), folder or self.folder
        with log.open("w") as errors, open(os.devnull, "r+") as null:
            worker: Process | subprocess.Popen[str]
            if is_forked:
                worker = fork_server.workers().start(list(words), folder, null, errors)
            else:
                command = [sys.executable, "-m", "llc", *words]
                worker = subprocess.Popen(command, cwd=folder, stdin=null, stderr=errors, text=True)
        self.workers.append(worker)
        postgres.until(lambda: not is_awaited or log.read_text() or worker.poll() is not None)
        return worker

    def output(self) -> str:
        """Output of all workers."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("worker-*.txt")))

    def row(self, run: str) -> dict[str, Any]:
        names = "status", "outcome", "owner", "epoch", "segment"
        row = self.database.execute(f"select {', '.join(names)} from runs where id = %s", [run]).fetchone()
        assert row is not None
        return dict(zip(names, row, strict=True))

    def await_status(self, run: str, status: str = "ended") -> dict[str, Any]:
        postgres.until(lambda: self.row(run)["status"] == status)
        return self.row(run)

    def log(self) -> Counter[str]:
        """Counts of the starts and ends of each effect."""
        path = self.folder / "log"
        return Counter(path.read_text().splitlines() if path.exists() else [])

    def await_log(self, text: str) -> None:
        postgres.until(lambda: any(text in line for line in self.log()))

    def worker_of(self, run: str) -> Process | subprocess.Popen[str]:
        """The process that owns a run."""
        postgres.until(lambda: self.row(run)["owner"])
        pid = int(str(self.row(run)["owner"]).rsplit("-", 2)[1])
        return next(worker for worker in self.workers if worker.pid == pid)

    def events(self, run: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal(run).splitlines()]

    def journal(self, run: str) -> str:
        parts = self.database.execute(
            "select data from journal where run = %s order by position", [run], binary=True
        ).fetchall()
        return b"".join(part for (part,) in parts).decode()

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                kill_with_keeper(worker)
            worker.wait(LIMIT_S)
        self.database.close()
