"""Checkpoints: resuming a long run is as fast as a short one; results do not depend on checkpoints."""

from __future__ import annotations

import io
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_text
from llc.runtime.effects.world import World
from llc.runtime.execution.driver import Driver
from llc.runtime.execution.observer import Display
from llc.runtime.host import files
from llc.runtime.host.effect_context import Context, Interrupt
from llc.runtime.journal import journal, reader
from llc.runtime.journal.journal import Journal
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.journal.run_history import RunHistory
from llc.runtime.launch import resume as launch_resume
from llc.runtime.project import options, run_programs
from llc.runtime.project.load import load_image
from llc.runtime.recovery import resumption
from llc.runtime.runs import checkpoint_reader, locks, runs
from llc.runtime.runs import checkpoints as checkpoints
from llc.runtime.runs.checkpoints import Checkpoints
from llc.vm.code.emit import emit

# The sum makes it visible in the end if an effect got the result of another effect.
LOOP = """
name: count
initial: work
max_iterations: LIMIT
states:
  work:
    action: "echo ${captured.sum.output:default=0}"
    capture: sum
    on_success: $current
    on_failure: failed
  failed: {terminal: true, status: failure}
"""
STEPS = 400


class CountingWorld(World):
    """Adds one to the number that an action echoes; after `limit` actions it simulates a kill."""

    def __init__(self, limit: int, pad: int = 0) -> None:
        super().__init__()
        self.remaining = limit
        self.pad = pad

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        if self.remaining == 0:
            raise KeyboardInterrupt
        self.remaining -= 1
        word = effect.args["command"].split()[1].strip("'")
        number = int(word.split("|")[0]) + 1
        output = f"{number}|" + "x" * self.pad if self.pad else str(number)
        context.on_process(1, "no boot:1")  # type: ignore[misc]
        return {"output": output, "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": number}


@pytest.fixture
def project(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Hundreds of steps need no real syncs; the journal tests cover durability.
    monkeypatch.setattr(files, "fdatasync", lambda fd: None)
    monkeypatch.setattr(checkpoints, "SHARE", 0)
    return project_dir


def interrupted_run(world: CountingWorld, limit: int = STEPS + 5, text: str = LOOP) -> RunFolder:
    """A run that was killed after `world` had performed all its actions."""
    image = emit(compile_text(text.replace("LIMIT", str(limit)), ".loops/count.yaml").program)
    run, lock = locks.start("", image.name, ["."], {"program": image.name})
    journal.write_file(run.image, image.to_bytes())
    journal_file = Journal.create(run.journal, lambda: "2024-01-15T10:30:00.000Z")
    about = {"run": run.id, "program": image.name, "path": ".loops/count.yaml"}
    journal_file.write("run_start", {"format": 1, **about, "program_hash": image.program_hash, "llc": ""})
    from llc.vm.tiered import Machine

    interrupt = Interrupt()
    driver = Driver(
        Machine(image), world, journal_file, run, Display(), interrupt, checkpoints=Checkpoints(run)
    )
    with pytest.raises(KeyboardInterrupt):
        driver.run()
    journal_file.close()
    lock.close()
    interrupt.close()
    return run


def resume(run: RunFolder) -> Any:
    """Resume the run with a counting world; return status, iterations, steps and sum."""
    values = options.Values(run.id, quiet=True, accept_loss=True)
    assert launch_resume.resume(values) == 3  # at its limit
    finished = RunFolder("", run.path.replace(".running", ".history"))
    end = finished.end()
    assert end is not None
    state = json.loads(Path(finished.state).read_text())
    return end["status"], end["iterations"], end["steps"], state["captured"]["sum"]["output"].strip()


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed runs use a counting world like the one that they started in."""
    monkeypatch.setattr("llc.runtime.launch.command.World", lambda: CountingWorld(10**6))


EXPECTED = ("limit", STEPS + 5, STEPS + 5, str(STEPS + 5))


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "gone":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case "torn":
            path.write_bytes(data[:-20])
        case "flipped":
            path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        case "foreign":
            forge(path, {"run": "count-20200101-000000-0000"})
        case "newer":
            forge(path, {"format": 2})
        case "forged":
            forge(path, {"snapshot": {"format": 1}})


def forge(path: Path, change: dict[str, Any]) -> None:
    """Change a checkpoint and update its checksum."""
    event = journal.unseal(zlib.decompress(path.read_bytes())[:-1])
    assert event is not None
    path.write_bytes(zlib.compress(journal.seal({**event, **change})))


def test_events_before_a_checkpoint_are_not_replayed(project: Path) -> None:
    """Of a run of 400 steps, only the last few are read and executed again."""
    run = interrupted_run(CountingWorld(STEPS))
    resumed = resumption.Resumption(run, pytest.fail)
    image = load_image(run.image)
    position = resumed.replay(image, CountingWorld(0))
    machine = position.machine
    assert 0 < len(resumed.history.effects) < 150
    assert machine.seq == STEPS + 1
    assert position.progress.iteration == STEPS + 1
    assert position.lost == []


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("second", ["kept", "gone", "torn"])
@pytest.mark.parametrize(
    "first", ["kept", "gone", "emptied", "torn", "flipped", "foreign", "newer", "forged"]
)
def test_damaged_checkpoints_do_not_change_the_outcome(
    project: Path, first: str, second: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The newest intact checkpoint, an earlier one or the whole journal is used; counters are exact."""
    run = interrupted_run(CountingWorld(STEPS))
    newest, older = (checkpoint.turn + 1 for checkpoint in checkpoint_reader.load(run)[0])
    for number, how in ((newest, first), (older, second)):
        damage(Path(run.path) / f"checkpoint-{number}", how)
    assert resume(run) == EXPECTED
    shown = capfd.readouterr().err
    assert (f"checkpoint-{newest}" in shown) == (first not in ("kept", "gone"))


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_a_checkpoint_beyond_the_journal_is_ignored(project: Path, keep: float) -> None:
    """After a power failure the journal may be shorter than a checkpoint expects."""
    run = interrupted_run(CountingWorld(STEPS))
    path = Path(run.journal)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: int(len(lines) * keep)]))
    assert resume(run) == EXPECTED


