"""A journal truncated or changed at any byte, and concurrent attempts to resume one run.

With `LLC_CRASH=1` (`make crash`) every byte; otherwise the bytes around line ends and every 29th byte.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from keepers import kill_with_keeper
from waiting import wait_for

from llc.frontend.compile import compile_text
from llc.ir.text import parse_program
from llc.runtime.effects.world import World
from llc.runtime.execution.driver import Driver
from llc.runtime.execution.observer import Display
from llc.runtime.host import files
from llc.runtime.host.effect_context import Context, Interrupt
from llc.runtime.journal import journal
from llc.runtime.journal.journal import Journal
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.launch import resume as launch_resume
from llc.runtime.project import options, run_programs
from llc.runtime.runs import locks
from llc.runtime.runs.checkpoints import Checkpoints
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.tiered import Machine

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
SEQUENCE = """
name: job
initial: a
states:
  a: {action: "echo 1", capture: x, next: b}
  b: {action: "echo ${captured.x.output}", capture: y, next: c}
  c: {action: "echo ${captured.y.output}", next: done}
  done: {terminal: true}
"""
PARALLEL = """
program job entry main
function main() locals(found)
  state start
    parallel closure work() over ["1", "2"] -> found then end
  state end
    return found
function work(word) locals(answer)
  state first
    perform shell map("command", concat("echo ", word)) -> answer then second
  state second
    perform shell map("command", concat("echo ", get(answer, "output"))) -> answer then end
  state end
    return get(answer, "output")
"""


class CountingWorld(World):
    """Adds one to the number that an action echoes, and records the performed effects."""

    performed: ClassVar[list[int]] = []
    remaining = 10**6

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        if CountingWorld.remaining == 0:
            raise KeyboardInterrupt
        CountingWorld.remaining -= 1
        CountingWorld.performed.append(effect.seq)
        number = int(effect.args["command"].split()[1].strip("'")) + 1
        return {"output": str(number), "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}

    beside = None  # type: ignore[assignment]


@pytest.fixture
def project(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("llc.runtime.launch.command.World", CountingWorld)
    monkeypatch.setattr(files, "fdatasync", lambda fd: None)
    monkeypatch.setattr(files, "fsync", lambda fd: None)
    # The program is our own; other tests cover its verification.
    monkeypatch.setattr(
        run_programs, "load_image", lambda path, root: Image.from_bytes(Path(path).read_bytes())
    )
    return project_dir


def interrupted_run(text: str, count: int) -> Path:
    """A run that was killed after `count` effects."""
    if text.lstrip().startswith("program"):
        image = emit(parse_program(text, "job.ir"))
    else:
        image = emit(compile_text(text, ".loops/job.yaml").program)
    run, lock = locks.start("", "job", ["."], {"program": "job"})
    journal.write_file(run.image, image.to_bytes())
    journal_file = Journal.create(run.journal, lambda: "2024-01-15T10:30:00.000Z")
    journal_file.write("run_start", {"format": 1, "run": run.id, "program": "job", "path": "job", "llc": ""})
    interrupt = Interrupt()
    CountingWorld.performed, CountingWorld.remaining = [], count
    driver = Driver(
        Machine(image), CountingWorld(), journal_file, run, Display(), interrupt, checkpoints=Checkpoints(run)
    )
    with pytest.raises(KeyboardInterrupt):
        driver.run()
    journal_file.close()
    lock.close()
    interrupt.close()
    CountingWorld.remaining = 10**6
    return Path(run.path)


@pytest.mark.parametrize("text", [SEQUENCE, PARALLEL], ids=["sequence", "parallel"])
@pytest.mark.parametrize("change", ["cut off", "flipped"])
def test_run_with_a_journal_damaged_at_any_byte_ends(project: Path, text: str, change: str) -> None:
    """No effect runs again if its result is before the damage."""
    folder = interrupted_run(text, 2)
    (name,) = (path.name for path in folder.glob("*.events.jsonl"))
    complete = (folder / name).read_bytes()
    saved = shutil.move(folder, project / "saved")
    finished = project / ".loops" / ".history" / folder.name
    ends = [
        (complete.index(line) + len(line), event["seq"])
        for line in complete.splitlines(keepends=True)
        if (event := json.loads(line))["event"] == "action_complete"
    ]
    line_ends = [index for index, byte in enumerate(complete) if byte == ord("\n")]
    near_line_ends = {index + delta for index in line_ends for delta in (-1, 0, 1, 2)}
    value = None
    for offset in range(line_ends[0] + 1, len(complete)):
        if not IS_LARGE and offset % 29 and offset not in near_line_ends:
            continue
        shutil.copytree(saved, folder)
        damaged = complete[:offset] if change == "cut off" else damage(complete, offset)
        (folder / name).write_bytes(damaged)
        CountingWorld.performed = []
        values = options.Values(folder.name, quiet=True, accept_loss=True)
        assert launch_resume.resume(values) == 0, offset
        safe = {seq for end, seq in ends if end <= offset}
        assert not safe & set(CountingWorld.performed), offset
        end = RunFolder("", str(finished)).end()
        assert end is not None
        value = value or (end["status"], end["value"], end["steps"])
        assert (end["status"], end["value"], end["steps"]) == value, offset
        shutil.rmtree(finished)


def damage(data: bytes, offset: int) -> bytes:
    """Flip one bit of the byte at `offset`; the bit depends on the offset."""
    return data[:offset] + bytes([data[offset] ^ (1 << offset % 8)]) + data[offset + 1 :]


GATE = """
name: job
initial: a
states:
  a: {action: 'echo $$ >> pids; touch here; until [ -e go ]; do sleep 0.02; done', next: done}
  done: {terminal: true}
