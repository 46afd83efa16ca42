"""Run history: the fold of a run's events. Every command that reads a run is a view of it.

Owns the fold: states, effects with their results, verdicts, routes, hand-offs, used budget, questions, ends,
damage and times. It accepts events of any store in order, one by one or together (`RunHistory.of`), so that
it can follow a live run. Must not contain: replay (`recovery`, `recordings`) or formatting (`inspection`).
"""

from __future__ import annotations

import os.path

from ...ir.light_records import LightRecord
from . import active_time
from . import events as kinds
from .active_time import ActiveTime
from .agent_history import AgentHistory
from .codec import seconds, whole_event
from .position import Progress
from .reader import Damage, read
from .totals import CALLS, StateHistory, Used, check_type, from_data, own, to_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


# Statuses of an unfinished run that no process executes.
CRASHED, INTERRUPTED = "crashed", "interrupted"
# Maximum number of changed files that a history records.
_MAX_FILES = 1000


class EffectHistory:
    """History of one effect; values are encoded as on the line (see `codec.unpack`).

    start: event of the last start; None if the journal does not contain it. processes: pid and start time of
    each process started since. end_offset: position of the result's event in the journal.
    """

    __slots__ = ("end_offset", "is_finished", "is_started", "processes", "result", "seq", "start")

    def __init__(self, seq: int = 0) -> None:
        self.seq = seq
        self.is_started = self.is_finished = False
        self.result: dict[str, Any] = {}
        self.end_offset = 0
        self.start: kinds.EffectStarted | None = None
        self.processes: list[tuple[int, str]] = []

    def begin(self, event: kinds.EffectStarted) -> None:
        self.is_started = True
        self.start = event
        self.processes = []

    @property
    def kind(self) -> str | None:
        return None if self.start is None else self.start.kind

    @property
    def args(self) -> dict[str, Any]:
        return {} if self.start is None else self.start.arguments

    @property
    def start_offset(self) -> int:
        """Position of the last start's event in the journal."""
        return 0 if self.start is None else self.start.offset


class Checkpoint(LightRecord):
    """State of a run at a position of its journal, so that readers can skip the part before it.

    offset, lines: bytes and lines before the position. turn: index of the checkpoint file. facts: plain data,
    with the history up to the position (`RunHistory.to_data`) if the checkpoint is whole.
    """

    offset: int
    lines: int
    turn: int
    facts: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        """Whether the checkpoint contains the history up to its position."""
        return self.facts.get("history") is not None


