"""Job server of the crash tests: runs llc in new processes that crash: `python crash_runner.py`.

Reads jobs as lines of JSON and answers each with `{"code": …}`. A job is a process forked from this one,
which has imported llc and all modules that earlier jobs imported, so that hundreds of jobs take seconds.

    cwd, words      working directory, and the command line without `llc`
    fault           fault at write number `at` to a file of a run: `before`, `torn`, `after` (killed there),
                    `enospc`, `eio` (half of it is written, all later writes fail), `sync` (that sync fails),
                    `sigint`, `sigterm` (the process gets that signal), `short` (every write takes only half
                    of its data)
    database        URL of the database that has the runs; its writes are counted too
    checkpoints     least number of journal bytes between two checkpoints
    kill_after      the process is killed after this number of seconds
    with_keeper     whether the keeper of its actions is killed too
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from llc.frontend import compile as _compile  # noqa: F401 - imported once for all
from llc.ir import verify as _verify  # noqa: F401
from llc.runtime.cli import entry
from llc.runtime.cli.commands import run as _run  # noqa: F401
from llc.runtime.database.connection import Address
from llc.runtime.database.store import open_store
from llc.runtime.database.stored_run import DatabaseRun
from llc.runtime.host import files
from llc.runtime.journal.journal import JournalError
from llc.runtime.launch.command import Command
from llc.runtime.runs import checkpoints
from llc.vm.code import lift  # noqa: F401
from llc.vm.machine import snapshot  # noqa: F401

sys.path.append(str(Path(__file__).parents[1]))
from keepers import keeper_of

RUNNING = "/.loops/.running/"
kills_keeper = False


class FaultInjector:
    """Replacement for the system's write and sync that causes a fault."""

    def __init__(self, fault: str, at: int) -> None:
        self.fault = fault
        self.at = at
        self.count = 0
        self.is_broken = False
        self.write = os.write
        files.write = self.write_with_fault
        files.fdatasync = self.sync_with_fault

    def write_with_fault(self, fd: int, data: Any) -> int:
        if self.fault == "sync" or RUNNING not in os.readlink(f"/proc/self/fd/{fd}"):
            return self.write(fd, data)
        self.count += 1
        if self.fault == "short":
            return self.write(fd, data[: (len(data) + 1) // 2])
        if self.count != self.at and not self.is_broken:
            return self.write(fd, data)
        match self.fault:
            case "before":
                die()
            case "torn":
                self.write(fd, data[: len(data) // 2])
                die()
            case "after":
                self.write(fd, data)
                die()
            case "enospc" | "eio":
                if not self.is_broken:
                    self.is_broken = True
                    return self.write(fd, data[: len(data) // 2])
                raise OSError(getattr(errno, self.fault.upper()), "simulated")
            case "sigint" | "sigterm":
                os.kill(os.getpid(), getattr(signal, self.fault.upper()))
        return self.write(fd, data)

    def sync_with_fault(self, fd: int) -> None:
        """Count the sync, without syncing: no test needs data to survive the machine."""
        if self.fault == "sync":
            self.count += 1
            if self.count == self.at:
                raise OSError(errno.EIO, "simulated")

    def wrap(self, write: Any) -> Any:
        """Return a write to the database that causes the fault; a torn write is a crash before it."""

        def write_with_fault(run: Any, *arguments: Any) -> Any:
            self.count += 1
            if self.fault == "short" or (self.count != self.at and not self.is_broken):
                return write(run, *arguments)
            match self.fault:
                case "before" | "torn":
                    die()
                case "after":
                    write(run, *arguments)
                    die()
                case "enospc" | "eio" | "sync":
                    self.is_broken = self.fault != "sync"
                    raise JournalError("the database refuses it (simulated)")
                case "sigint" | "sigterm":
                    os.kill(os.getpid(), getattr(signal, self.fault.upper()))
            return write(run, *arguments)

        return write_with_fault


def use_database(url: str, project: str, injector: FaultInjector) -> Any:
    """Store the runs of this process in a database; return the store."""
    store = open_store(Address.parse(url), project=project)
    Command.store, Command.find = store, store.find_unfinished
    for name in ("append", "put"):
        setattr(DatabaseRun, name, injector.wrap(getattr(DatabaseRun, name)))
    return store


def die() -> None:
    if kills_keeper and (keeper := keeper_of(os.getpid())) is not None:
        os.kill(keeper, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def child(job: dict[str, Any]) -> None:
    global kills_keeper
    imported = set(sys.modules)
    kills_keeper = job.get("with_keeper", False)
    os.chdir(job["cwd"])
    os.environ.update(job.get("env", {}))
    log = os.open("shown", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.argv = ["llc", *job["words"]]
    if "checkpoints" in job:
        checkpoints.SPACE, checkpoints.SHARE = job["checkpoints"], 0
    injector = FaultInjector(job.get("fault", ""), job.get("at", 0))
    store = use_database(job["database"], job["cwd"], injector) if "database" in job else None
    code = entry.main()
    if store is not None:
        store.close()
    report = {"writes": injector.count, "modules": sorted(set(sys.modules) - imported)}
    injector.write(job["report_fd"], json.dumps(report).encode())
    os._exit(code)


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        read, job["report_fd"] = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                child(job)
            finally:
                os._exit(99)
        if "kill_after" in job:
            time.sleep(job["kill_after"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(job["report_fd"])
        with os.fdopen(read) as report_pipe:
            report = json.loads(report_pipe.read() or "{}")
        for name in report.get("modules", ()):
            with contextlib.suppress(ImportError):  # submodules that an extension module creates
                importlib.import_module(name)
        answer = {"code": os.waitstatus_to_exitcode(status), "writes": report.get("writes", 0)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
