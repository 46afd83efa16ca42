"""Record the runs in `tests/journals/<version>/`, which every later version must read and replay.

    python tests/journals/record.py [FOLDER]

Run it once for each version, and when a journal gets a new kind of event, effect or field: add a case that
contains it and run it again. A case that exists in the folder is not recorded again, so stored files do not
change. Then `pytest --update tests/journals` writes the expected output of the new runs.

The cases run as real processes in a copy of `project/`, most of them in the scripted world `world.yaml`.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import llc

HERE = Path(__file__).parent
# A secret of a run; its value is not in the journal.
SECRET = {"RECORD_API_KEY": "sesame-0123456789"}
SCRIPT = ("--script", "world.yaml")
# Files that belong to the process of a run, or that each reader recreates.
NOT_STORED = ("lock", "active", "*.live", "*.log", "summary.json", "trees")


class Recorder:
    """A project in which cases run; their files are stored in `target`."""

    def __init__(self, project: Path, target: Path) -> None:
        self.project = project
        self.target = target

    def llc(self, *words: str) -> None:
        """Run llc in the project; its exit code is part of the case."""
        command = [sys.executable, "-m", "llc", *words]
        env = {**os.environ, **SECRET, "XDG_CACHE_HOME": str(self.project / ".cache")}
        subprocess.run(command, cwd=self.project, env=env, capture_output=True, timeout=60, check=False)

    def run(self, target: str, *words: str) -> None:
        self.llc("run", target, "-q", *words)

    def path(self, name: str) -> Path:
        """The folder of the only run named `name`."""
        (found,) = self.project.glob(f".loops/.*/{name}-*-*")
        return found

    def edit(self, path: Path, old: bytes, new: bytes) -> None:
        text = path.read_bytes()
        assert text.count(old) == 1, (path, old)
        path.write_bytes(text.replace(old, new))

    def store(self) -> list[Path]:
        """Store the runs of the project and their world."""
        stored = []
        for root in ("running", "history"):
            for run in sorted(self.project.glob(f".loops/.{root}/*-*-*")):
                stored.append(self.target / root / run.name)
                shutil.copytree(run, stored[-1], ignore=shutil.ignore_patterns(*NOT_STORED))
        if any(b'"script":' in journal.read_bytes() for journal in self.target.glob("*/*/*.events.jsonl")):
            shutil.copy(self.project / "world.yaml", self.target)
        return stored


def changed(case: Recorder) -> None:
    """A run that continued with an edited program."""
    case.run("changed")
    case.edit(case.project / ".loops/changed.yaml", b"echo twice", b"echo three times")
    case.llc("resume", "changed", "-q", "--accept-changes")


def damaged(case: Recorder) -> None:
    """A run whose journal lost a result and which was resumed."""
    case.run("damaged")
    journal = case.path("damaged") / "damaged.events.jsonl"
    case.edit(journal, b'"output":"once\\n"', b'"output":"\xff\xff\xff\xff\\n"')
    case.llc("resume", "damaged", "-q")


def resumed(case: Recorder) -> None:
    """A run that was killed during an action, which then failed instead of running again."""
    case.run("resumed")
    case.llc("resume", "resumed", "-q", "--on-unknown", "fail")


def forked(case: Recorder) -> None:
    """A run that shares the history of another."""
    case.run("judged", *SCRIPT)
    case.llc("fork", "judged", "-q", "--state", "report")


AGENT = 'agents:\n  helper: {extends: claude, argv: ["./helper", "{options}"]}\n'


def worked(case: Recorder) -> None:
    """An agent that reports its activity; one file is too large to be recorded."""
    (case.project / ".loops" / "config.yaml").write_text(AGENT)
    (case.project / "large").write_bytes(bytes(2_000_000))
    case.run("worked", "--no-preflight")


def proven(case: Recorder) -> None:
    """A success that a check proves after the work of an agent."""
    (case.project / ".loops" / "config.yaml").write_text(AGENT)
    case.run("proven", "--no-preflight")


def concurrent(case: Recorder) -> None:
    """Concurrent effects and runs, and an unusable folder of trees."""
    (case.project / ".loops" / "config.yaml").write_text("record_files: all\n")
    case.llc("run", "beside", "-q", "--background")
    case.run("both.sexp")
    case.run("unrecorded")
    while next(case.project.glob(".loops/.running/*-*-*"), None):
        time.sleep(0.1)


CASES: dict[str, Callable[[Recorder], None]] = {
    "forked": forked,
    "effects": lambda case: case.run("effects.sexp", *SCRIPT),
    "many": lambda case: case.run("many.sexp", *SCRIPT),
    "nested": lambda case: case.run("nested.sexp", *SCRIPT),
    "phases": lambda case: case.run("phases.sexp", *SCRIPT),
    "maintained": lambda case: case.run("maintained", *SCRIPT),
    "handed": lambda case: case.run("handed", *SCRIPT),
    "spent": lambda case: case.run("spent", *SCRIPT, "--budget", "usd=0.5"),
    "fault": lambda case: case.run("fault.sexp", *SCRIPT),
    "expression": lambda case: case.llc("run", "-q", "-e", "(+ 1 2)"),
    "fuel": lambda case: case.run("count.sexp", *SCRIPT, "--fuel", "200"),
    "hooked": lambda case: case.run("hooked"),
    "real": lambda case: case.run("real"),
    "failing": lambda case: case.run("failing"),
    "limited": lambda case: case.llc("batch", "-q", "jobs.jsonl"),
    "stopped": lambda case: case.run("stopped"),
    "crashed": lambda case: case.run("crashed"),
    "resumed": resumed,
    "worked": worked,
    "proven": proven,
    "beside": concurrent,
    "damaged": damaged,
    "changed": changed,
    "linked": lambda case: case.run("linked"),
}


def reject_private(folder: Path, words: list[str]) -> None:
    """Reject files that contain names of this machine or its user. Raises SystemExit."""
    for file in folder.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        found = [word for word in words if word.encode() in data]
        if found:
            raise SystemExit(f"{file} contains {', '.join(found)}: correct the case and delete {folder}")


def main() -> None:
    folder = HERE / (sys.argv[1] if len(sys.argv) > 1 else llc.__version__)
    for name, record in CASES.items():
        target = folder / name
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as place:
            project = Path(place) / "project"
            shutil.copytree(HERE / "project", project)
            case = Recorder(project, target)
            record(case)
            stored = case.store()
            user = getpass.getuser()
            if not stored:
                raise SystemExit(f"{name}: nothing was recorded")
            reject_private(
                target, [place, socket.gethostname(), f"/home/{user}", f"/{user}/", *SECRET.values()]
            )
        print(f"{name}: {', '.join(path.name for path in stored)}")


if __name__ == "__main__":
    main()
