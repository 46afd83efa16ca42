"""A journal truncated or changed at any byte, and concurrent attempts to resume one run.

Each byte with `LLC_CRASH=1` (`make crash`); else the bytes around each end of a line and every 29th.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from keepers import kill_with_keeper

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


class Counting(World):
    """Adds one to what an action echoes, and remembers which it was asked for."""

    performed: ClassVar[list[int]] = []
    left = 10**6

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        if Counting.left == 0:
            raise KeyboardInterrupt
        Counting.left -= 1
        Counting.performed.append(effect.seq)
        number = int(effect.args["command"].split()[1].strip("'")) + 1
        return {"output": str(number), "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}

    beside = None  # type: ignore[assignment]


@pytest.fixture
def project(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("llc.runtime.launch.command.World", Counting)
    monkeypatch.setattr(files, "fdatasync", lambda fd: None)
    monkeypatch.setattr(files, "fsync", lambda fd: None)
    # The program is our own, and verified with the rest of the tests.
    monkeypatch.setattr(
        run_programs, "load_image", lambda path, root: Image.from_bytes(Path(path).read_bytes())
    )
    return project_dir


def cut_run(text: str, count: int) -> Path:
    """A run that was killed when `count` effects had been performed."""
    if text.lstrip().startswith("program"):
        image = emit(parse_program(text, "job.ir"))
    else:
        image = emit(compile_text(text, ".loops/job.yaml").program)
    run, lock = locks.start("", "job", ["."], {"program": "job"})
    journal.write_file(run.image, image.to_bytes())
    book = Journal.create(run.journal, lambda: "2024-01-15T10:30:00.000Z")
    book.write("run_start", {"format": 1, "run": run.id, "program": "job", "path": "job", "llc": ""})
    interrupt = Interrupt()
    Counting.performed, Counting.left = [], count
    driver = Driver(Machine(image), Counting(), book, run, Display(), interrupt, checkpoints=Checkpoints(run))
    with pytest.raises(KeyboardInterrupt):
        driver.run()
    book.close()
    lock.close()
    interrupt.close()
    Counting.left = 10**6
    return Path(run.path)


@pytest.mark.parametrize("text", [SEQUENCE, PARALLEL], ids=["sequence", "parallel"])
@pytest.mark.parametrize("change", ["cut off", "flipped"])
def test_a_run_with_a_journal_damaged_at_any_byte_ends(project: Path, text: str, change: str) -> None:
    """No effect runs again if its result is before the damage."""
    folder = cut_run(text, 2)
    (name,) = (path.name for path in folder.glob("*.events.jsonl"))
    whole = (folder / name).read_bytes()
    kept = shutil.move(folder, project / "kept")
    ended = project / ".loops" / ".history" / folder.name
    ends = [
        (whole.index(line) + len(line), event["seq"])
        for line in whole.splitlines(keepends=True)
        if (event := json.loads(line))["event"] == "action_complete"
    ]
    line_ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    near = {at + off for at in line_ends for off in (-1, 0, 1, 2)}
    value = None
    for place in range(line_ends[0] + 1, len(whole)):
        if not IS_LARGE and place % 29 and place not in near:
            continue
        shutil.copytree(kept, folder)
        damaged = whole[:place] if change == "cut off" else damage(whole, place)
        (folder / name).write_bytes(damaged)
        Counting.performed = []
        values = options.Values(folder.name, quiet=True, accept_loss=True)
        assert launch_resume.resume(values) == 0, place
        safe = {seq for end, seq in ends if end <= place}
        assert not safe & set(Counting.performed), place
        end = RunFolder("", str(ended)).end()
        assert end is not None
        value = value or (end["status"], end["value"], end["steps"])
        assert (end["status"], end["value"], end["steps"]) == value, place
        shutil.rmtree(ended)


def damage(whole: bytes, project_dir: int) -> bytes:
    """One bit of a byte changed, each time another."""
    return (
        whole[:project_dir] + bytes([whole[project_dir] ^ (1 << project_dir % 8)]) + whole[project_dir + 1 :]
    )


GATE = """
name: job
initial: a
states:
  a: {action: 'echo $$ >> pids; touch here; until [ -e go ]; do sleep 0.02; done', next: done}
  done: {terminal: true}
