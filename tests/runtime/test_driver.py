"""The driver: it writes the journal before it performs effects, orders notes and always ends a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_text
from llc.ir.nodes import (
    Branch,
    Const,
    Expr,
    Function,
    Goto,
    Meta,
    Perform,
    Prim,
    Program,
    Return,
    Set,
    Slot,
    State,
)
from llc.ir.nodes import Fail as FailExit
from llc.ir.nodes import Note as NoteInstruction
from llc.runtime.effects.world import World
from llc.runtime.execution.driver import Driver
from llc.runtime.execution.effect_log import MAX_ACTION_CHARACTERS
from llc.runtime.execution.observer import Display
from llc.runtime.host import files
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted
from llc.runtime.journal import reader
from llc.runtime.journal.events import Event
from llc.runtime.journal.journal import Journal, JournalError
from llc.runtime.journal.outcome import Outcome
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import runs
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.tiered import Machine


class FunctionWorld(World):
    """A world whose effects are performed by a function, so that a test observes the moment of performing."""

    def __init__(self, answer: Callable[[Any, Context], dict[str, Any]]) -> None:
        super().__init__()
        self.answer = answer

    def perform(self, effect: Any, context: Context) -> dict[str, Any]:
        return self.answer(effect, context)


class Driven:
    """A driver with a new run folder, and access to its journal and state."""

    def __init__(self, folder: Path, image: Image, world: World, display: Display | None = None) -> None:
        runs.make_running_folder(str(folder))
        self.run = RunFolder.create(str(folder), image.name)
        self.journal = Journal.create(self.run.journal, lambda: "2024-01-15T10:30:00.000Z")
        self.interrupt = Interrupt()
        self.driver = Driver(
            Machine(image),
            world,
            self.journal,
            self.run,
            display or Display(),
            self.interrupt,
            refusals=(LookupError,),
        )

    def go(self) -> Outcome:
        try:
            return self.driver.run()
        finally:
            self.journal.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event.wire for event in reader.read(self.run.journal) if isinstance(event, Event)]

    @property
    def state(self) -> dict[str, Any]:
        state = json.loads(Path(self.run.state).read_text())
        assert isinstance(state, dict)
        return state


def loop(text: str) -> Image:
    return emit(compile_text(text).program)


def flow(*states: State, slots: tuple[str, ...] = ("x", "y")) -> Image:
    return emit(Program("flow", "main", (Function("main", (), states, (), slots),), Meta()))


def mapping(**entries: Expr) -> Expr:
    return Prim("map", tuple(part for name, value in entries.items() for part in (Const(name), value)))


ONE_STATE = """
name: one
initial: a
states:
  a: {action: 'echo hi', capture: it, on_success: b, on_failure: b}
  b: {terminal: true}
"""


def test_the_start_is_on_disk_before_the_action_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start event of an action is written and synced before the action runs."""
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(files, "fdatasync", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size))[0])
    recorded: list[str] = []

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        size = os.stat(driven.run.journal).st_size
        assert synced[-1] == size
        recorded.extend(event["event"] for event in driven.events)
        return {"output": "hi\n", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}

    driven = Driven(tmp_path, loop(ONE_STATE), FunctionWorld(answer))
    assert driven.go().status == "success"
    assert recorded == ["loop_start", "state_enter", "action_start"]


def test_the_result_is_written_before_the_machine_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result is written before the machine receives it, so a kill does not lose it."""
    resume = Machine.resume
    checked: list[str] = []

    def checked_resume(machine: Machine, *answer: Any) -> Any:
        if answer:
            result, seq = answer
            last = driven.events[-1]
            assert (last["seq"], last["result"]) == (seq, result)
            checked.append(last["event"])
        return resume(machine, *answer)

    monkeypatch.setattr(Machine, "resume", checked_resume)
    driven = Driven(tmp_path, loop(ONE_STATE), World())
    driven.go()
    assert checked == ["action_complete"]


class Synced:
    """Sizes of the journal at each of its syncs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        real = os.fdatasync
        monkeypatch.setattr(
            files, "fdatasync", lambda fd: (real(fd), self.sizes.append(os.fstat(fd).st_size))[0]
        )


