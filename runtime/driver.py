"""The driver: runs a machine against a world, with the journal ahead of the world.

Owns the order in which things happen to be safe: `effect started` is on disk before the world is
touched, `effect finished` before the machine goes on. It knows no loops; what a loop means is in
the program it runs. See `spec/events.md`.
"""

from __future__ import annotations

import json
from time import monotonic

from ..ir.effects import EFFECTS
from ..vm.faults import Fault, show_place
from ..vm.machine import Done, Effect, FrameView, OutOfFuel
from ..vm.values import to_host
from .errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_LIMIT, EXIT_OK
from .journal import JournalError, write_file
from .progress import QUANTUM, Progress, event_fields
from .world import Context, Exited, Interrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..vm.faults import Place
    from ..vm.machine import Machine
    from .display import Display
    from .journal import Journal
    from .runs import RunFolder
    from .world import Interrupt, WorldLike

    Stop = Effect | Done | Fault | OutOfFuel

_EXIT_CODES = {
    "success": EXIT_OK,
    "failure": EXIT_FAILURE,
    "error": EXIT_FAILURE,
    "limit": EXIT_LIMIT,
    "interrupted": EXIT_INTERRUPTED,
}
# The state file may lag behind by so many seconds while much happens, and by one look while little does.
_STATE_EVERY = 1.0
_STATE_TEXT = 4096
# Where functions of the library come from, and how many of them call each other at most.
_LIBRARY = "stdlib/"
_NEAR = 32
# A longer command stands whole among the arguments, and shortened as `action`.
LONGEST_ACTION = 4096


class Outcome:
    """How a run ended, or that it was interrupted.

    kind: "loop" or "flow". status: "success", "failure", "error", "limit" or "interrupted".
    error: {kind, message, span, backtrace, …} where the status is "error", `place` where that was.
    value: a flow's result. code: the exit code that the program asked for.
    """

    __slots__ = (
        "code",
        "duration_ms",
        "error",
        "final_state",
        "iterations",
        "kind",
        "place",
        "program",
        "run",
        "status",
        "steps",
        "terminated_by",
        "value",
    )

    def __init__(self, run: str | None, program: str | None, kind: str, status: str) -> None:
        self.run = run
        self.program = program
        self.kind = kind
        self.status = status
        self.terminated_by: str | None = None
        self.final_state: str | None = None
        self.iterations = 0
        self.steps = 0
        self.value: Any = None
        self.code: int | None = None
        self.error: dict[str, Any] | None = None
        self.place: Place | None = None
        self.duration_ms = 0

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self.status] if self.code is None else self.code

    def to_json(self) -> dict[str, Any]:
        """The one object that `llc run --json` writes."""
        return {
            "run": self.run,
            "program": self.program,
            "status": self.status,
            "terminated_by": self.terminated_by,
            "final_state": self.final_state,
            "iterations": self.iterations,
            "steps": self.steps,
            "value": self.value,
            "error": self.error,
            "duration_ms": self.duration_ms,
        }


