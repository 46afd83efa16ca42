"""Concurrent effects: real processes, one journal, and interruption of any of them."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from keepers import kill_with_keeper
from waiting import is_running, wait_for

from llc.ir.text import parse_program
from llc.runtime.effects.world import World
from llc.runtime.execution.driver import Driver
from llc.runtime.execution.observer import Display
from llc.runtime.host.effect_context import Context, Interrupt
from llc.runtime.journal import journal, reader, run_history
from llc.runtime.journal.events import Event
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.launch import resume as launch_resume
from llc.runtime.project import options
from llc.runtime.recovery.replay import replay
from llc.runtime.runs import runs
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.tiered import Machine

# Runs each item as a command, then a second command with its result; the value has all outputs.
EACH = """
program each entry main
function main() locals(found)
  state start
    parallel closure work() over ITEMS -> found then end
  state end
    return found
function work(item) locals(answer)
  state first
    perform KIND -> answer then second
  state second
    perform shell map("command", concat("echo second ", get(answer, "exit_code"), " >> seconds; echo ", \
get(answer, "output"))) -> answer then end
  state end
    return get(answer, "output")
"""
# Waits until all three have started, so that it ends only if they run concurrently.
MEET = "touch here.{0}; until [ -e here.a ] && [ -e here.b ] && [ -e here.c ]; do sleep 0.01; done; echo {0}"
# Logs its start and waits for permission to end; after permission it does not wait again.
GATE = "echo {0} >> log; touch here.{0}; until [ -e go.{0} ]; do sleep 0.01; done; echo {0}"


def program(commands: list[str], more: str = "") -> bytes:
    text = EACH.replace("ITEMS", json.dumps(commands))
    kind = f'shell map("command", item{more})'
    return emit(parse_program(text.replace("KIND", kind), "each.ir")).to_bytes()


@pytest.fixture
def project(project_dir: Path) -> Path:
    return project_dir


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "llc", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def outcome_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=60)
    outcome = json.loads(output)
    assert isinstance(outcome, dict)
    return {**outcome, "exit": process.returncode, "shown": errors}


def run(commands: list[str], *words: str, more: str = "") -> subprocess.Popen[str]:
    Path("each.llb").write_bytes(program(commands, more))
    return start("run", "each.llb", "--json", *words)


def events(project: Path) -> list[dict[str, Any]]:
    (path,) = project.glob(".loops/.*/each-*/each.events.jsonl")
    try:
        recorded = reader.read(str(path))
    except reader.ReadError:  # the run has just ended, and its folder is in the history now
        (path,) = project.glob(".loops/.history/each-*/each.events.jsonl")
        recorded = reader.read(str(path))
    return [event.wire for event in recorded if isinstance(event, Event)]


def seqs(project: Path, kind: str) -> list[int]:
    return [event["seq"] for event in events(project) if event["event"] == kind]


def test_pending_effects_run_concurrently(project: Path) -> None:
    """Three actions that wait for each other all end; the results have the order of the items."""
    outcome = outcome_of(run([MEET.format(name) for name in "abc"]))
    assert (outcome["status"], outcome["value"]) == ("success", ["a\n", "b\n", "c\n"])
    assert seqs(project, "action_start")[:3] == [1, 2, 3]
    assert sorted(seqs(project, "action_complete")) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("words", "limit"), [(["--jobs", "2"], 2), (["--jobs", "1"], 1), ([], 8)])
def test_jobs_limits_concurrent_effects(project: Path, words: list[str], limit: int) -> None:
    """The default is eight."""
    # Long enough that all of them start before the first ends, also on a busy machine.
    commands = [f"echo + >> log; sleep {0.05 * limit}; echo - >> log"] * 12
    assert outcome_of(run(commands, *words))["status"] == "success"
    active = peak = 0
    for line in (project / "log").read_text().splitlines():
        active += 1 if line == "+" else -1
        peak = max(peak, active)
    assert peak == limit


def test_calls_continue_in_completion_order(project: Path) -> None:
    """A call continues when its action ends, while others wait; the journal has that order."""
    process = run([GATE.format(name) for name in "abc"])
    for name in "cab":
        wait_for((project / f"here.{name}").exists)
        (project / f"go.{name}").touch()
        wait_for(lambda name=name: len(seqs(project, "action_complete")) == 2 * ("cab".index(name) + 1))  # type: ignore[misc]
    assert outcome_of(process)["value"] == ["a\n", "b\n", "c\n"]
    assert seqs(project, "action_complete") == [3, 4, 1, 5, 2, 6]


def test_each_line_of_output_names_its_effect(project: Path) -> None:
    """Lines are shown as they arrive, with the number of the effect."""
    outcome = outcome_of(
        run(["echo one; touch here.x; until [ -e here.y ]; do sleep 0.01; done", "touch here.y; exit 3"])
    )
    shown = outcome["shown"]
    assert re.search(r"^#1 [→>-]+ echo one;", shown, re.M)
    assert re.search(r"^#1 [│|] one$", shown, re.M)
    assert re.search(r"^#2 [✗x] exit 3$", shown, re.M)


def test_the_state_file_is_current_while_actions_write_continuously(project: Path) -> None:
    """Inspection shows the position of the run, however much output there is."""
    writes = "until [ -e seen ]; do echo line; done"
    process = run([writes, writes])

    def is_seen() -> bool:
        return any(
            "running" in path.read_text() for path in project.glob(".loops/.running/*/each.state.json")
        )

    wait_for(is_seen)
    (project / "seen").touch()
    assert outcome_of(process)["status"] == "success"


def test_sleeping_takes_no_slot_of_the_pool(project: Path) -> None:
    """Fifty calls sleep concurrently with an action, for every value of `--jobs`."""
    text = EACH.replace("ITEMS", json.dumps([0.2] * 50)).replace("KIND", 'sleep map("seconds", item)')
    text = re.sub(
        r"state second\n.*?\n",
        'state second\n    answer = map("output", "slept")\n    goto end\n',
        text,
        flags=re.S,
    )
    Path("each.llb").write_bytes(emit(parse_program(text, "each.ir")).to_bytes())
    assert outcome_of(start("run", "each.llb", "--json", "--jobs", "1"))["value"] == ["slept"] * 50
    kinds = [event["event"] for event in events(project)]
    assert kinds.index("effect_complete") > kinds.index("effect_start") + 40


def interrupt_llc(project: Path, number: int) -> dict[int, int]:
    """Interrupt llc during three actions, of which the second has ended; return the pids of the others."""
    process = run([GATE.format(name) for name in "abc"])
    for name in "abc":
        wait_for((project / f"here.{name}").exists)
    (project / "go.b").touch()
    wait_for(lambda: 4 in seqs(project, "action_complete"))
    pids = {event["seq"]: event["pid"] for event in events(project) if event["event"] == "process"}
    if number == signal.SIGKILL:
        kill_with_keeper(process)
    else:
        process.send_signal(number)
    process.communicate(timeout=30)
    return {seq: pids[seq] for seq in (1, 3)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_only_unfinished_effects_run_again_after_a_crash(project: Path, number: int) -> None:
    """Surviving actions are ended first; finished ones are not repeated."""
    pids = interrupt_llc(project, number)
    assert all(is_running(pid) for pid in pids.values()) == (number == signal.SIGKILL)
    for name in "ac":
        (project / f"go.{name}").touch()
    (path,) = project.glob(".loops/.running/each-*")
    (project / "go.a").unlink()
    process = start("resume", path.name, "--json")
    wait_for(lambda: not any(is_running(pid) for pid in pids.values()))
    (project / "go.a").touch()
    outcome = outcome_of(process)
    assert (outcome["status"], outcome["value"]) == ("success", ["a\n", "b\n", "c\n"])
    assert sorted((project / "log").read_text().split()) == ["a", "a", "b", "c", "c"]
    assert (project / "seconds").read_text() == "second 0\n" * 3


def test_each_effect_in_doubt_follows_its_own_policy(project: Path) -> None:
    """`fail` gives an error for the interrupted effect, `rerun` performs it again; both are recorded."""
    gates = {name: GATE.format(name) for name in "abc"}
    text = EACH.replace(
        "ITEMS", json.dumps([[gates["a"], "fail"], [gates["b"], "rerun"], [gates["c"], "fail"]])
    )
    text = text.replace("KIND", 'shell map("command", first(item), "on_unknown", nth(item, 1))')
    Path("each.llb").write_bytes(emit(parse_program(text, "each.ir")).to_bytes())
    process = start("run", "each.llb", "--json")
    for name in "abc":
        wait_for((project / f"here.{name}").exists)
        (project / f"go.{name}").touch() if name == "b" else None
    wait_for(lambda: 4 in seqs(project, "action_complete"))
    kill_with_keeper(process)
    process.communicate()
    (path,) = project.glob(".loops/.running/each-*")
    outcome = outcome_of(start("resume", path.name, "--json"))
    assert outcome["value"] == ["\n", "b\n", "\n"]
    assert sorted((project / "seconds").read_text().split()) == ["0", "1", "1", "second", "second", "second"]
    (resumed,) = [event for event in events(project) if event["event"] == "run_resume"]
    assert resumed["unknown"] == {"1": "fail", "3": "fail"}


class LateWorld(World):
    """Ends each action only after a stop request, but with a result."""

    def beside(self) -> World:
        return self

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        self.started.put(effect.seq)
        while not context.interrupt.is_set:
            time.sleep(0.005)
        return {"output": "kept", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}

    started: queue.SimpleQueue[int] = queue.SimpleQueue()


def test_an_interrupted_run_keeps_finished_results(project: Path) -> None:
    """Results available at a stop request are recorded in order, with the events that follow from them."""
    image = Image.from_bytes(program(["a", "b"]))
    runs.make_running_folder("")
    folder = RunFolder.create("", "each")
    journal_file = journal.Journal.create(folder.journal, lambda: "2024-01-15T10:30:00.000Z")
    interrupt = Interrupt()
    world = LateWorld()
    driver = Driver(Machine(image), world, journal_file, folder, Display(), interrupt)
    stopper = threading.Thread(target=lambda: (world.started.get(), world.started.get(), interrupt.set()))
    stopper.start()
    assert driver.run().status == "interrupted"
    stopper.join()
    journal_file.close()
    interrupt.close()
    assert sorted(seqs(project, "action_complete")) == [1, 2]
    machine = Machine(image)
    position = replay(machine, run_history.load(folder.journal), journal.Blobs(folder.outputs), World())
    assert sorted(position.open) == [3, 4]
    assert set(position.open.values()) == {None}


EXIT_PROGRAM = """
program each entry main
function main() locals(found)
  state start
    parallel closure work() over ["stay", "leave"] -> found then end
  state end
    return found
