"""Driver: executes a machine in a world, with a write-ahead journal.

Owns the order of records and effects that makes a run safe: `effect started` is on disk before the effect is
performed; `effect finished` is in the file before the machine continues, and on disk before anything that
depends on it. Pending effects are performed concurrently (`effect_pool`); the program gets their results one
by one, in the order of the journal. To wait, the driver yields the object that it waits for
(`host.coroutines`), so that the same code drives one run or many. The driver writes only through
`run_record`. Must not contain: semantics of loops, which are compiled into the program. See `spec/events.md`.
"""

from __future__ import annotations

from ...ir.effects import EFFECTS, SPENDERS, argument_problem
from ...ir.python_internals import deque
from ...vm.machine.machine import Done, Effect, Machine, OutOfFuel, Waiting
from ...vm.values.faults import Fault
from ..host import keeper
from ..host.coroutines import Apart, Steps, alone
from ..host.effect_context import (
    TICK,
    Context,
    Exited,
    Interrupt,
    Interrupted,
    Overdue,
    Stalled,
    WorldLike,
    sleep_time,
    slept,
)
from ..host.errors import UserError
from ..journal.events import ABSENT, HANGUP, PARKED, ProgramChanged, RunInterrupted
from ..journal.journal import Journal
from ..journal.outcome import BudgetLimitReached, FuelLimitReached, Outcome
from ..journal.position import QUANTUM, Progress, Where
from ..journal.run_folder import Parking, RunFolder
from ..project.limits import FUEL
from ..runs.checkpoints import Checkpoints
from .effect_log import EffectLog
from .observer import Display
from .run_record import RunRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ..journal.agent_history import AgentHistory
    from ..project.budget import Refusal, Spending
    from .effect_pool import EffectPool, Message, RunEffects

    Stop = Effect | Waiting | Done | Fault | OutOfFuel
    Answered = tuple[Effect, dict[str, Any]]
    Link = Callable[[dict[str, Any]], tuple[Machine, ProgramChanged] | str]

# Default limit of concurrently performed effects.
JOBS = 8
# Retry interval, in seconds, for an effect that waits for another run's reservation.
_RETRY_S = 1.0
# Number of this wait in the effect pool. Effects are numbered from 1.
_RETRY_SEQ = -1
_STALL_HELP = "change the prompt or the check; `on_stall` names another state; `stall: false` turns this off"