TWO_STATES = """
name: two
initial: a
states:
  a: {action: 'echo a', next: b}
  b: {action: 'echo b', next: c}
  c: {terminal: true}
"""


def test_one_sync_covers_a_result_and_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sync of an action's start also covers the result of the previous action."""
    synced = Synced(monkeypatch)
    recorded: list[list[str]] = []

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        assert synced.sizes[-1] == os.stat(driven.run.journal).st_size
        recorded.append([event["event"] for event in driven.events if event["event"].startswith("action")])
        return {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}

    driven = Driven(tmp_path, loop(TWO_STATES), FunctionWorld(answer))
    assert driven.go().status == "success"
    assert recorded == [["action_start"], ["action_start", "action_complete", "action_start"]]
    assert len(synced.sizes) == 3
    assert synced.sizes[-1] == os.stat(driven.run.journal).st_size


def test_a_result_is_on_disk_before_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting effect starts only when the previous result is on disk."""
    synced = Synced(monkeypatch)
    waits: list[str] = []

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        if effect.kind == "sleep":
            waits.append("sleep")
            assert synced.sizes[-1] == os.stat(driven.run.journal).st_size
            assert any(event["event"] == "action_complete" for event in driven.events)
            return {"elapsed_ms": 2}
        return {"output": "", "stderr": "", "exit_code": len(waits) ^ 1, "duration_ms": 1, "elapsed_ms": 1}

    text = ONE_STATE.replace("initial", "backoff: 1\ninitial").replace("on_failure: b", "on_failure: a")
    driven = Driven(tmp_path, loop(text), FunctionWorld(answer))
    driven.go()
    assert waits == ["sleep"]


def test_a_result_is_synced_within_one_portion_of_fuel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a following effect, a result is synced after at most one portion of fuel."""
    synced = Synced(monkeypatch)
    sizes: list[tuple[int, int]] = []

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        sizes.append((effect.seq, synced.sizes[-1] if synced.sizes else 0))
        if effect.kind == "clock":
            assert any(event["event"] == "action_complete" for event in driven.events)
            return {"time": "2024-01-15T10:30:00.000Z", "elapsed_ms": 3}
        return {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}

    spin = flow(
        State("act", (), Perform("shell", mapping(command=Const("true")), "x", "begin")),
        State("begin", (Set("y", Const(0)),), Goto("spin")),
        State(
            "spin",
            (Set("y", Prim("add", (Slot("y"), Const(1)))),),
            Branch(Prim("ge", (Slot("y"), Const(10_000))), "ask", "spin"),
        ),
        State("ask", (), Perform("clock", mapping(), "x", "end")),
        State("end", (), Return(Slot("x"))),
    )
    driven = Driven(tmp_path, spin, FunctionWorld(answer))
    driven.go()
    (_, first), (_, second) = sizes
    assert second > first


def test_events_match_the_seed(tmp_path: Path) -> None:
    """One checked state gives the events and fields of the seed, in the same order."""
    driven = Driven(tmp_path, loop(ONE_STATE), World())
    driven.go()
    kinds = [event["event"] for event in driven.events]
    assert kinds == [
        "loop_start", "state_enter", "action_start", "process", "action_complete",
        "evaluate", "route", "state_enter", "loop_complete", "run_end",
    ]  # fmt: skip
    by_kind = {event["event"]: event for event in driven.events}
    assert by_kind["loop_start"]["loop"] == "one"
    assert by_kind["action_start"]["action"] == "echo hi"
    assert by_kind["action_complete"]["exit_code"] == 0
    assert by_kind["action_complete"]["duration_ms"] >= 0
    assert by_kind["evaluate"]["type"] == "exit_code"
    assert by_kind["route"]["from"] == "a"
    assert by_kind["route"]["to"] == "b"
    assert by_kind["loop_complete"]["final_state"] == "b"
    assert all(event["ts"].endswith("Z") for event in driven.events)