@pytest.mark.usefixtures("counting")
def test_a_checkpoint_with_a_lost_output_file_is_ignored(project: Path) -> None:
    """The journal then determines which results are lost."""
    run = interrupted_run(CountingWorld(STEPS, pad=40_000), limit=STEPS + 5)
    shutil.rmtree(run.outputs)
    notices = []
    resumed = resumption.Resumption(run, notices.append)
    position = resumed.replay(load_image(run.image), CountingWorld(0))
    assert resumed.history.checkpoint is None
    assert any("cannot be read" in notice for notice in notices)
    assert any("the result of effect 1 is lost" in notice for notice in position.lost)


def test_a_checkpoint_is_readable_only_by_its_owner(project: Path) -> None:
    """It contains the captures of the run."""
    run = interrupted_run(CountingWorld(STEPS))
    assert {path.stat().st_mode & 0o777 for path in Path(run.path).glob("checkpoint-*")} == {0o600}


def test_a_finished_run_leaves_no_checkpoint(project: Path) -> None:
    """Checkpoints serve only resuming; the history keeps the journal."""
    run = interrupted_run(CountingWorld(STEPS))
    assert checkpoint_reader.load(run)[0]
    launch_resume.resume(options.Values(run.id, quiet=True))
    assert not list(project.glob(".loops/.history/*/checkpoint-*"))


def test_an_interrupted_run_leaves_a_checkpoint(project: Path) -> None:
    """At each pause, also of a short run."""
    image = emit(compile_text(LOOP.replace("LIMIT", "9"), ".loops/count.yaml").program)
    runs.make_running_folder("")
    run = RunFolder.create("", "count")
    journal_file = Journal.create(run.journal, lambda: "2024-01-15T10:30:00.000Z")
    interrupt = Interrupt()
    from llc.vm.tiered import Machine

    class StoppingWorld(CountingWorld):
        def perform(self, effect: Any, context: Context) -> dict[str, Any]:
            if self.remaining == 1:
                interrupt.set()
            return super().perform(effect, context)

    driver = Driver(
        Machine(image),
        StoppingWorld(3),
        journal_file,
        run,
        Display(),
        interrupt,
        checkpoints=Checkpoints(run),
    )
    assert driver.run().status == "interrupted"
    journal_file.close()
    interrupt.close()
    ((checkpoint,), notices) = checkpoint_reader.load(run)
    assert notices == []
    assert checkpoint.offset == Path(run.journal).stat().st_size
    assert checkpoint.facts["progress"][:3] == ["work", 4, 4]


class GrowingWorld(CountingWorld):
    """The output of an action is `portion` of the number of remaining actions."""

    def __init__(self, limit: int, portion: Callable[[int], str]) -> None:
        super().__init__(limit)
        self.portion = portion

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        result = super().perform(effect, context)
        return {**result, "output": self.portion(self.remaining)}


def test_stored_bytes_grow_linearly_with_the_state(project: Path) -> None:
    """1,000 steps, 1 KB more captured by every second one: journal, outputs and checkpoints within 2 MB."""
    count = 500
    names = "".join(
        f"  s{n}: {{action: 'echo 0', capture: c{n}, next: p{n}}}\n"
        f"  p{n}: {{action: 'echo 1', next: {f's{n + 1}' if n + 1 < count else 'done'}}}\n"
        for n in range(count)
    )
    text = f"name: grow\ninitial: s0\nmax_iterations: 10\nstates:\n{names}  done: {{terminal: true}}\n"
    world = GrowingWorld(2 * count - 1, lambda remaining: "" if remaining % 2 else f"{remaining:04}" * 256)
    run = interrupted_run(world, text=text)
    stored_bytes = sum(
        path.stat().st_size for path in Path(run.path).rglob("*") if path.name != "program.llb"
    )
    assert stored_bytes <= 2_000_000
    resumed = resumption.Resumption(run, pytest.fail)
    assert len(resumed.history.effects) < count


