"""Driver: runs a machine against a world, with a write-ahead journal.

Owns the order that makes a run safe: `effect started` is on disk before the effect is performed; `effect
finished` is in the file before the machine continues, and on disk before anything that depends on it.
Pending effects are performed concurrently (`effect_pool`); the program gets their results one by one, in the
order of the journal. To wait, the driver yields what it waits for (`host.coroutines`), so that one run and
many are driven by the same code. It writes only through `run_record`, and knows nothing of loops: what a
loop means is in its program. See `spec/events.md`.
"""

from __future__ import annotations

from ...ir.effects import EFFECTS, argument_problem
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
# Seconds until an effect is asked for again that waits for what other runs have reserved, and the number of
# this pause among the effects, which count from 1.
_RETRY_S = 1.0
_RETRY_SEQ = -1
_STALL_HELP = "change the prompt or the check; `on_stall` names another state; `stall: false` turns this off"


class Driver:
    """Drives one run to its end.

    base_ms: for how long the run was active before. progress: how far it had come. begun: when it
    began. refusals: what the world raises when it will not perform an effect; that ends the run.
    settle(effect): the answer to an effect that is not to be performed, None for one that is.
    jobs: how many effects are performed at once at most. pool: where they are performed, and how many at
    once, where it is shared with other runs; its owner iterates over the `steps` of the run and waits for it.
    interrupted: what agents did before, whose sessions are to be continued, by effect. kept: actions that
    survived an earlier driver, by effect. in_doubt: the processes of effects that an earlier driver had
    started and that have no result. checkpoints: where to keep them, None for nowhere. doubtful(): what
    `Position.marks` gives. fuel: how many ticks the program may use in all. has_input: whether a person may
    be asked. spending(): what the run may spend, asked for at the first effect that may use it; None for what
    it likes. waited: for how many seconds effects have waited in a run that was parked. link(args): the
    machine in a program with the loop that a `link` effect names, and the event; or why there is none.
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
        self._settles = settle
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
        # A scripted world performs nothing that its record would have to precede.
        self._is_scripted: bool = getattr(world, "is_scripted", False)
        # A world that can be had more than once performs several effects at once.
        self._beside: Callable[[], Any] | None = getattr(world, "beside", None)
        # Effects that were asked for: not looked at yet, and those that wait until fewer are performed.
        self._asked: deque[Effect] = deque()
        self._queued: list[Effect] = []
        # Effects in the pool, with their observers.
        self._performed: dict[int, tuple[Effect, Display]] = {}
        self._log = EffectLog(journal, spending, in_doubt or {})
        self._record = RunRecord(
            run, journal, machine, self._progress, self._log, begun, checkpoints, doubtful, self.elapsed_ms
        )
        # What the contexts of all effects have in common.
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
        """Run to the end, or to an interrupt, and wait for nothing else meanwhile; see `steps`."""
        return alone(self.steps(stop, notes, answers, places))

    def steps(
        self,
        stop: Stop | None = None,
        notes: Iterable[tuple[str, dict[str, Any]]] = (),
        answers: dict[int, dict[str, Any]] | None = None,
        places: dict[int, Where] | None = None,
    ) -> Steps[Outcome]:
        """Run to the end, or to an interrupt, step by step.

        The arguments are for a resumed run: what its machine returned last, what it noted that is not in
        the journal, the results of effects that wait and are not to be performed, by number, and where
        the program was when it asked for each that waits.
        Raises JournalError when the journal cannot be written; then nothing more was performed.
        """
        self._answers = dict(answers or {})
        self._log.last = self._machine.seq
        for effect in self._machine.waiting.values():
            self._ask(effect, (places or {}).get(effect.seq))
        try:
            for kind, fields in notes:
                self._record_note(kind, fields)
            while not self._machine.ended:
                if self._machine.is_ready:
                    stop = self._step()
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
        """Continue the machine, with a result and the number of its effect if there is one."""
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
        for kind, fields in machine.take_notes():
            self._note(kind, fields)
        if isinstance(stop, Effect):
            self._ask(stop)
        elif isinstance(stop, OutOfFuel):
            self._interrupt.check()
            self._record.settle()
            self._record.tick()
            if self._beside is not None and (self._asked or self._queued):
                begun = self._begin_concurrent()
                if begun:
                    self._record.sync()
                self._start(begun)
        return stop

    def _ask(self, effect: Effect, place: Where | None = None) -> None:
        problem = argument_problem(effect.kind, effect.args)
        if problem is not None:
            raise UserError("bad-image", problem, "compile the program again with `llc compile`")
        self._asked.append(effect)
        self._log.places[effect.seq] = place or self._progress.place

    # --- notes and effects --------------------------------------------------------------------

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self._progress.note(kind, fields)
        self._record_note(kind, fields)

    def _record_note(self, kind: str, fields: dict[str, Any]) -> None:
        self._display.note(kind, self._record.note(kind, fields))

    def _result(self) -> Steps[Answered]:
        """The next result of an effect that waits: the machine can do nothing without it."""
        self._record.checkpoint_if_due(self._world.save)
        is_alone = self._pool is None and len(self._asked) == 1 and not self._queued and not self._effects
        if self._beside is None or is_alone:
            effect = self._asked.popleft()
            return effect, self._perform(effect)
        while True:
            while self._asked:
                effect = self._asked.popleft()
                if not self._takes_long(effect):
                    return effect, self._perform(effect)
                self._queued.append(effect)
            # One sync is for all that has happened by now: what has ended is taken before more begins.
            message = self._effects.ready() if self._effects is not None and self._pool is None else None
            if message is None:
                yield from self._perform_concurrently(self._begin_concurrent())
                answered = yield from self._wait()
            else:
                answered = self._take(*message)
            if answered is not None:
                return answered

    def _takes_long(self, effect: Effect) -> bool:
        return EFFECTS[effect.kind].is_slow and effect.seq not in self._answers

    def _perform(self, effect: Effect) -> dict[str, Any]:
        """Perform one effect while all else waits; its result, which is on record then."""
        kind, args = effect.kind, effect.args
        row = EFFECTS[kind]
        self._interrupt.check()
        settled = self._settled(effect)
        if settled is not None:
            return settled
        while (refusal := self._refusal(effect)) is not None:
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
        elif self._takes_long(effect):
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
        """Go on in a program that has the loop which `effect` names; its result."""
        result: dict[str, Any]
        if isinstance(linked, str):
            result = {"error": {"kind": "unknown-loop", "message": linked}}
        else:
            self._machine, event = linked
            self._record.change_program(self._machine, event)
            for waiting in (self._asked, self._queued):
                renewed = [self._machine.waiting[old.seq] for old in waiting]
                waiting.clear()
                waiting.extend(renewed)
            effect = self._machine.waiting[effect.seq]
            result = {"name": effect.args["name"]}
        self._log.start(effect, self._progress.state)
        self._log.end(effect, result)
        self._record.changed()
        return result

    def _settled(self, effect: Effect) -> dict[str, Any] | None:
        """The result of an effect that is not to be performed, on record; None for any other."""
        answer = self._answers.pop(effect.seq, None)
        if answer is None:
            answer = self._settles(effect) if self._settles is not None else None
            if answer is None:
                return None
            self._log.start(effect, self._progress.state)
        self._log.end(effect, answer)
        self._record.sync()
        return answer

    # --- several at once ------------------------------------------------------------------------

    def _begin_concurrent(self) -> list[tuple[Effect, Context]]:
        """Begin what was asked for, as far as there is room; what is to be performed once that is on disk."""
        effects = self._effects
        if effects is None:
            from .effect_pool import RunEffects

            world: Any = self._world
            effects = self._effects = RunEffects(world, self._interrupt, self._tick, self._pool, self._jobs)
        self._interrupt.check()
        while self._asked and self._takes_long(self._asked[0]):
            self._queued.append(self._asked.popleft())
        begun: list[tuple[Effect, Context]] = []
        room = effects.room
        wants_room = False
        later: list[Effect] = []
        for effect in self._queued:
            if room <= 0 and not EFFECTS[effect.kind].is_idle:
                wants_room = True
                later.append(effect)
                continue
            settled = self._settles(effect) if self._settles is not None else None
            refusal = self._refusal(effect) if settled is None else None
            if refusal is not None:
                if not refusal.is_final:
                    effects.sleep(_RETRY_SEQ, _RETRY_S, dict)
                elif not effects.busy and not begun:
                    raise BudgetLimitReached(refusal.message, refusal.help, refusal.renews_at)
                # What is performed now is paid for: its results are waited for.
                later.append(effect)
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
                    room -= 1
                    effects.take_room()
                begun.append((effect, context))
            display = self._display.concurrent(effect.seq)
            self._performed[effect.seq] = (effect, display)
            if EFFECTS[effect.kind].waits:
                display.effect_start(effect.kind, effect.args)
        self._queued = later
        effects.want_room(wants_room)
        return begun

    def _perform_concurrently(self, begun: list[tuple[Effect, Context]]) -> Steps[None]:
        """Sync the starts and results of effects, then perform those that start."""
        if begun or self._record.is_unsynced:
            yield Apart(self._record.sync)
            self._record.save_length()
            self._record.is_unsynced = False
        else:
            self._record.flush()
        self._start(begun)

    def _start(self, begun: list[tuple[Effect, Context]]) -> None:
        """Perform the effects whose start is on record."""
        assert self._effects is not None
        for effect, context in begun:
            self._effects.start(effect, context)

    def _refusal(self, effect: Effect) -> Refusal | None:
        """Why an effect does not start; None if it does, with what it may use reserved."""
        spending = self._log.spending(effect.kind)
        if spending is None:
            return None
        refusal = spending.admit(effect.seq, effect.kind, effect.args, effect.seq in self._kept)
        deadline_ms = effect.args.get("deadline_ms")
        if refusal is not None and not refusal.is_final and deadline_ms is not None:
            # An effect that waits beyond its deadline times out without doing anything.
            return None if self.elapsed_ms() >= deadline_ms else refusal
        return refusal

    def _wait(self) -> Steps[Answered | None]:
        """The next event of an effect in the pool; its result if it has finished."""
        effects = self._effects
        assert effects is not None
        if self._pool is not None:
            # Many runs may wait for long: what each keeps open is no more than its lock.
            seconds = self._record.close_files()
            if seconds is not None:
                effects.tick_within(seconds)
        message: Message | None = yield effects
        return None if message is None else self._take(*message)

    def _take(self, seq: int, what: str, about: Any) -> Answered | None:
        if seq == _RETRY_SEQ:
            return None
        effect, display = self._performed[seq]
        if what == "output":
            display.output(*about)
            assert self._effects is not None
            self._effects.tick_within(TICK)
        elif what == "prompt":
            display.prompt(about)
        elif what == "process":
            self._log.process(seq, *about)
        elif what == "event":
            self._log.record(about)
        elif what == "agent":
            self._log.agent(seq, about)
            assert self._effects is not None
            deadline_ms = effect.args.get("deadline_ms")
            longest_s = None if deadline_ms is None else (deadline_ms - self.elapsed_ms()) / 1000
            self._effects.acted(effect, about, longest_s)
        elif what == "failed":
            raise about
        else:
            del self._performed[seq]
            if what == "cut":
                display.effect_cut()
                return None
            self._log.end(effect, about)
            if EFFECTS[effect.kind].acts:
                self._record.sync_later(lambda: keeper.release(f"{self._run.id}/{seq}"))
                self._record.is_unsynced = True
            if EFFECTS[effect.kind].waits:
                display.effect_end(effect.kind, about)
            self._record.changed()
            return effect, about
        return None

    def _wind_down(self) -> Steps[Stop]:
        """Stop the effects after an interrupt. The program gets the results of those that finish."""
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
                # It computes for long: results that come after this one would not stand in their order.
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
        row = EFFECTS[effect.kind]
        may_prompt = row.may_prompt and self._has_input and self._display.has_person
        spending = self._log.spending(effect.kind)
        waited_s, is_idle = self._waited.get(seq, 0.0), row.is_idle
        return self._shared.evolve(
            effect_id=f"{self._run.id}/{seq}",
            state=state,
            iteration=iteration,
            on_agent=lambda activity: self._log.agent(seq, activity),
            on_process=lambda pid, begun: self._log.process(seq, pid, begun),
            on_prompt=self._display.prompt if may_prompt else None,
            cap_usd=None if spending is None else spending.cap(seq),
            interrupted=self._interrupted_agents.pop(seq, None),
            waited_s=waited_s if is_idle else 0.0,
            quota_waited_s=0.0 if is_idle else waited_s,
            kept=self._kept.get(seq),
        )

    def _tick(self) -> float:
        """Update what users see; the number of seconds until the next update."""
        self._display.tick()
        self._record.refresh()
        return TICK if self._pool is None else self._record.next_refresh()

    # --- the end ------------------------------------------------------------------------------

    def outcome(self, status: str) -> Outcome:
        """The outcome of the run so far, with this status."""
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