"""


@pytest.fixture
def killed_project(project_dir: Path) -> Iterator[Path]:
    """A project with a run that was killed during its action, which ends with the test."""
    (project_dir / ".loops" / "job.yaml").write_text(GATE)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    wait_for((project_dir / "here").exists)
    kill_with_keeper(process)
    process.wait()
    (project_dir / "here").unlink()
    yield project_dir
    (project_dir / "go").touch()


def test_only_one_of_several_concurrent_resumes_succeeds(killed_project: Path) -> None:
    """Five concurrent `llc resume` of one run: one continues it, four report that it is active."""
    words = [sys.executable, "-m", "llc", "resume", "job", "--json", "-q"]
    processes = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(5)
    ]
    wait_for(lambda: sum(process.poll() is not None for process in processes) == 4)
    wait_for((killed_project / "here").exists)
    (killed_project / "go").touch()
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    kinds = sorted(answer["error"]["kind"] if answer["error"] else "" for answer in answers)
    assert kinds == ["", "run-is-live", "run-is-live", "run-is-live", "run-is-live"]
    assert len((killed_project / "pids").read_text().split()) == 2


def test_process_with_a_reused_pid_is_neither_owner_nor_killed(killed_project: Path) -> None:
    """The recorded pids belong to other processes now: the run resumes and these processes survive."""
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (folder,) = killed_project.glob(".loops/.running/job-*")
        about = json.loads((folder / "lock").read_text())
        (folder / "lock").write_text(json.dumps({**about, "pid": other.pid}))
        path = folder / "job.events.jsonl"
        lines = path.read_bytes().splitlines()
        events = [event for line in lines if (event := journal.unseal(line)) is not None]
        for event in events:
            if event["event"] == "process":
                event["pid"] = other.pid
        path.write_bytes(b"".join(map(journal.seal, events)))
        (killed_project / "go").touch()
        done = subprocess.run([sys.executable, "-m", "llc", "resume", "job", "-q"], timeout=60)
        assert done.returncode == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


HOSTILE = [
    "",
    "[]",
    "{",
    json.dumps(
        dict.fromkeys(("pid", "scope", "started_at", "forked_from", "waits_for", "queued", "host"), 3)
    ),
    json.dumps(
        {"pid": "x", "scope": [1, None], "waits_for": [{}], "program": [], "path": 7, "forked_from": []}
    ),
    json.dumps({"pid": -1, "start_time": "", "parent": "../..", "ticket": "z", "since": {}, "host": []}),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_resume_does_not_need_the_auxiliary_files(killed_project: Path, text: str) -> None:
    """With damaged lock, state, live and active files, every subcommand works and the run resumes."""
    (folder,) = killed_project.glob(".loops/.running/job-*")
    for name in ("lock", "job.state.json", "job.live", "active", "checkpoint-1"):
        (folder / name).write_text(text)
    for words in (
        ["status"],
        ["status", "job", "--json"],
        ["list", "--running"],
        ["logs", "job"],
        ["history"],
    ):
        done = llc(*words)
        assert (done.returncode, "internal" in done.stderr) == (0, False), (words, done.stderr)
    for words in (["stop", "job"], ["attach", "job"]):
        done = llc(*words)
        assert done.returncode == 1, words
        assert " crashed and is not running" in done.stderr, words
    (killed_project / "go").touch()
    assert llc("resume", "job").returncode == 0


def test_oversized_files_are_not_read(killed_project: Path) -> None:
    """Huge sparse files replace files of a run, the cache and the configuration; memory stays small."""
    (folder,) = killed_project.glob(".loops/.running/job-*")
    cached = list(killed_project.glob(".loops/.cache/*.*"))
    names = ("program.llb", "job.state.json", "lock", "active", "checkpoint-1")
    for path in (*cached, *(folder / name for name in names)):
        os.truncate(path, 10 << 30) if path.exists() else path.touch()
    shown = llc("status", "job", memory=2 << 30)
    assert (shown.returncode, "internal" in shown.stderr) == (0, False), shown.stderr
    (killed_project / "go").touch()
    resumed = llc("resume", "job", memory=2 << 30)
    assert (resumed.returncode, "it is larger than 268,435,456 bytes" in resumed.stderr) == (0, True), (
        resumed.stderr
    )
    assert llc("run", "job", memory=2 << 30).returncode == 0
    (killed_project / ".loops/config.yaml").touch()
    os.truncate(killed_project / ".loops/config.yaml", 10 << 30)
    refused = llc("run", "job", memory=2 << 30)
    assert (refused.returncode, "error[file-too-large]" in refused.stderr) == (2, True), refused.stderr


def llc(*words: str, memory: int = -1) -> subprocess.CompletedProcess[str]:
    """Run llc with an address space of at most `memory` bytes."""
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )


def test_followed_logs_report_a_crash(killed_project: Path) -> None:
    """`logs -f` ends and reports the crash and the next step."""
    done = llc("logs", "job", "-f")
    assert done.returncode == 0
    assert " crashed\nResume with: llc resume job-" in done.stderr