def test_a_scripted_run_resumes_at_its_script_position(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Used rules stay used, and the clock of the script continues."""
    from llc.runtime.effects.script_reader import load_world

    (project / "world.yaml").write_text(
        "rules:\n  - {state: work, times: 200, output: a}\n  - {state: work, output: b, duration_ms: 1000}\n"
    )
    world = load_world("world.yaml")
    for rule, used in zip(world.rules, (200, 7), strict=True):
        rule.used = used
    world._elapsed = 7.0
    fresh = load_world("world.yaml")
    assert fresh.restore(json.loads(json.dumps(world.save())))
    assert fresh.save() == world.save()
    assert fresh.monotonic() == 7.0
    (project / "world.yaml").write_text("rules:\n  - {state: work, output: b}\n")
    assert not load_world("world.yaml").restore(world.save())


@pytest.mark.usefixtures("counting")
def test_the_history_in_each_checkpoint_is_that_of_the_journal(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fold of the file and the fold of the written events are equal."""
    fold = Checkpoints._fold
    checked_lines: list[int] = []

    def checked(self: Checkpoints, journal: Journal) -> dict[str, Any] | None:
        data = fold(self, journal)
        expected = RunHistory.of(reader.read(journal.path)).to_data()
        assert json.loads(json.dumps(data)) == json.loads(json.dumps(expected))
        checked_lines.append(journal.lines)
        return data

    monkeypatch.setattr(Checkpoints, "_fold", checked)
    monkeypatch.setattr(checkpoints, "SPACE", 2048)
    run = interrupted_run(CountingWorld(STEPS))
    before = len(checked_lines)
    assert before > 2
    assert resume(run) == EXPECTED
    assert len(checked_lines) > before
    finished = RunFolder("", run.path.replace(".running", ".history"))
    history = checkpoint_reader.history(finished)
    assert history.end is not None
    assert history.lines == checked_lines[-1]


def test_the_journal_is_on_disk_before_a_checkpoint(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may lose an earlier write and keep a later one, and events before a checkpoint are not read."""
    write, is_synced = RunFolder.write, []

    def write_and_check(run: RunFolder, name: str, data: bytes, durable: bool = True) -> None:
        if name.startswith("checkpoint"):
            is_synced.append(journals[-1].synced() == (journals[-1].size, journals[-1].lines))
        write(run, name, data, durable)

    journals: list[Journal] = []
    create = Journal.create

    def create_and_collect(*args: Any) -> Journal:
        journals.append(create(*args))
        return journals[-1]

    monkeypatch.setattr(RunFolder, "write", write_and_check)
    monkeypatch.setattr(Journal, "create", create_and_collect)
    interrupted_run(CountingWorld(STEPS))
    assert is_synced
    assert all(is_synced)


def test_a_resume_makes_the_names_of_long_outputs_durable(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier process may have died, or its disk may have failed, before the sync."""
    run = interrupted_run(CountingWorld(3))
    run.blobs.store("x" * 100_000)
    sync_names, synced = files.sync_names, []
    monkeypatch.setattr(files, "sync_names", lambda path: (synced.append(path), sync_names(path)))
    run.settle()
    assert run.outputs in synced


@pytest.mark.usefixtures("counting")
def test_a_resume_reads_only_the_end_of_the_journal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the first line and the end; it does not search the whole journal for linked code."""
    run = interrupted_run(CountingWorld(STEPS))
    size = Path(run.journal).stat().st_size
    read_bytes = 0

    class CountedFile(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            nonlocal read_bytes
            count = super().readinto(buffer)
            read_bytes += count or 0
            return count

    open_file = files.open

    def open_counted(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        name = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path)
        if mode == "rb" and name.endswith(".jsonl"):
            return io.BufferedReader(CountedFile(path), 8192)
        return open_file(path, mode, *args, **kwargs)

    monkeypatch.setattr(files, "open", open_counted)
    assert resume(run) == EXPECTED
    assert checkpoints.SPACE < size < 8 * checkpoints.SPACE
    assert 0 < read_bytes < size


@pytest.mark.parametrize("block", [1, 100, 300, 1 << 20])
def test_program_changes_are_found_anywhere_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Lines are searched block by block; a damaged or overlong line is not a change."""
    monkeypatch.setattr(run_programs, "_BLOCK_BYTES", block)
    path = tmp_path / "x.events.jsonl"
    links = [["a.yaml", "s", str(number)] for number in range(3)]
    changed = [
        journal.seal({"event": "program_changed", "image": "program-2.llb", "link": link}) for link in links
    ]
    note = journal.seal({"event": "log", "message": '\n{"event":"program_changed"' * 5})
    path.write_bytes(
        b"".join([note, changed[0], changed[1], note, changed[0][:-9] + b"\n", note, changed[2]])
    )
    links_found = run_programs.links(str(path))
    assert links_found == (tuple(map(tuple, links)) if block > len(changed[0]) else ())
