"""Mutations of the run protocol, each of which the simulation must detect.

`cd tests && python -m simulation.mutants [NAME…]` copies the package, applies one mutation after the other,
simulates until a promise is broken, and prints the table. The exit code is 1 if a mutation was not detected.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

# Maximum number of simulated histories per mutation.
HISTORIES = 4000
DATABASE_HISTORIES = 400
ROOT = Path(__file__).resolve().parents[2]

# Name: the defect, then for each change: file, text, replacement. Two changes are needed where two mechanisms
# guard.
MUTANTS: dict[str, tuple[str, ...]] = {
    "sync-nothing": (
        "the journal is not synced",
        "runtime/journal/journal.py",
        "            files.fdatasync(self._fd)\n",
        "            pass\n",
    ),
    "start-unsynced": (
        "an action starts before its start is on disk",
        "runtime/execution/driver.py",
        "        elif row.acts:\n            self._record.sync()\n",
        "        elif row.acts:\n            self._record.flush()\n",
    ),
    "start-first": (
        "an action starts, then its start is synced",
        "runtime/execution/driver.py",
        "        if starting or self._record.is_unsynced:\n",
        "        self._start(starting)\n        if starting or self._record.is_unsynced:\n",
    ),
    "parallel-unsynced": (
        "concurrent actions start before their starts are on disk",
        "runtime/execution/driver.py",
        "            yield Apart(self._record.sync)\n            self._record.save_length()\n",
        "            self._record.flush()\n",
    ),
    "end-unsynced": (
        "a run ends before its end is on disk",
        "runtime/execution/driver.py",
        "(outcome.to_event())\n        yield Apart(self._record.sync)\n",
        "(outcome.to_event())\n        self._record.flush()\n        yield None\n",
    ),
    "result-unrecorded": (
        "results of actions that run alone are not recorded",
        "runtime/execution/driver.py",
        "            raise\n        self._log.end(effect, result)\n",
        "            raise\n",
    ),
    "folder-unsynced": (
        "the folder of a new run is not synced",
        "runtime/launch/run.py",
        "    journal.sync()\n    folder.sync()\n",
        "    journal.sync()\n",
    ),
    "resume-unsettled": (
        "a resume relies on data that are not on disk",
        "runtime/launch/resume.py",
        "        folder.settle()\n",
        "",
    ),
    "names-ignored": (
        "an error in syncing names is ignored",
        "runtime/host/files.py",
        "        if error.errno in TRANSIENT:\n            raise\n",
        "        pass\n",
    ),
    "history-unsynced": (
        "the folder of ended runs is made, but not synced",
        "runtime/host/paths.py",
        "    files.sync_names(above)\n",
        "",
    ),
    "texts-unsynced": (
        "long outputs are not synced",
        "runtime/journal/journal.py",
        "            write_file(path, data, mode=0o600)\n            self._is_unsynced",
        "            write_file(path, data, False, 0o600)\n            self._is_unsynced",
    ),
    "text-names": (
        "the names of long outputs are not synced",
        "runtime/journal/journal.py",
        "            self.blobs.sync()  # before the events that refer to them\n",
        "",
    ),
    "texts-unsettled": (
        "a resume does not sync the names of long outputs that another process has left",
        "runtime/journal/run_folder.py",
        "                files.sync_names(self.outputs)\n",
        "                pass\n",
    ),
    "texts-unwritten": (
        "long outputs are not stored",
        "runtime/journal/journal.py",
        "        if not self._holds(path, len(data)):\n",
        "        if False:\n",
    ),
    "file-in-place": (
        "files are written in place",
        "runtime/journal/journal.py",
        '    scratch = os.path.join(folder, f".{name[:100]}.{processes.getpid()}.new")\n',
        "    scratch = path\n",
    ),
    "short-write": (
        "a write of a part counts as one of all",
        "runtime/journal/journal.py",
        "    while done < len(data):\n        done += files.write(fd, memoryview(data)[done:])\n",
        "",
    ),
    "not-appended": (
        "a resumed journal is written from its beginning",
        "runtime/journal/journal.py",
        "files.O_WRONLY | files.O_APPEND | flags)",
        "files.O_WRONLY | flags)",
    ),
    "not-cut": (
        "damaged lines remain in the journal",
        "runtime/journal/journal.py",
        "            file.truncate(offset)\n",
        "",
    ),
    "cut-too-much": (
        "a repair takes a line too much",
        "runtime/launch/resume.py",
        "folder.set_aside(cut)",
        "folder.set_aside(cut - 60)",
    ),
    "checkpoint-first": (
        "a checkpoint is written before the journal is on disk",
        "runtime/runs/checkpoints.py",
        "        journal.sync()\n",
        "",
    ),
    "no-lock": (
        "runs are driven without their lock",
        "runtime/runs/locks.py",
        "            if try_flock(fd, files.LOCK_EX):\n                break\n",
        "            break\n",
    ),
    "lock-shared": (
        "several processes may have the lock of a run",
        "runtime/runs/locks.py",
        "            if try_flock(fd, files.LOCK_EX):\n",
        "            if try_flock(fd, files.LOCK_SH):\n",
    ),
    "lock-closed": (
        "a resumed run lets go of its lock at once",
        "runtime/launch/resume.py",
        "    try:\n        folder.settle()\n",
        "    try:\n        lock.close()\n        folder.settle()\n",
    ),
    "lock-early": (
        "the lock is released before the run has moved to the history",
        "runtime/launch/command.py",
        "                self.folder.finish()\n                lock.close()\n",
        "                lock.close()\n                self.folder.finish()\n",
    ),
    "no-scope": (
        "paths of other runs do not matter",
        "runtime/runs/scope_conflicts.py",
        "        held = [path for path in _paths(about) for mine in wanted if overlap(mine, path)]\n",
        "        held = []\n",
    ),
    "no-gate": (
        "two starts look at the runs at the same time",
        "runtime/runs/run_lock.py",
        "        try:\n            _flock(self._fd, files.LOCK_EX)\n        except",
        "        try:\n            pass\n        except",
    ),
    "queue-ignored": (
        "a run leaves the queue before its turn",
        "runtime/runs/locks.py",
        "                if not others:\n                    lock.tell(queued=None",
        "                if True:\n                    lock.tell(queued=None",
    ),
    "queue-deadlock": (
        "queued runs wait for each other",
        "runtime/runs/locks.py",
        "                    if not other.is_queued or other.ticket < ticket\n",
        "",
    ),
    "leftovers": (
        "a resume does not end actions that are still running",
        "runtime/recovery/in_doubt.py",
        "        if recorded is None or not recorded.is_started or recorded.is_finished:\n",
        "        if True:\n",
    ),
    "finished-again": (
        "a finished action counts as one in doubt",
        "runtime/journal/run_history.py",
        "                self.order.append(seq)\n",
        "                self.order += [seq] * (seq != 2)\n",
    ),
    "swept": (
        "a run whose journal cannot be read is removed",
        "runtime/journal/run_folder.py",
        "        except FileNotFoundError:\n            return True\n        except OSError:\n"
        "            return False  # the journal cannot be read now, so its contents are unknown\n",
        "        except OSError:\n            return True\n",
    ),
    "secrets": (
        "secrets are not known",
        "runtime/launch/command.py",
        "        secrets.begin(names)\n",
        "",
    ),
    "copy-unmasked": (
        "the copy of an output that is too long for the journal has its secrets",
        "runtime/effects/output_capture.py",
        "            if secrets.known:\n                self._masked =",
        "            if False:\n                self._masked =",
    ),
    "unreadable-free": (
        "a lock that cannot be read now counts as free",
        "runtime/host/errors.py",
        "    if error.errno in files.TRANSIENT:\n",
        "    if False:\n",
    ),
    "no-files": (
        "too few handles are a defect of llc",
        "runtime/launch/failures.py",
        "    return isinstance(error, OSError) and error.errno in (EMFILE, ENFILE)\n",
        "    return False\n",
    ),
}
# Detected by histories of runs in a database.
DATABASE_MUTANTS: dict[str, tuple[str, ...]] = {
    "epoch-unchecked": (
        "who was replaced can still append to the journal",
        "runtime/database/stored_run.py",
        """select %(run)s, %(position)s, %(size)s, %(lines)s, %(epoch)s, %(data)s