class Driver:
    """Drives one run to its end.

    base_ms: for how long the run was active before. progress: how far it had come. begun: when it
    began. refusals: what the world raises when it will not perform an effect; that ends the run.
    settle(effect): the answer to an effect that is not to be performed, None for one that is.
    """

    def __init__(
        self,
        machine: Machine,
        world: WorldLike,
        journal: Journal,
        run: RunFolder,
        display: Display,
        interrupt: Interrupt,
        *,
        progress: Progress | None = None,
        base_ms: int = 0,
        begun: str | None = None,
        refusals: tuple[type[Exception], ...] = (),
        settle: Callable[[Effect], dict[str, Any] | None] | None = None,
    ) -> None:
        self._settles = settle
        self._refusals = refusals
        self._machine = machine
        self._world = world
        self._journal = journal
        self._run = run
        self._display = display
        self._interrupt = interrupt
        self._progress = progress or Progress()
        self._base_ms = base_ms
        self._origin = world.monotonic()
        self._begun = begun or journal.now()
        self._program = machine.image.name
        self._kind: str = machine.image.meta["kind"]
        self._state_saved = 0.0
        self._state_is_old = True

    def elapsed_ms(self) -> int:
        """The run's active time."""
        return self._base_ms + round((self._world.monotonic() - self._origin) * 1000)

    def run(
        self,
        stop: Stop | None = None,
        notes: Iterable[tuple[str, dict[str, Any]]] = (),
        answer: dict[str, Any] | None = None,
    ) -> Outcome:
        """Run to the end, or to an interrupt.

        `stop`, `notes` and `answer` are for a run that goes on: where its machine stands, what it
        noted that is not in the journal, and the result for that effect if it is not to be performed.
        Raises JournalError when the journal cannot be written; then nothing more was performed.
        """
        machine = self._machine
        try:
            for kind, fields in notes:
                self._record_note(kind, fields)
            stop = stop or OutOfFuel()
            while True:
                if isinstance(stop, Effect):
                    result = self._perform(stop) if answer is None else self._settle(stop, answer)
                    answer = None
                    machine.refuel(QUANTUM)
                    stop = machine.resume(result)
                elif isinstance(stop, OutOfFuel):
                    self._interrupt.check()
                    machine.refuel(QUANTUM)
                    stop = machine.resume()
                else:
                    break
                for kind, fields in machine.take_notes():
                    self._note(kind, fields)
        except Interrupted:
            return self._interrupted()
        except self._refusals as error:
            return self._end(self._refused(error))
        except Exited as exit:
            return self._end(self._exited(exit.code))
        return self._end(self._done(stop) if isinstance(stop, Done) else self._fault(stop))

    # --- notes and effects --------------------------------------------------------------------

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self._progress.note(kind, fields)
        self._record_note(kind, fields)

    def _record_note(self, kind: str, fields: dict[str, Any]) -> None:
        fields = event_fields(kind, fields)
        self._journal.write(kind, fields)
        self._display.note(kind, fields)
        self._state_is_old = True

    def _perform(self, effect: Effect) -> dict[str, Any]:
        kind, args = effect.kind, effect.args
        row = EFFECTS[kind]
        self._interrupt.check()
        settled = self._settles(effect) if self._settles is not None else None
        self._record_start(effect)
        if settled is not None:
            return self._settle(effect, settled)
        if row.acts:
            self._journal.sync()
        elif row.waits:
            self._journal.flush()
        if row.waits:
            self._display.effect_start(kind, args)
            if monotonic() - self._state_saved > _STATE_EVERY:
                self._save_state()
        try:
            result = self._world.perform(effect, self._context(effect))
        except Interrupted:
            self._display.effect_cut()
            raise
        self._record_end(effect, result)
        if row.acts:
            self._journal.sync()
        if row.waits:
            self._display.effect_end(kind, result)
        self._state_is_old = True
        return result

    def _settle(self, effect: Effect, answer: dict[str, Any]) -> dict[str, Any]:
        """Give an effect that had started its result without performing it again."""
        self._record_end(effect, answer)
        self._journal.sync()
        return answer

    def _record_start(self, effect: Effect) -> None:
        args, fields = effect.args, {"seq": effect.seq, "kind": effect.kind}
        if effect.kind not in ("shell", "agent"):
            self._journal.write("effect_start", {**fields, "args": args})
            return
        action = args.get("command")
        if isinstance(action, str) and len(action) > LONGEST_ACTION:
            action = action[:LONGEST_ACTION] + " …"
        else:
            args = {name: value for name, value in args.items() if name != "command"}
        self._journal.write(
            "action_start", {"action": action, **fields, "args": args, "state": self._progress.state}
        )

    def _record_end(self, effect: Effect, result: dict[str, Any]) -> None:
        fields: dict[str, Any] = {"seq": effect.seq, "kind": effect.kind, "result": result}
        if effect.kind in ("shell", "agent"):
            facts = {"exit_code": result.get("exit_code"), "duration_ms": result.get("duration_ms")}
            self._journal.write("action_complete", {**facts, **fields})
        else:
            self._journal.write("effect_complete", fields)

    def _context(self, effect: Effect) -> Context:
        run, seq, progress = self._run, effect.seq, self._progress

        def on_process(pid: int, start_time: str) -> None:
            self._journal.write("process", {"seq": seq, "pid": pid, "start_time": start_time})
            self._journal.flush()

        return Context(
            run_id=run.id,
            effect_id=f"{run.id}/{seq}",
            loop=self._program,
            state=progress.state,
            iteration=progress.iteration,
            elapsed_ms=self.elapsed_ms,
            interrupt=self._interrupt,
            output_dir=run.outputs,
            on_output=self._display.output,
            on_process=on_process,
            on_tick=self._tick,
        )

    def _tick(self) -> None:
        self._display.tick()
        if self._state_is_old:
            self._save_state()

    # --- the end ------------------------------------------------------------------------------

    def outcome(self, status: str) -> Outcome:
        """How far the run is, ended with `status`."""
        outcome = Outcome(self._run.id, self._program, self._kind, status)
        outcome.final_state = self._progress.state
        outcome.iterations = self._progress.iteration
        outcome.steps = self._progress.steps
        outcome.duration_ms = self.elapsed_ms()
        return outcome

    def _done(self, stop: Done) -> Outcome:
        value = stop.value
        if self._kind != "loop" or not isinstance(value, dict) or value.get("status") not in _EXIT_CODES:
            outcome = self.outcome("success")
            outcome.terminated_by = "return"
            outcome.value = value
            return outcome
        outcome = self.outcome(value["status"])
        outcome.terminated_by = value.get("terminated_by")
        outcome.final_state = value.get("final_state", outcome.final_state)
        outcome.iterations = value.get("iterations", outcome.iterations)
        outcome.steps = value.get("steps", outcome.steps)
        return outcome

    def _fault(self, stop: Fault) -> Outcome:
        outcome = self.outcome("error")
        outcome.terminated_by = "error"
        outcome.place = stop.span
        outcome.error = {
            "kind": stop.kind,
            "message": stop.message,
            "span": show_place(stop.span),
            "backtrace": stop.trace_lines(),
            "details": stop.details,
        }
        return outcome

    def _exited(self, code: int) -> Outcome:
        outcome = self.outcome("success" if code == 0 else "failure")
        outcome.terminated_by = "exit"
        outcome.code = code
        return outcome

    def _refused(self, error: Exception) -> Outcome:
        outcome = self.outcome("error")
        outcome.terminated_by = "error"
        outcome.error = {"kind": "not-performed", "message": str(error), "span": None}
        return outcome

    def _end(self, outcome: Outcome) -> Outcome:
        fields = outcome.to_json()
        del fields["run"], fields["program"]
        if outcome.code is not None:
            fields["code"] = outcome.code
        self._journal.write("run_end", fields)
        self._journal.sync()
        self._save_state(outcome.status)
        self._display.end(outcome)
        return outcome

    def _interrupted(self) -> Outcome:
        outcome = self.outcome("interrupted")
        outcome.terminated_by = "interrupt"
        self._journal.write(
            "run_interrupted", {"state": outcome.final_state, "duration_ms": outcome.duration_ms}
        )
        self._journal.sync()
        self._save_state("interrupted")
        self._display.end(outcome)
        return outcome

    # --- the state file -----------------------------------------------------------------------

    def _save_state(self, status: str = "running") -> None:
        """Write `<name>.state.json` for whoever looks; the journal is the truth, so failing is no harm."""
        self._state_saved = monotonic()
        self._state_is_old = False
        try:
            data = json.dumps(self._state(status), indent=2, ensure_ascii=False)
            write_file(self._run.state, data.encode("utf-8", "replace") + b"\n", durable=False)
        except (JournalError, ValueError, TypeError, RecursionError):
            return

    def _place(self) -> str | None:
        """Where a flow stands that does not say so itself: the author's innermost function and its state."""
        if self._kind == "loop":
            return None
        # There may be millions of calls; the author's innermost is near the end.
        for call in reversed(self._machine.calls[-_NEAR:]):
            place = self._machine.image.place(call.function.code.span)
            if place is None or not place[0].startswith(_LIBRARY):
                frame = FrameView(call)
                return f"{frame.function}/{frame.state}"
        return None

    def _state(self, status: str) -> dict[str, Any]:
        calls = self._machine.calls
        # What a flow calls `result` is its own affair.
        slots = FrameView(calls[0]).slots if calls and self._kind == "loop" else {}
        captured = {
            name[len("captured.") :]: _shortened(to_host(value))
            for name, value in slots.items()
            if name.startswith("captured.")
        }
        return {
            "run": self._run.id,
            "program": self._program,
            "status": status,
            "current_state": self._progress.state or self._place(),
            "iteration": self._progress.iteration,
            "steps": self._progress.steps,
            "captured": captured,
            "last_result": _shortened(to_host(slots["result"])) if "result" in slots else None,
            "started_at": self._begun,
            "updated_at": self._journal.now(),
        }


def _shortened(value: Any) -> Any:
    """A value with its long texts cut: the state file is for looking at."""
    if isinstance(value, str) and len(value) > _STATE_TEXT:
        half = _STATE_TEXT // 2
        return f"{value[:half]}\n… {len(value) - 2 * half} characters …\n{value[-half:]}"
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value


if set(_EXIT_CODES) != {"success", "failure", "error", "limit", "interrupted"}:
    raise AssertionError("a status has no exit code")