function work(item) locals(answer)
  state first
    branch eq(item, "leave") wait stay
  state stay
    perform shell map("command", "echo $$ > pid; touch here; sleep 600") -> answer then end
  state wait
    perform shell map("command", "until [ -e here ]; do sleep 0.01; done") -> answer then leave
  state leave
    perform exit map("code", 7) -> answer then end
  state end
    return answer
"""


def test_exit_in_one_call_ends_the_others(project: Path) -> None:
    """`exit` ends the run and the actions that other calls have started."""
    Path("each.llb").write_bytes(emit(parse_program(EXIT_PROGRAM, "each.ir")).to_bytes())
    outcome = outcome_of(start("run", "each.llb", "--json"))
    assert (outcome["exit"], outcome["terminated_by"]) == (7, "exit")
    assert not is_running(int((project / "pid").read_text()))


def test_resuming_concurrent_effects_keeps_their_order(project: Path) -> None:
    """Interrupted after each event in turn, a run with many concurrent calls has the same value."""
    commands = [f"echo {n} >> log; sleep 0.0{9 - n}; echo {n}" for n in range(4)]
    value = outcome_of(run(commands))["value"]
    assert value == ["0\n", "1\n", "2\n", "3\n"]
    (finished,) = project.glob(".loops/.history/each-*")
    lines = (finished / "each.events.jsonl").read_bytes().splitlines(keepends=True)
    target = project / ".loops" / ".running" / finished.name
    for count in range(1, len(lines)):
        (finished / "active").unlink()  # it has the active time of the complete journal
        os.rename(finished, target)
        (target / "each.events.jsonl").write_bytes(b"".join(lines[:count]))
        completed = [
            json.loads(line)["seq"] for line in lines[:count] if b'"event":"action_complete"' in line
        ]
        (project / "log").write_text("")
        assert launch_resume.resume(options.Values(finished.name, quiet=True)) == 0, count
        repeated = (project / "log").read_text().split()
        assert sorted(repeated) == [str(n) for n in range(4) if n + 1 not in completed], count
        end = [event for event in events(project) if event["event"] == "run_end"][-1]
        assert end["value"] == value, count


class ImmediateWorld(World):
    """Ends each action at once."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[int] = []

    def beside(self) -> World:
        return self

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        self.ended.append(effect.seq)
        return {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}


def test_one_sync_covers_all_pending_results(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 actions end while the disk is busy; the next actions start together."""
    image = Image.from_bytes(program([str(number) for number in range(64)]))
    runs.make_running_folder("")
    folder = RunFolder.create("", "each")
    journal_file = journal.Journal.create(folder.journal, lambda: "2024-01-15T10:30:00.000Z")
    interrupt = Interrupt()
    world = ImmediateWorld()
    syncs = 0

    def slow_sync(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        # Wait until the started actions have ended: with 64 slots, all starts but 64 follow a result.
        started = len(seqs(project, "action_start")) - 64 if syncs > 1 else 0
        wait_for(lambda: len(world.ended) >= started)
        time.sleep(0.05)

    monkeypatch.setattr(journal.files, "fdatasync", slow_sync)
    driver = Driver(Machine(image), world, journal_file, folder, Display(), interrupt, jobs=64)
    assert driver.run().status == "success"
    journal_file.close()
    interrupt.close()
    assert len(world.ended) == 128
    assert syncs <= 16  # two rounds; without batching, 64 for each