class RunHistory:
    """Fold of the events of a run, from its beginning or from a checkpoint on. `add` takes them in order.

    Attributes:
        start, end: first and last event of the run.
        interruption: event of an interruption after which the run was not resumed.
        pending: effects that have started and have no result, by number.
        results: number of finished effects.
        verdict: the latest verdict.
        resumed: number of resumes.
        changes: each change of the program, with the number of results before it.
        doubtful: effects that an earlier resume could not account for, see `recovery`.
        last_seq: highest number of an effect.
        unsure: numbers of results after which notes may be missing because of damage.
        own: for a fork, the history of its own events; shared_ms: active time that it shares with its parent.
        lines: number of journal lines so far.
        saved_ms: active time that was saved outside of the journal.
        agent: history of the agent that worked last.
        changed_files: letter of the change (A, D, M or T) of each changed file, by path.
        effects: all effects of a detailed history, otherwise the pending effects.
        events, order, result_at: of a detailed history, from the checkpoint on: its events; the numbers of
            the finished effects in the order of their results; for each result the number of events before
            it.

    A history that is not detailed needs constant memory.
    """

    def __init__(self, checkpoint: Checkpoint | None = None, is_detailed: bool = False) -> None:
        self.is_detailed = is_detailed
        self.checkpoint = checkpoint
        self.start: kinds.RunStart | None = None
        self.end: kinds.RunEnd | None = None
        self.interruption: kinds.RunInterrupted | None = None
        self.progress = Progress()
        self.states: dict[str, StateHistory] = {}
        self.verdict: kinds.Evaluate | None = None
        self.used = Used()
        self.effects: dict[int, EffectHistory] = {}
        self.pending: dict[int, EffectHistory] = {}
        self.results = 0
        self.order: list[int] = []
        self.events: list[kinds.Event] = []
        self.result_at: list[int] = []
        self.agent: AgentHistory | None = None
        self._asked: dict[int, kinds.AgentActed] = {}
        self.changed_files: dict[str, str] = {}
        self.changes: list[tuple[int, kinds.ProgramChanged]] = []
        self.doubtful: dict[int, kinds.Mark | None] = {}
        self.damage: list[Damage] = []
        self.unsure: set[int] = set()
        self.started_at: str | None = None
        self.last_ts = ""
        self.last_seq = 0
        self.lines = 0
        self.resumed = 0
        self.own: RunHistory | None = None
        self.shared_ms = 0
        self.saved_ms = 0
        self._active = ActiveTime()
        # The time of the latest event, and of entering the current state.
        self._moment: float | None = None
        self._entered: float | None = None
        if checkpoint is not None:
            self._begin_at(checkpoint)

    @classmethod
    def of(
        cls,
        entries: Iterable[kinds.Event | Damage],
        checkpoint: Checkpoint | None = None,
        is_detailed: bool = False,
    ) -> RunHistory:
        """Fold events and damage to a history."""
        history = cls(checkpoint, is_detailed)
        for entry in entries:
            history.add(entry)
        return history

    def _begin_at(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint. Raises KeyError, TypeError, ValueError, AttributeError if it is malformed."""
        facts = checkpoint.facts
        if checkpoint.is_whole:
            self._restore(facts["history"])
        else:
            self.started_at = facts["begun"]
            self._active.set(facts["active_ms"], seconds(facts["ts"]))
        if "open" in facts:
            self.last_seq = facts["last"]
            self.doubtful = kinds.read_marks(facts["doubtful"])
            for seq, processes in facts["open"]:
                if seq not in self.effects:
                    effect = self.effects[seq] = self.pending[seq] = EffectHistory(seq)
                    effect.is_started = True
                    effect.processes = [(pid, start_time) for pid, start_time in processes]
        self.lines = checkpoint.lines

    def to_data(self) -> dict[str, Any]:
        """Convert a history that is not detailed to plain data, for a checkpoint."""
        return {
            **{name: _event_data(getattr(self, name)) for name in _EVENTS},
            **{name: getattr(self, name) for name in _PLAIN},
            **{name: to_data(getattr(self, name)) for name in _RECORDS},
            "progress": self.progress.to_data(),
            "states": {name: to_data(state) for name, state in self.states.items()},
            "pending": [
                [seq, _event_data(effect.start), effect.processes] for seq, effect in self.pending.items()
            ],
            "agent": None if self.agent is None else to_data(self.agent),
            "asked": [[seq, _event_data(event)] for seq, event in self._asked.items()],
            "doubtful": [[seq, *(mark or ())] for seq, mark in self.doubtful.items()],
            "own": None if self.own is None else self.own.to_data(),
        }

    def _restore(self, data: dict[str, Any]) -> None:
        for name, kind in _EVENTS.items():
            setattr(self, name, _event(data[name], kind))
        for name in _PLAIN:
            check_type(data[name], getattr(self, name))
            setattr(self, name, own(data[name]))
        for name, kind in _RECORDS.items():
            setattr(self, name, from_data(kind, data[name]))
        self.progress = Progress.from_data(data["progress"])
        self.states = {name: from_data(StateHistory, state) for name, state in data["states"].items()}
        for seq, start, processes in data["pending"]:
            effect = self.effects[seq] = self.pending[seq] = EffectHistory(seq)
            event = _event(start, kinds.EffectStarted)
            if event is not None:
                effect.begin(event)
            effect.is_started = True
            effect.processes = [(pid, start_time) for pid, start_time in processes]
        self.agent = None if data["agent"] is None else from_data(AgentHistory, data["agent"])
        self._asked = {seq: _event(event, kinds.AgentActed) for seq, event in data["asked"]}
        self.doubtful = kinds.read_marks(data["doubtful"])
        if data["own"] is not None:
            self.own = RunHistory()
            self.own._restore(data["own"])

    # --- the fold -----------------------------------------------------------------------------

    def add(self, entry: kinds.Event | Damage) -> None:
        """Add the next event, or the next damaged part of the journal."""
        if isinstance(entry, Damage):
            self.damage.append(entry)
            self.unsure.add(len(self.order))
            self.lines = entry.last_line
            return
        # Most events of a step have the same timestamp as the previous event.
        ts = entry.ts
        moment = self._moment if ts == self.last_ts else seconds(ts)
        # A verdict before the first own effect of a fork belongs to a result that it shares with its parent.
        if self.own is not None and (self.own.last_seq or not isinstance(entry, kinds.Evaluate)):
            self.own.add(entry)
        fold_fields = _FOLD_FIELDS.get(entry.name)
        if fold_fields is not None:
            fold_fields(self, entry.wire, moment, entry.offset)
        else:
            fold = _FOLD.get(entry.__class__)
            if fold is not None:
                fold(self, entry, moment)
        if self.is_detailed:
            self.events.append(entry)
        self.lines = entry.line
        if ts != self.last_ts:
            self._reach(ts, moment)

    def add_own(self, written: Iterable[kinds.Written]) -> None:
        """Add the next events, which this process has written; the history must not be detailed.

        Most of them are folded without a typed event.
        """
        ts, moment, line = self.last_ts, self._moment, self.lines
        for entry in written:
            line += 1
            last_ts = ts
            kind, fields, ts, offset = entry
            if self.own is not None:
                self.add(kinds.own_event(entry, line))
                moment = self._moment
                continue
            if ts != last_ts:
                moment = seconds(ts)
            fold_fields = _FOLD_FIELDS.get(kind)
            if fold_fields is not None:
                fold_fields(self, fields, moment, offset)
            else:
                event = kinds.own_event(entry, line)
                fold = _FOLD.get(event.__class__)
                if fold is not None:
                    self.lines = line - 1
                    fold(self, event, moment)
            if ts != last_ts:
                self._reach(ts, moment)
        self.lines = line

    def _reach(self, ts: str, moment: float | None) -> None:
        """Advance to the timestamp of an event."""
        self.last_ts = ts or self.last_ts
        if moment is not None:
            self._active.reach(moment)
            self._moment = moment

    def _start_run(self, event: kinds.RunStart, moment: float | None) -> None:
        self.start = event
        self.started_at = self.started_at or event.started_at

    def _resume(self, event: kinds.RunResume, moment: float | None) -> None:
        # The run was in its last state until it crashed or its last action ended.
        after_s = max(0, (event.active_ms or 0) - self._active.total()) / 1000
        self._leave_state(None if self._moment is None else self._moment + after_s)
        self._active.stop()
        if self.agent is not None and event.unknown.get(str(self.agent.seq)) == kinds.TAKE_OVER:
            self.agent = None  # its output will be read and recorded again
        # Segments of a run in a database begin with this event too: the first segment, and a segment after a
        # wait without a worker. They do not count as resumes.
        waited = self.interruption is not None and self.interruption.reason == kinds.PARKED
        self.resumed += self.lines > 1 and not waited
        self.interruption = None
        if self.own is None and self.start is not None and self.start.is_fork_begun(event):
            self.own = RunHistory()
            self.shared_ms = self.active_ms()
        self.pending.clear()
        self.doubtful.update(event.marks)
        self._entered = moment
        self._active.reach(moment, event.active_ms)

    def _interrupt(self, event: kinds.RunInterrupted, moment: float | None) -> None:
        self._leave_state(moment)
        self._active.reach(moment, event.active_ms)
        self.interruption = event

    def _end(self, event: kinds.RunEnd, moment: float | None) -> None:
        self._leave_state(moment)
        self._active.reach(moment, event.active_ms)
        self.interruption = None
        self.end = event
        self.pending.clear()

    def _change_program(self, event: kinds.ProgramChanged, moment: float | None) -> None:
        self.changes.append((len(self.order), event))

    def _enter_state(self, fields: dict[str, Any], moment: float | None, offset: int) -> None:
        self._leave_state(moment)
        progress = self.progress
        progress.enter(*kinds.StateEnter.read(fields))
        self._state(progress.state).visits += 1
        self._entered = moment

    def _complete_loop(self, event: kinds.LoopComplete, moment: float | None) -> None:
        self._leave_state(moment)
        self.progress.add(event)
        if self.state is not None and event.loop is not None:
            self._entered = moment  # an inner loop has ended; the program is in the surrounding state again

    def _route(self, fields: dict[str, Any], moment: float | None, offset: int) -> None:
        if self.progress.is_nested:
            self.progress.add(kinds.Route.of(fields))

    def _evaluate(self, event: kinds.Evaluate, moment: float | None) -> None:
        if self.progress.is_nested:
            self.progress.add(event)
        self.verdict = event
        verdicts = self._state(event.shown_state).verdicts
        verdict = str(event.verdict)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1

    def _start_effect(self, event: kinds.EffectStarted, moment: float | None) -> None:
        seq = event.seq
        effect = self.pending[seq] = self._effect(seq)
        effect.begin(event)
        self.used.begin(seq, event.kind)

    def _start_process(self, event: kinds.Process, moment: float | None) -> None:
        if event.pid and event.start_time:
            self._effect(event.seq).processes.append((event.pid, event.start_time))

    def _agent_of(self, seq: int) -> AgentHistory:
        if self.agent is None or self.agent.seq != seq:
            self.agent = AgentHistory(seq)
        return self.agent

    def _add_activity(self, event: kinds.AgentActed, moment: float | None) -> None:
        self._agent_of(event.seq).add(event)
        if event.what == "question":
            self._asked[event.seq] = event
        elif event.what in ("session", "answer", "error", "final"):
            self._asked.pop(event.seq, None)

    def _add_tree(self, event: kinds.TreeTaken, moment: float | None) -> None:
        for change in event.changes or ():
            match change:
                case [str(letter), str(path)] if len(self.changed_files) < _MAX_FILES:
                    # A file that the run has added and changed later remains "added".
                    known = self.changed_files.get(path)
                    self.changed_files[path] = "A" if known == "A" and letter == "M" else letter

    def _finish_effect(self, fields: dict[str, Any], moment: float | None, offset: int) -> None:
        seq, kind, result, active_ms = kinds.EffectFinished.read(fields)
        effect = self._effect(seq)
        self._active.reach(moment, active_ms)
        if kind == "agent" and result is not None:
            self._agent_of(seq).finish(result)
        self.pending.pop(seq, None)
        if result is None:
            return
        usd, tokens = self.used.add(seq, kind, result) if kind in CALLS or "usage" in result else (0, 0)
        state = (effect.start.state if effect.start is not None else None) or self.state
        if state is not None:
            of_state = self._state(state)
            of_state.effects += 1
            of_state.effect_ms += round(kinds.reported_duration(result) or 0)
            if result.get("error"):
                of_state.errors += 1
            if usd or tokens:
                of_state.usd += usd
                of_state.tokens += tokens
        if not effect.is_finished:
            self.results += 1
            if self.is_detailed:
                self.order.append(seq)
                self.result_at.append(len(self.events))
        effect.is_finished = True
        effect.end_offset = offset
        if self.is_detailed:
            effect.result = result
        else:
            del self.effects[seq]

    def _effect(self, seq: int) -> EffectHistory:
        if seq > self.last_seq:
            self.last_seq = seq
        effect = self.effects.get(seq)
        if effect is None:
            effect = self.effects[seq] = EffectHistory(seq)
        return effect

    def _state(self, name: Any) -> StateHistory:
        state = self.states.get(name)
        if state is None:
            name = str(name)
            state = self.states[name] = self.states.get(name) or StateHistory()
        return state

    def _leave_state(self, moment: float | None) -> None:
        entered, state = self._entered, self.progress.state
        if state is not None and entered is not None and moment is not None and moment > entered:
            self._state(state).ms += round((moment - entered) * 1000)
        self._entered = None

    # --- views --------------------------------------------------------------------------------

    @property
    def state(self) -> str | None:
        """Current state of the run, as named by its author."""
        return self.progress.state

    @property
    def iteration(self) -> int:
        return self.progress.iteration

    @property
    def steps(self) -> int:
        return self.progress.steps

    @property
    def status(self) -> str:
        """Status of a run that no process executes."""
        if self.end is not None:
            return str(self.end.status)
        return CRASHED if self.interruption is None else INTERRUPTED

    @property
    def questions(self) -> list[EffectHistory]:
        """Unanswered questions to a person, in order."""
        return [effect for _, effect in sorted(self.pending.items()) if effect.kind == "ask"]

    @property
    def permission_requests(self) -> list[tuple[EffectHistory, kinds.AgentActed]]:
        """Effects of agents that wait for a person's permission to use a tool, each with its request."""
        return [(self.pending[seq], asked) for seq, asked in self._asked.items() if seq in self.pending]

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of occurrences of each verdict."""
        counts: dict[str, int] = {}
        for state in self.states.values():
            for verdict, count in state.verdicts.items():
                counts[verdict] = counts.get(verdict, 0) + count
        return counts

    def active_ms(self, now: float | None = None) -> int:
        """Active time in milliseconds. now: end of the time of an active run, in seconds since 1970."""
        return max(self._active.total(now), self.saved_ms)

    @property
    def truncation(self) -> Damage | None:
        """Damage at the end of a journal that was truncated; None if it was not."""
        last = self.damage[-1] if self.damage else None
        return last if last is not None and last.missing else None

    def lines_before(self, offset: int) -> int:
        """Return the number of journal lines before a byte; for a detailed history."""
        first = 0 if self.checkpoint is None else self.checkpoint.lines
        return next((event.line for event in reversed(self.events) if event.offset < offset), first)

    def notes_after(self, results: int) -> list[kinds.NoteEvent]:
        """Return the notes between result number `results` and the next one; for a detailed history."""
        begin = self.result_at[results - 1] if results else 0
        end = self.result_at[results] if results < len(self.result_at) else len(self.events)
        return [event for event in self.events[begin:end] if isinstance(event, kinds.NoteEvent)]


_FOLD: dict[type[kinds.Event], Callable[[RunHistory, Any, float | None], None]] = {
    kinds.RunStart: RunHistory._start_run,
    kinds.RunResume: RunHistory._resume,
    kinds.RunInterrupted: RunHistory._interrupt,
    kinds.RunEnd: RunHistory._end,
    kinds.ProgramChanged: RunHistory._change_program,
    kinds.LoopComplete: RunHistory._complete_loop,
    kinds.Evaluate: RunHistory._evaluate,
    kinds.ActionStart: RunHistory._start_effect,
    kinds.EffectStart: RunHistory._start_effect,
    kinds.Process: RunHistory._start_process,
    kinds.AgentActed: RunHistory._add_activity,
    kinds.TreeTaken: RunHistory._add_tree,
}
# Kinds of which a step has one event each: they are folded from the fields and the offset of a line.
_FOLD_FIELDS: dict[str, Callable[[RunHistory, dict[str, Any], float | None, int], None]] = {
    kinds.StateEnter.name: RunHistory._enter_state,
    kinds.Route.name: RunHistory._route,
    kinds.ActionComplete.name: RunHistory._finish_effect,
    kinds.EffectComplete.name: RunHistory._finish_effect,
}


# Attributes of a history that a checkpoint contains: events, plain values, records.
_EVENTS: dict[str, type[kinds.Event]] = {
    "start": kinds.RunStart,
    "end": kinds.RunEnd,
    "interruption": kinds.RunInterrupted,
    "verdict": kinds.Evaluate,
}
_PLAIN = (
    *("changed_files", "started_at", "last_ts", "last_seq", "lines", "results", "resumed", "shared_ms"),
    *("_moment", "_entered"),
)
_RECORDS: dict[str, Any] = {"used": Used, "_active": ActiveTime}


def _event_data(event: kinds.Event | None) -> list[Any] | None:
    """Convert an event to plain data, with its position in the journal."""
    if event is None:
        return None
    return [whole_event(event.kind_name, event.own_fields(), event.ts), event.offset, event.line]


def _event(data: list[Any] | None, kind: type[kinds.Event]) -> Any:
    event = None if data is None else kinds.read_event(*data)
    if event is not None and not isinstance(event, kind):
        raise ValueError(event.kind_name)
    return event


def load(path: str, checkpoint: Checkpoint | None = None) -> RunHistory:
    """Load the detailed history of a run, from the checkpoint on if one is given.

    path: journal in the folder of the run. Raises ReadError.
    """
    offset, lines = (0, 0) if checkpoint is None else (checkpoint.offset, checkpoint.lines)
    saved = active_time.read(os.path.dirname(path))
    history = RunHistory.of(read(path, offset, lines), checkpoint, is_detailed=True)
    history.saved_ms = saved.ms
    return history