"""


@pytest.fixture
def cut(project_dir: Path) -> Iterator[Path]:
    """A project with a run that was killed in its action, which ends with the test."""
    (project_dir / ".loops" / "job.yaml").write_text(GATE)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    wait_for((project_dir / "here").exists)
    kill_with_keeper(process)
    process.wait()
    (project_dir / "here").unlink()
    yield project_dir
    (project_dir / "go").touch()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_only_one_of_several_concurrent_resumes_succeeds(cut: Path) -> None:
    """Five `llc resume` of one run start together: one continues it, four report that it is active."""
    words = [sys.executable, "-m", "llc", "resume", "job", "--json", "-q"]
    processes = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(5)
    ]
    wait_for(lambda: sum(process.poll() is not None for process in processes) == 4)
    wait_for((cut / "here").exists)
    (cut / "go").touch()
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    kinds = sorted(answer["error"]["kind"] if answer["error"] else "" for answer in answers)
    assert kinds == ["", "run-is-live", "run-is-live", "run-is-live", "run-is-live"]
    assert len((cut / "pids").read_text().split()) == 2


def test_a_process_with_a_reused_pid_is_neither_holder_nor_killed(cut: Path) -> None:
    """The recorded pids belong to other processes now: the run resumes and these processes survive."""
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (folder,) = cut.glob(".loops/.running/job-*")
        about = json.loads((folder / "lock").read_text())
        (folder / "lock").write_text(json.dumps({**about, "pid": stranger.pid}))
        path = folder / "job.events.jsonl"
        lines = path.read_bytes().splitlines()
        events = [event for line in lines if (event := journal.unseal(line)) is not None]
        for event in events:
            if event["event"] == "process":
                event["pid"] = stranger.pid
        path.write_bytes(b"".join(map(journal.seal, events)))
        (cut / "go").touch()
        done = subprocess.run([sys.executable, "-m", "llc", "resume", "job", "-q"], timeout=60)
        assert done.returncode == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


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
def test_resume_does_not_need_the_expendable_files(cut: Path, text: str) -> None:
    """Lock, state, live and active files: every subcommand answers, and resuming needs none of them."""
    (folder,) = cut.glob(".loops/.running/job-*")
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
    (cut / "go").touch()
    assert llc("resume", "job").returncode == 0


def test_oversized_files_are_not_read(cut: Path) -> None:
    """Huge sparse files replace files of a run, the cache and the configuration; memory stays small."""
    (folder,) = cut.glob(".loops/.running/job-*")
    cached = list(cut.glob(".loops/.cache/*.*"))
    names = ("program.llb", "job.state.json", "lock", "active", "checkpoint-1")
    for path in (*cached, *(folder / name for name in names)):
        os.truncate(path, 10 << 30) if path.exists() else path.touch()
    shown = llc("status", "job", memory=2 << 30)
    assert (shown.returncode, "internal" in shown.stderr) == (0, False), shown.stderr
    (cut / "go").touch()
    again = llc("resume", "job", memory=2 << 30)
    assert (again.returncode, "it is larger than 268,435,456 bytes" in again.stderr) == (0, True), (
        again.stderr
    )
    assert llc("run", "job", memory=2 << 30).returncode == 0
    (cut / ".loops/config.yaml").touch()
    os.truncate(cut / ".loops/config.yaml", 10 << 30)
    refused = llc("run", "job", memory=2 << 30)
    assert (refused.returncode, "error[file-too-large]" in refused.stderr) == (2, True), refused.stderr


def llc(*words: str, memory: int = -1) -> subprocess.CompletedProcess[str]:
    """The command with at most `memory` bytes of addresses."""
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )


def test_followed_logs_report_a_crash(cut: Path) -> None:
    """`logs -f` ends and reports the crash and the next step."""
    done = llc("logs", "job", "-f")
    assert done.returncode == 0
    assert " crashed\nResume with: llc resume job-" in done.stderr