def test_an_evaluate_event_has_the_confidence_as_a_field(tmp_path: Path) -> None:
    """The confidence of a model is a separate field, as in the events of the seed."""
    text = "name: m\ninitial: a\nstates: {a: {action: /do it, route: {_: b}}, b: {terminal: true}}\n"
    reply = {"verdict": "success", "confidence": 0.92, "reason": "r"}

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        if effect.kind == "evaluate":
            return {
                "reply": reply,
                "duration_ms": 1,
                "elapsed_ms": 1,
            }
        return {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}

    driven = Driven(tmp_path, loop(text), FunctionWorld(answer))
    assert driven.go().status == "success"
    (event,) = [event for event in driven.events if event["event"] == "evaluate"]
    assert event["confidence"] == event["details"]["confidence"] == 0.92


def test_a_flow_ends_with_its_value(tmp_path: Path) -> None:
    """A program that is not a loop ends with its return value."""
    image = flow(State("s", (), Return(mapping(n=Prim("add", (Const(1), Const(2)))))))
    outcome = Driven(tmp_path, image, World()).go()
    assert (outcome.status, outcome.value, outcome.exit_code) == ("success", {"n": 3}, 0)


def test_a_fault_is_an_error_with_its_position(tmp_path: Path) -> None:
    """A failing program ends with the kind and message of its fault, and exit code 1."""
    image = flow(State("s", (), FailExit(Const("no way"))))
    driven = Driven(tmp_path, image, World())
    outcome = driven.go()
    assert (outcome.status, outcome.exit_code) == ("error", 1)
    assert outcome.error is not None
    assert outcome.error["message"] == "no way"
    assert driven.events[-1]["error"]["message"] == "no way"


def test_a_refused_effect_ends_the_run(tmp_path: Path) -> None:
    """A refusal raised by the world is recorded as the error of the run."""

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        raise LookupError("no rule for it")

    driven = Driven(tmp_path, loop(ONE_STATE), FunctionWorld(answer))
    outcome = driven.go()
    assert outcome.error is not None
    assert outcome.error["message"] == "no rule for it"
    assert driven.events[-1]["event"] == "run_end"


def test_an_interrupted_action_leaves_a_resumable_run(tmp_path: Path) -> None:
    """A run interrupted during an action ends without `run_end` and names its position."""

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        raise Interrupted

    driven = Driven(tmp_path, loop(ONE_STATE), FunctionWorld(answer))
    outcome = driven.go()
    assert (outcome.status, outcome.exit_code) == ("interrupted", 130)
    assert driven.events[-1]["event"] == "run_interrupted"
    assert driven.state["status"] == "interrupted"


def test_a_loop_that_never_waits_can_be_interrupted(tmp_path: Path) -> None:
    """A program that computes for ever stops between two portions of fuel."""
    image = flow(State("a", (Set("x", Const(1)),), Goto("b")), State("b", (), Goto("a")))
    driven = Driven(tmp_path, image, World())
    driven.interrupt.set()
    assert driven.go().status == "interrupted"


def test_notes_of_a_computing_loop_are_written_continuously(tmp_path: Path) -> None:
    """50,000 iterations with a note each are all in the journal, in order."""
    count = 50_000
    turn = State(
        "turn",
        (
            Set("x", Prim("add", (Slot("x"), Const(1)))),
            NoteInstruction("cycle", mapping(cycle=Slot("x"))),
        ),
        Branch(Prim("lt", (Slot("x"), Const(count))), "turn", "end"),
    )
    image = flow(State("s", (Set("x", Const(0)),), Goto("turn")), turn, State("end", (), Return(Slot("x"))))
    driven = Driven(tmp_path, image, World())
    assert driven.go().value == count
    assert [event["cycle"] for event in driven.events if event["event"] == "cycle"] == list(
        range(1, count + 1)
    )


def test_the_arguments_contain_a_long_command_completely(tmp_path: Path) -> None:
    """The field `action` is an excerpt for people; the arguments record the exact request."""
    command = "true " + "x" * MAX_ACTION_CHARACTERS
    request = Perform("shell", mapping(command=Const(command)), "x", "t")
    driven = Driven(tmp_path, flow(State("s", (), request), State("t", (), Return(Const(None)))), World())
    driven.go()
    (start,) = [event for event in driven.events if event["event"] == "action_start"]
    assert start["args"]["command"] == command
    assert len(start["action"]) < len(command)