class Driver:
    """Drives one run to its end.

    Args:
        machine: the machine, new or restored.
        world: performs the effects.
        journal: the journal of the run, open for writing.
        run: the folder of the run.
        display: observes progress.
        interrupt: requests to stop the run.
        progress: the progress of a resumed run.
        base_ms: the active time of earlier segments of the run.
        started_at: the start time of the run; None for now.
        refusals: exceptions of a world that refuses to perform an effect; they end the run.
        settle: called with an effect; returns its result, or None to perform the effect.
        interrupted: the records of agents whose sessions are continued, by effect.
        kept: actions that survived an earlier driver, by effect.
        in_doubt: the processes of effects without a result that an earlier driver started, by effect.
        jobs: limit of concurrently performed effects, without a shared `pool`.
        pool: the effect pool shared with other runs. Its owner iterates over `steps` and waits for the pool.
        checkpoints: the writer of checkpoints; None to write none.
        doubtful: returns the marks of doubtful effects, as `Position.marks`.
        fuel: the total limit of ticks.
        has_input: whether the run may ask a person at the terminal.
        spending: opens the account of what the run may use; called at the first effect that uses a budget.
            None for no limits.
        waited: seconds that effects had waited before the run was parked.
        link: called with the arguments of a `link` effect; returns the machine of a program that contains the
            named loop, with the event to record, or the reason why this is impossible.
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
        started_at: str | None = None,
        refusals: tuple[type[Exception], ...] = (),
        settle: Callable[[Effect], dict[str, Any] | None] | None = None,
        interrupted: dict[int, AgentHistory] | None = None,
        kept: Mapping[int, keeper.Kept] | None = None,
        in_doubt: dict[int, list[tuple[int, str]]] | None = None,
        jobs: int | None = None,
        pool: EffectPool | None = None,
        checkpoints: Checkpoints | None = None,
        doubtful: Callable[[], list[list[Any]]] = list,
        fuel: int = FUEL,
        has_input: bool = True,
        spending: Callable[[], Spending] | None = None,
        waited: dict[int, float] | None = None,
        link: Link | None = None,
    ) -> None:
        self._fuel = fuel
        self._link = link
        self._has_input = has_input
        self._waited = waited or {}
        self._settle = settle
        self._interrupted_agents = interrupted or {}
        self._kept = kept or {}
        self._refusals = refusals
        self._machine = machine
        self._world = world
        self._run = run
        self._display = display
        self._interrupt = interrupt
        self._is_given_up = False
        self._progress = progress or Progress()
        self._base_ms = base_ms
        self._origin = world.monotonic()
        self._program = machine.image.name
        self._kind: str = machine.image.meta["kind"]
        self._jobs = jobs or JOBS
        self._pool = pool
        self._effects: RunEffects | None = None
        # A scripted world has no side effects, so records need not be on disk before its effects.
        self._is_scripted: bool = getattr(world, "is_scripted", False)
        # Only a world that can be forked performs effects concurrently.
        self._fork_world: Callable[[], Any] | None = getattr(world, "beside", None)
        # Requested effects that are not examined yet.
        self._requested: deque[Effect] = deque()
        # Effects that wait for a free slot.
        self._queued: list[Effect] = []
        # Effects in the pool, with their observers.
        self._performed: dict[int, tuple[Effect, Display]] = {}
        self._log = EffectLog(journal, spending, in_doubt or {})
        self._record = RunRecord(
            run,
            journal,
            machine,
            self._progress,
            self._log,
            started_at,
            checkpoints,
            doubtful,
            self.elapsed_ms,
        )
        # The common part of the contexts of all effects.
        self._shared = Context(
            run_id=run.id,
            effect_id="",
            loop=self._program,
            state=None,
            iteration=None,
            elapsed_ms=self.elapsed_ms,
            interrupt=interrupt,
            output_dir=run.outputs,
            on_output=display.output,
            on_event=self._log.record,
            on_tick=self._tick,
            folder=run.path,
            has_input=has_input,
        )
        self._answers: dict[int, dict[str, Any]] = {}
        self._paused: str | None = None

    def elapsed_ms(self) -> int:
        """The run's active time."""
        return self._base_ms + round((self._world.monotonic() - self._origin) * 1000)

    def run(
        self,
        stop: Stop | None = None,
        notes: Iterable[tuple[str, dict[str, Any]]] = (),
        answers: dict[int, dict[str, Any]] | None = None,
        places: dict[int, Where] | None = None,
    ) -> Outcome:
        """Execute the run alone, to its end or an interrupt; see `steps`."""
        return alone(self.steps(stop, notes, answers, places))

    def steps(
        self,
        stop: Stop | None = None,
        notes: Iterable[tuple[str, dict[str, Any]]] = (),
        answers: dict[int, dict[str, Any]] | None = None,
        places: dict[int, Where] | None = None,
    ) -> Steps[Outcome]:
        """Execute the run step by step, to its end or an interrupt.

        Args, for a resumed run:
            stop: the last outcome of the machine.
            notes: notes of the program that are not in the journal.
            answers: results of waiting effects that must not be performed, by number.
            places: the position of the program when it requested each waiting effect.

        Raises JournalError if the journal cannot be written; no effect is performed after that.
        """
        self._answers = dict(answers or {})
        self._log.last = self._machine.seq
        for effect in self._machine.waiting.values():
            self._ask(effect, (places or {}).get(effect.seq))
        try:
            self._record.notes(notes, self._display.note)
            while not self._machine.ended:
                if self._machine.is_ready:
                    stop = self._step()
                else:
                    self._record.checkpoint_if_due(self._world.save)
                    if self._is_next_alone():
                        effect = self._requested.popleft()
                        result = self._perform(effect)
                    else:
                        effect, result = yield from self._result()
                    stop = self._step(result, effect.seq)
                if isinstance(stop, OutOfFuel):
                    yield None
        except Interrupted as why:
            stop = yield from self._wind_down()
            if not self._machine.ended:
                return (yield from self._interrupted(why))
        except self._refusals as error:
            yield from self._close_effects()
            return (yield from self._end(self._refused(error)))
        except Exited as exit:
            yield from self._close_effects()
            return (yield from self._end(self.outcome("failure").take(exit.code)))
        except Stalled as stall:
            yield from self._close_effects()
            outcome = self.outcome("limit")
            outcome.terminated_by = "stall"
            outcome.error = {"kind": "stall", "message": str(stall), "span": None, "help": _STALL_HELP}
            return (yield from self._end(outcome))
        finally:
            yield from self._close_effects()
            self._log.close()
            self._record.close()
        assert isinstance(stop, Done | Fault)
        return (yield from self._end(self.outcome("error").take(stop)))

    def _step(self, *answer: Any) -> Stop:
        """Continue the machine. answer: the result and the number of an effect, or nothing."""
        machine = self._machine
        if machine.ticks >= self._fuel:
            raise FuelLimitReached(self._fuel)
        machine.refuel(min(QUANTUM, self._fuel - machine.ticks))
        interrupt = self._interrupt
        interrupt.computing += 1
        try:
            stop = machine.resume(*answer)
        except Overdue:
            self._is_given_up = True
            raise Interrupted from None
        finally:
            interrupt.computing += 1
        notes = machine.take_notes()
        if notes:
            for kind, fields in notes:
                self._progress.note(kind, fields)
            self._record.notes(notes, self._display.note)
        if isinstance(stop, Effect):
            self._ask(stop)
        elif isinstance(stop, OutOfFuel):
            self._interrupt.check()
            self._record.settle()
            self._record.tick()
            if self._fork_world is not None and (self._requested or self._queued):
                starting = self._begin_concurrent()
                if starting:
                    self._record.sync()
                self._start(starting)
        return stop

    def _ask(self, effect: Effect, place: Where | None = None) -> None:
        problem = argument_problem(effect.kind, effect.args)
        if problem is not None:
            raise UserError("bad-image", problem, "compile the program again with `llc compile`")
        self._requested.append(effect)
        self._log.places[effect.seq] = place or self._progress.place

    # --- notes and effects --------------------------------------------------------------------

    def _is_next_alone(self) -> bool:
        """Whether the next effect is performed while everything else waits."""
        if self._fork_world is None:
            return True
        return self._pool is None and len(self._requested) == 1 and not self._queued and not self._effects

    def _result(self) -> Steps[Answered]:
        """The next effect with its result. Called when no strand of the machine is ready."""
        while True:
            while self._requested:
                effect = self._requested.popleft()
                if not self._is_slow(effect):
                    return effect, self._perform(effect)
                self._queued.append(effect)
            # Take finished effects before starting others, so that one sync covers all their records.
            message = self._effects.ready() if self._effects is not None and self._pool is None else None
            if message is None:
                yield from self._perform_concurrently(self._begin_concurrent())
                answered = yield from self._wait()
            else:
                answered = self._take(*message)
            if answered is not None:
                return answered

    def _is_slow(self, effect: Effect) -> bool:
        return EFFECTS[effect.kind].is_slow and effect.seq not in self._answers

    def _perform(self, effect: Effect) -> dict[str, Any]:
        """Perform one effect while everything else waits; returns its result, after recording it."""
        kind, args = effect.kind, effect.args
        row = EFFECTS[kind]
        self._interrupt.check()
        if self._answers or self._settle is not None:
            settled = self._settled_result(effect)
            if settled is not None:
                return settled
        while kind in SPENDERS and (refusal := self._refusal(effect)) is not None:
            if refusal.is_final:
                raise BudgetLimitReached(refusal.message, refusal.help, refusal.renews_at)
            self._interrupt.wait(_RETRY_S, self._tick)
        if kind == "link" and self._link is not None and args["name"] not in args["linked"]:
            return self._continue_with(effect, self._link(args))
        self._log.start(effect, self._progress.state)
        if self._is_scripted:
            pass
        elif row.acts:
            self._record.sync()
            self._record.save_length()
        elif self._is_slow(effect):
            self._record.settle()
        if row.waits:
            self._display.effect_start(kind, args)
            self._record.effect_started()
        try:
            result = self._world.perform(effect, self._context(effect))
        except Interrupted:
            self._display.effect_cut()
            raise
        self._log.end(effect, result)
        if kind == "pause":
            self._paused = str(args.get("reason"))
        if row.acts and not self._is_scripted:
            self._record.sync_later(lambda: keeper.release(f"{self._run.id}/{effect.seq}"))
        if row.waits:
            self._display.effect_end(kind, result)
        self._record.changed()
        return result

    def _continue_with(self, effect: Effect, linked: tuple[Machine, ProgramChanged] | str) -> dict[str, Any]:
        """Continue in a program with the loop that a `link` effect names; returns the effect's result."""
        result: dict[str, Any]
        if isinstance(linked, str):
            result = {"error": {"kind": "unknown-loop", "message": linked}}
        else:
            self._machine, event = linked
            self._record.change_program(self._machine, event)
            for waiting in (self._requested, self._queued):
                renewed = [self._machine.waiting[old.seq] for old in waiting]
                waiting.clear()
                waiting.extend(renewed)
            effect = self._machine.waiting[effect.seq]
            result = {"name": effect.args["name"]}
        self._log.start(effect, self._progress.state)
        self._log.end(effect, result)
        self._record.changed()
        return result

    def _settled_result(self, effect: Effect) -> dict[str, Any] | None:
        """Record and return the result of an effect that must not be performed; None for any other."""
        answer = self._answers.pop(effect.seq, None)
        if answer is None:
            answer = self._settle(effect) if self._settle is not None else None
            if answer is None:
                return None
            self._log.start(effect, self._progress.state)
        self._log.end(effect, answer)
        self._record.sync()
        return answer

    # --- concurrent effects ---------------------------------------------------------------------

    def _begin_concurrent(self) -> list[tuple[Effect, Context]]:
        """Record the start of requested effects while slots are free.

        Returns the effects to perform (`_start`) once these records are on disk.
        """
        effects = self._effects
        if effects is None:
            from .effect_pool import RunEffects

            world: Any = self._world
            effects = self._effects = RunEffects(world, self._interrupt, self._tick, self._pool, self._jobs)
        self._interrupt.check()
        while self._requested and self._is_slow(self._requested[0]):
            self._queued.append(self._requested.popleft())
        starting: list[tuple[Effect, Context]] = []
        slots = effects.free_slots
        needs_slot = False
        still_queued: list[Effect] = []
        for effect in self._queued:
            if slots <= 0 and not EFFECTS[effect.kind].is_idle:
                needs_slot = True
                still_queued.append(effect)
                continue
            settled = self._settle(effect) if self._settle is not None else None
            refusal = self._refusal(effect) if settled is None else None
            if refusal is not None:
                if not refusal.is_final:
                    effects.sleep(_RETRY_SEQ, _RETRY_S, dict)
                elif not effects.busy and not starting:
                    raise BudgetLimitReached(refusal.message, refusal.help, refusal.renews_at)
                # Running effects are paid for: wait for their results before the run ends.
                still_queued.append(effect)
                continue
            self._log.start(effect, self._progress.state)
            context = self._context(effect)
            if settled is not None:
                effects.sleep(effect.seq, 0.0, lambda result=settled: result)  # type: ignore[misc]
            elif effect.kind == "sleep":
                seconds, is_cut = sleep_time(effect.args, context)
                effects.sleep(effect.seq, seconds, lambda c=context, cut=is_cut: slept(c, cut))  # type: ignore[misc]
            else:
                if not EFFECTS[effect.kind].is_idle:
                    slots -= 1
                    effects.reserve_slot()
                starting.append((effect, context))
            display = self._display.concurrent(effect.seq)
            self._performed[effect.seq] = (effect, display)
            if EFFECTS[effect.kind].waits:
                display.effect_start(effect.kind, effect.args)
        self._queued = still_queued
        effects.wait_for_slot(needs_slot)
        return starting

    def _perform_concurrently(self, starting: list[tuple[Effect, Context]]) -> Steps[None]:
        """Sync the records of starts and results, then start the effects."""
        if starting or self._record.is_unsynced:
            yield Apart(self._record.sync)
            self._record.save_length()
            self._record.is_unsynced = False
        else:
            self._record.flush()
        self._start(starting)

    def _start(self, starting: list[tuple[Effect, Context]]) -> None:
        """Perform effects whose start is on disk."""
        assert self._effects is not None
        for effect, context in starting:
            self._effects.start(effect, context)

    def _refusal(self, effect: Effect) -> Refusal | None:
        """The reason why an effect must not start; None if it may start, with its budget reserved."""
        spending = self._log.spending(effect.kind)
        if spending is None:
            return None
        refusal = spending.admit(effect.seq, effect.kind, effect.args, effect.seq in self._kept)
        deadline_ms = effect.args.get("deadline_ms")
        if refusal is not None and not refusal.is_final and deadline_ms is not None:
            # An effect whose deadline has passed starts, and times out without doing anything.
            return None if self.elapsed_ms() >= deadline_ms else refusal
        return refusal

    def _wait(self) -> Steps[Answered | None]:
        """Wait for a message of an effect in the pool; returns the effect's result if it has finished."""
        effects = self._effects
        assert effects is not None
        if self._pool is not None:
            # Many runs may wait for a long time: each keeps only its lock file open.
            seconds = self._record.close_files()
            if seconds is not None:
                effects.tick_within(seconds)
        message: Message | None = yield effects
        return None if message is None else self._take(*message)

    def _take(self, seq: int, kind: str, content: Any) -> Answered | None:
        """Handle a message of the effect pool; returns the effect's result if it has finished."""
        if seq == _RETRY_SEQ:
            return None
        effect, display = self._performed[seq]
        if kind == "output":
            display.output(*content)
            assert self._effects is not None
            self._effects.tick_within(TICK)
        elif kind == "prompt":
            display.prompt(content)
        elif kind == "process":
            self._log.process(seq, *content)
        elif kind == "event":
            self._log.record(content)
        elif kind == "agent":
            self._log.agent(seq, content)
            assert self._effects is not None
            deadline_ms = effect.args.get("deadline_ms")
            longest_s = None if deadline_ms is None else (deadline_ms - self.elapsed_ms()) / 1000
            self._effects.track_activity(effect, content, longest_s)
        elif kind == "failed":
            raise content
        else:
            del self._performed[seq]
            if kind == "cut":
                display.effect_cut()
                return None
            self._log.end(effect, content)
            if EFFECTS[effect.kind].acts:
                self._record.sync_later(lambda: keeper.release(f"{self._run.id}/{seq}"))
                self._record.is_unsynced = True
            if EFFECTS[effect.kind].waits:
                display.effect_end(effect.kind, content)
            self._record.changed()
            return effect, content
        return None

    def _wind_down(self) -> Steps[Stop]:
        """Stop the effects after an interrupt. The program still gets the results of effects that finish."""
        stop: Stop = OutOfFuel()
        is_stopped = self._is_given_up
        effects = self._effects
        while effects is not None and effects.end():
            message: Message | None = yield effects
            if message is None or (is_stopped and message[1] == "done"):
                continue
            answered = self._take(*message)
            if answered is None:
                continue
            effect, result = answered
            try:
                stop = self._step(result, effect.seq)
                while self._machine.is_ready:
                    stop = self._step()
            except Interrupted:
                # The program computes for a long time. Later results would be recorded out of order.
                is_stopped = True
        return stop

    def _close_effects(self) -> Steps[None]:
        """Stop all effects and discard their results."""
        effects = self._effects
        while effects is not None and effects.end():
            yield effects
        if effects is not None:
            effects.close()
            self._effects = None

    # --- the record -----------------------------------------------------------------------------

    def _context(self, effect: Effect) -> Context:
        seq = effect.seq
        state, iteration = self._log.places[seq]
        if self._is_scripted:
            # A scripted world uses a context only while it performs the effect, and its effects do not
            # start processes, wait or ask.
            context = self._shared
            context.effect_id, context.state, context.iteration = f"{self._run.id}/{seq}", state, iteration
            return context
        row = EFFECTS[effect.kind]
        may_prompt = row.may_prompt and self._has_input and self._display.has_person
        spending = self._log.spending(effect.kind)
        waited_s, is_idle = self._waited.get(seq, 0.0), row.is_idle
        return self._shared.evolve(
            effect_id=f"{self._run.id}/{seq}",
            state=state,
            iteration=iteration,
            on_agent=lambda activity: self._log.agent(seq, activity),
            on_process=lambda pid, start_time: self._log.process(seq, pid, start_time),
            on_prompt=self._display.prompt if may_prompt else None,
            cap_usd=None if spending is None else spending.cap(seq),
            interrupted=self._interrupted_agents.pop(seq, None),
            waited_s=waited_s if is_idle else 0.0,
            quota_waited_s=0.0 if is_idle else waited_s,
            kept=self._kept.get(seq),
        )

    def _tick(self) -> float:
        """Update the display and the files for other processes; returns the seconds until the next update."""
        self._display.tick()
        self._record.refresh()
        return TICK if self._pool is None else self._record.next_refresh()

    # --- the end ------------------------------------------------------------------------------

    def outcome(self, status: str) -> Outcome:
        """The outcome with the current progress and this status."""
        outcome = Outcome(self._run.id, self._program, self._kind, status).reach(self._progress)
        outcome.duration_ms = self.elapsed_ms()
        return outcome

    def _refused(self, error: Exception) -> Outcome:
        outcome = self.outcome("error")
        outcome.terminated_by = "error"
        outcome.error = {"kind": "not-performed", "message": str(error), "span": None}
        return outcome

    def _end(self, outcome: Outcome) -> Steps[Outcome]:
        if outcome.status == "success":
            outcome.evidence = self._record.evidence()
        self._record.last_event(outcome.to_event())
        yield Apart(self._record.sync)
        self._record.ended(outcome.status)
        self._display.end(outcome)
        return outcome

    def _interrupted(self, why: Interrupted) -> Steps[Outcome]:
        outcome = self.outcome("interrupted")
        outcome.terminated_by = "interrupt"
        reason = ABSENT
        if self._interrupt.is_hangup:
            outcome.terminated_by = reason = HANGUP
        if self._paused is not None:
            outcome.terminated_by = reason = self._paused
        parking = self._effects.parking if self._effects is not None else None
        if parking is not None and self._machine.waiting.keys() == parking.waited.keys():
            waited = {seq: before + self._waited.get(seq, 0.0) for seq, before in parking.waited.items()}
            self._run.parking = Parking(waited, parking.left_s, parking.accounts)
            outcome.terminated_by = reason = PARKED
        if isinstance(why, FuelLimitReached | BudgetLimitReached):
            reason = why.describe(outcome, self._machine)
        state, duration_ms = outcome.final_state, outcome.duration_ms
        self._record.last_event(RunInterrupted(state=state, duration_ms=duration_ms, reason=reason))
        yield Apart(self._record.sync)
        self._record.save_length()
        self._record.interrupted(self._world.save, has_checkpoint=not self._is_given_up)
        self._display.end(outcome)
        return outcome