from (select 1 from runs where id = %(run)s and epoch = %(epoch)s for share) as mine
""",
        """select %(run)s, %(position)s, %(size)s, %(lines)s, %(epoch)s, %(data)s
from (select 1 from runs where id = %(run)s for share) as mine
""",
    ),
    "position-unchecked": (
        "an append goes to the end, wherever its writer believes that to be",
        "runtime/database/stored_run.py",
        """select %(run)s, %(position)s, %(size)s, %(lines)s, %(epoch)s, %(data)s
from (select 1 from runs where id = %(run)s and epoch = %(epoch)s for share) as mine
where coalesce(
  (select position + size from journal where run = %(run)s order by position desc limit 1), 0) = %(position)s
on conflict""",
        """select %(run)s, coalesce(
  (select position + size from journal where run = %(run)s order by position desc limit 1), 0),
  %(size)s, %(lines)s, %(epoch)s, %(data)s
from (select 1 from runs where id = %(run)s and epoch = %(epoch)s for share) as mine
on conflict""",
    ),
    "commit-late": (
        "an action starts before its start is committed",
        "runtime/database/stored_run.py",
        "        if self._unsent:\n",
        "        if len(self._unsent) > 4:\n",
    ),
    "not-buried": (
        "the runs of a dead worker stay with it",
        "runtime/database/installation.py",
        "  where owner = worker and status <> 'ended';\n",
        "  where owner = 'nobody' and status <> 'ended';\n",
    ),
    "not-requeued": (
        "the segments of a dead worker stay with it",
        "runtime/database/installation.py",
        "  perform {schema}.requeue_segments(worker);\n",
        "",
    ),
    "taken-by-the-dead": (
        "a segment that a dead worker has taken is never given out again",
        "runtime/database/installation.py",
        "          select 1 from {schema}.workers k where k.id = w.executor_id and k.state <> 'dead')))))\n",
        "          select 1 from {schema}.workers k where k.id = w.executor_id)))))\n",
    ),
    "delivery-lost": (
        "a segment whose answer was lost is never given out again",
        "runtime/launch/worker.py",
        "            self._deliveries.return_missing(connection)\n",
        "",
    ),
    "driven-twice": (
        "a worker that gets a run twice drives it twice",
        "runtime/launch/segment.py",
        "        if run_id in store.claims:\n",
        "        if False:\n",
        "runtime/database/store.py",
        "        if self.keeps_actions and not self.managed:\n",
        "        if False:\n",
    ),
    "append-repeated": (
        "an append whose answer was lost is taken for one of a successor",
        "runtime/database/stored_run.py",
        "            return found is not None and tuple(found) == (len(data), self.epoch, data)\n",
        "            return False\n",
    ),
    "scopes-shared": (
        "runs with the same paths are concurrent",
        "runtime/database/claims.py",
        '    if status != "running" and scope:\n',
        "    if False:\n",
        "runtime/database/installation.py",
        "(o.paths && r.above or o.above && r.paths)\n          and (o.status in ('running', 'waiting')",
        "false and (o.status in ('running', 'waiting')",
    ),
    "lost-connection": (
        "a connection that is lost ends the worker",
        "runtime/database/connection.py",
        "            except _retryable_errors() as error:\n                outage =",
        "            except psycopg.InterfaceError as error:\n                outage =",
    ),
    "declared-dead": (
        "a segment that a worker begins which was declared dead in an outage is a defect",
        "runtime/launch/worker.py",
        "        except DatabaseUnavailable:  # declared dead in an outage; another worker continues it\n"
        '            return "returned"\n',
        "",
    ),
    "folder-removed": (
        "an owner removes its folder while another one looks for actions there",
        "runtime/database/survivors.py",
        "    except (FileNotFoundError, NotADirectoryError):\n",
        "    except NotADirectoryError:\n",
    ),
}


def main(names: list[str]) -> int:
    every = MUTANTS | DATABASE_MUTANTS
    chosen = names or list(every)
    missed = 0
    with TemporaryDirectory() as folder:
        package = Path(folder) / "llc"
        _copy(package)
        print(f"{'change':18} {'found by':68} {'seconds':>7}")
        for name in chosen:
            texts = {package / file: (package / file).read_text("utf-8") for file, _, _ in changes_of(name)}
            wrong = [file for file, old, _ in changes_of(name) if texts[package / file].count(old) != 1]
            if wrong:
                print(f"{name:18} cannot be made: {wrong[0]} does not have the text once")
                missed += 1
                continue
            for file, old, new in changes_of(name):
                path = package / file
                path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
            started_at = time.monotonic()
            try:
                found = _first_failure(folder, package, name in DATABASE_MUTANTS)
            finally:
                for path, text in texts.items():
                    path.write_text(text, "utf-8")
            missed += found is None
            shown = (found or f"NOT FOUND: {every[name][0]}")[:68]
            print(f"{name:18} {shown:68} {time.monotonic() - started_at:7.1f}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return int(missed > 0)


def changes_of(name: str) -> list[tuple[str, str, str]]:
    """The changes of a mutation: file, text, replacement."""
    _, *texts = (MUTANTS | DATABASE_MUTANTS)[name]
    return list(zip(texts[::3], texts[1::3], texts[2::3], strict=True))


def _copy(package: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("frontend", "ir", "vm", "runtime", "stdlib", "tests/simulation"):
        shutil.copytree(ROOT / part, package / part, ignore=ignored)
    shutil.copy(ROOT / "tests/postgres.py", package / "tests")
    shutil.copy(ROOT / "__init__.py", package)


def _first_failure(folder: str, package: Path, in_database: bool) -> str | None:
    """How the simulation detects the mutation of the package; None if it does not."""
    count = DATABASE_HISTORIES if in_database else HISTORIES
    command = [sys.executable, "-m", "simulation", "--count", str(count), "--one"]
    command += ["--database"] if in_database else []
    done = subprocess.run(
        command,
        cwd=package / "tests",
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode == 0:
        return None
    first = next((line for line in lines if line.startswith("seed ")), "")
    if not first:
        return f"it does not start: {(done.stderr.splitlines() or ['?'])[-1]}"
    return f"{first.partition(':')[0]}: {lines[-1]}" if "Traceback" in first else first


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