def test_passive_effects_are_recorded(tmp_path: Path) -> None:
    """Clock and environment are recorded, because a resumed program must see the same values."""
    image = flow(
        State("s", (), Perform("clock", mapping(), "x", "t")),
        State("t", (), Perform("env", mapping(names=Const(("HOME",))), "y", "u")),
        State("u", (), Return(Slot("y"))),
    )
    driven = Driven(tmp_path, image, World())
    value = driven.go().value
    ends = [event for event in driven.events if event["event"] == "effect_complete"]
    assert [event["kind"] for event in ends] == ["clock", "env"]
    assert ends[1]["result"] == value


def test_the_state_file_has_the_fields_of_the_seed(tmp_path: Path) -> None:
    """The fields are current_state, iteration, captured, last_result and started_at."""
    driven = Driven(tmp_path, loop(ONE_STATE), World())
    driven.go()
    state = driven.state
    assert state["current_state"] == "b"
    assert state["iteration"] == 1
    assert state["captured"]["it"]["output"] == "hi\n"
    assert state["captured"]["it"]["exit_code"] == 0
    assert state["last_result"] == {"verdict": "success", "details": {"exit_code": 0}}
    assert state["started_at"] == "2024-01-15T10:30:00.000Z"


def test_the_state_file_is_current_during_a_long_action(tmp_path: Path) -> None:
    """While an action runs, the state file names the current state."""
    text = ONE_STATE.replace("echo hi", "while [ ! -e go ]; do sleep 0.02; done")

    class WatchingDisplay(Display):
        def tick(self) -> None:
            if os.path.exists(driven.run.state) and driven.state["current_state"] == "a":
                (tmp_path / "go").touch()

    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        driven = Driven(tmp_path, loop(text), World(), WatchingDisplay())
        assert driven.go().status == "success"
    finally:
        os.chdir(before)


def test_the_state_file_is_bounded(tmp_path: Path) -> None:
    """It shows the ends of 200 captured texts, and 4096 characters of a single one."""
    states = [f"  s{n}: {{action: 'seq 2000', capture: c{n}, next: s{n + 1}}}" for n in range(200)]
    text = "\n".join(["name: many", "initial: s0", "states:", *states, "  s200: {terminal: true}"]) + "\n"

    class LongOutputWorld(World):
        def perform(self, effect: Any, context: Context) -> dict[str, Any]:
            times = {"duration_ms": 1, "elapsed_ms": 1}
            return {"output": "x" * 2000 + "end", "stderr": "", "exit_code": 0, **times}

    driven = Driven(tmp_path, loop(text), LongOutputWorld())
    driven.go()
    assert os.path.getsize(driven.run.state) < 200_000
    assert driven.state["captured"]["c7"]["output"].endswith("xend")


def test_an_unwritable_state_file_does_not_end_the_run(tmp_path: Path) -> None:
    """The state file is only for inspection; the run continues without it."""
    driven = Driven(tmp_path, loop(ONE_STATE), World())
    os.mkdir(driven.run.state)
    assert driven.go().status == "success"


def test_an_unwritable_journal_stops_the_run(tmp_path: Path) -> None:
    """An action is not performed if its start cannot be recorded."""
    performed: list[Any] = []

    def answer(effect: Any, context: Context) -> dict[str, Any]:
        performed.append(effect)
        return {}

    driven = Driven(tmp_path, loop(ONE_STATE), FunctionWorld(answer))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, driven.journal._fd)
    os.close(full)
    with pytest.raises(JournalError, match="no space left"):
        driven.driver.run()
    assert performed == []


def test_an_action_receives_its_position(tmp_path: Path) -> None:
    """LLC_RUN_ID, LLC_EFFECT_ID, LLC_LOOP, LLC_STATE and LLC_ITERATION are in its environment."""
    text = ONE_STATE.replace("echo hi", "echo $LLC_RUN_ID $LLC_EFFECT_ID $LLC_LOOP $LLC_STATE $LLC_ITERATION")
    driven = Driven(tmp_path, loop(text), World())
    driven.go()
    run = driven.run.id
    assert driven.state["captured"]["it"]["output"] == f"{run} {run}/1 one a 1\n"
