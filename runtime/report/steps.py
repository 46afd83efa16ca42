"""Steps of a run: its effects in the order of their results, each with what followed from it.

Position `n` of a run is where `n` results were given, as in `llc trace`; step `n` is what happens there: the
effect whose result comes next, or the end. `RunHistory` folds the journal; a step holds what one position
adds to it. What is in the slots is added by `model`.
"""

from __future__ import annotations

from typing import Any

import attrs

from ...ir.effects import EFFECTS
from ...ir.records import define
from ..graph.run_overlay import RouteCounts
from ..host.secrets import masked
from ..journal import agent_text
from ..journal.events import (
    AgentActed,
    EffectFinished,
    EffectStarted,
    Evaluate,
    Event,
    Guarded,
    LoopComplete,
    NoteEvent,
    ProgramChanged,
    Route,
    RunEnd,
    RunInterrupted,
    RunResume,
    StateEnter,
    TreeTaken,
)
from ..journal.reader import Damage
from ..journal.run_history import RunHistory
from ..recordings import diff_text
from ..recordings.recording import Note
from .values import Values

_LONGEST_SUBJECT = 200
_GOOD = ("success", "target", "yes", "progress")
_ERRORS = ("error", "blocked")
# Fields of notes that are names and numbers.
_NAMES = ("loop", "state", "iteration", "type", "verdict", "from", "to", "policy", "cycle", "status")
# Entries of an agent's activity that are shown of one effect.
_MOST_ACTIVITY = 2000


@define
class Step:
    """A position of a run with what happens there; references are indices in the table of values.

    start, end: milliseconds since the beginning of the run. after, until: how many results were given when it
    started and when it was over. lane: in which row of the timeline it is, see `lanes`. agent: which agent
    works, "" for the usual one, None if none does. state: the author's state, `<loop>/<state>` in an inner
    loop; outer: that of the program. verdict, route: those that followed, with `tone`: good, bad, error or
    none. usd, tokens, calls, seconds: what it used of a budget. notes: texts of what the program noted before
    it. trees: those before and after it, with the store.
    """

    seq: int | None = None
    kind: str = ""
    subject: str = ""
    state: str | None = None
    outer: str | None = None
    iteration: int = 0
    start: int | None = None
    end: int | None = None
    after: int = 0
    until: int | None = None
    lane: int = 0
    agent: str | None = None
    args: int | None = None
    result: int | None = None
    failed: bool = False
    verdict: str | None = None
    details: int | None = None
    tone: str = ""
    route: str | None = None
    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    notes: list[str] = attrs.field(factory=list)
    activity: list[tuple[str, str]] = attrs.field(factory=list)
    files: list[list[str]] = attrs.field(factory=list)
    trees: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    session: str | None = None
    model: str | None = None
    tools: int = 0


@define
class Mark:
    """A moment of the timeline that is no effect. kind: end, interrupted, resumed, changed or damage."""

    at: int | None
    kind: str
    text: str
    step: int


class Steps:
    """The steps of a run by its events; `add` them in order. The last one has no result yet.

    changed_from: the first step that changed since `take`. is_bare: without what texts contain.
    """

    def __init__(self, history: RunHistory, values: Values, is_bare: bool = False) -> None:
        self.history = history
        self.values = values
        self.steps = [Step()]
        self.marks: list[Mark] = []
        self.taken = RouteCounts()
        self.changed_from = 0
        self._is_bare = is_bare
        self._begun: float | None = None
        self._latest = 0
        self._started: list[Step] = []
        # Started effects without a result, by number.
        self._open: dict[int, Step] = {}
        # Where each finished effect is.
        self._finished: dict[int, int] = {}

    def add(self, entry: Event | Damage) -> None:
        """The next entry of the journal."""
        count = self.history.results
        used = self.history.used.by_unit() if isinstance(entry, EffectFinished) else {}
        self.history.add(entry)
        if isinstance(entry, Damage):
            if not entry.is_torn_line:
                self._mark(None, "damage", f"the journal is damaged: {entry}")
            return
        moment = entry.moment
        if moment is not None:
            self._begun = moment if self._begun is None else self._begun
            self._latest = max(self._latest, round((moment - self._begun) * 1000))
        last = self.steps[-1]
        match entry:
            case EffectStarted():
                self._start(entry)
            case EffectFinished():
                if self.history.results > count:
                    self._finish(entry, used)
            case AgentActed() | Guarded() | TreeTaken():
                self._add_activity(entry)
            case NoteEvent():
                self._add_note(entry)
            case RunInterrupted():
                self._mark(self._latest, "interrupted", f"interrupted{_by(entry.reason)}")
                self._drop_open()
            case RunResume():
                self._mark(self._latest, "resumed", "resumed")
                self._drop_open()
            case ProgramChanged():
                self._mark(self._latest, "changed", "the program was changed")
            case RunEnd():
                self._mark(self._latest, "end", f"ended: {entry.status}{_by(entry.terminated_by)}")
                self._drop_open()
        if last.seq is None and not self._open:
            self._place(last)

    def take(self) -> int:
        """The first step that changed since the last call."""
        first, self.changed_from = self.changed_from, len(self.steps)
        return first

    def take_started(self) -> list[Step]:
        """The effects that started since the last call, in that order."""
        started, self._started = self._started, []
        return started

    @property
    def pending(self) -> list[Step]:
        """The effects without a result, in the order of their starts."""
        return list(self._open.values())

    def duration(self, now: float | None = None) -> int:
        """Milliseconds from the first event to the last one, or to `now` in seconds since 1970."""
        if now is None or self._begun is None:
            return self._latest
        return max(self._latest, round((now - self._begun) * 1000))

    def _mark(self, at: int | None, kind: str, text: str) -> None:
        self.marks.append(Mark(at, kind, text, len(self.steps) - 1))

    def _place(self, step: Step) -> None:
        progress = self.history.progress
        step.state, step.iteration = progress.state, progress.iteration
        step.outer = dict(progress.loops).get("", progress.state)

    def _start(self, event: EffectStarted) -> None:
        step = self._open.get(event.seq)
        if step is None:
            step = self._open[event.seq] = self._new_step(event)
        if event.kind == "agent":
            name = event.arguments.get("agent")
            step.agent = masked(name) if isinstance(name, str) else ""
        self._place(step)
        step.state = event.state or step.state
        step.start = self._latest
        row = EFFECTS.get(event.kind)
        subject = event.arguments.get(row.subject) if row is not None and row.subject else None
        if subject is not None and not self._is_bare:
            step.subject = _first_line(diff_text.shown_value(subject))
        step.args = self.values.add_packed(event.arguments)

    def _new_step(self, event: EffectStarted | EffectFinished) -> Step:
        step = Step(event.seq, event.kind, after=len(self.steps) - 1)
        self._started.append(step)
        return step

    def _drop_open(self) -> None:
        """The effects without a result are performed no more."""
        for step in self._open.values():
            step.until = len(self.steps) - 1
        self._open.clear()

    def _finish(self, event: EffectFinished, used: dict[str, float]) -> None:
        step = self._open.pop(event.seq, None) or self._new_step(event)
        result = event.result or {}
        step.end, step.until = self._latest, len(self.steps)
        if step.start is None:
            step.start = step.end
            self._place(step)
        step.result = self.values.add_packed(result)
        step.failed = bool(result.get("exit_code")) or any(
            result.get(name) for name in ("error", "timed_out", "signal")
        )
        for unit, value in self.history.used.by_unit().items():
            setattr(step, unit, round(value - used[unit], 9))
        step.notes = self.steps[-1].notes
        self.changed_from = min(self.changed_from, len(self.steps) - 1)
        self._finished[event.seq] = len(self.steps) - 1
        self.steps[-1] = step
        self.steps.append(Step())

    def _add_note(self, note: NoteEvent) -> None:
        last = self.steps[-1]
        before = self.steps[-2] if len(self.steps) > 1 else None
        self.changed_from = min(self.changed_from, max(len(self.steps) - 2, 0))
        fields = _bare(note) if self._is_bare else note.own_fields()
        last.notes.append(masked(diff_text.describe(Note(note.kind_name, fields))))
        if isinstance(note, StateEnter | LoopComplete) and last.seq is None:
            self._place(last)
        if isinstance(note, Route):
            self.taken.add(note)
        if before is None:
            return
        if isinstance(note, Evaluate):
            before.verdict = masked(str(diff_text.shown_value(note.verdict)))
            before.details = self.values.add_packed(note.details)
            before.tone = _tone(before.verdict)
        elif isinstance(note, Route):
            before.route = masked(note.to)

    def _add_activity(self, event: AgentActed | Guarded | TreeTaken) -> None:
        step = self._open.get(event.seq)
        if step is None:  # a tree is recorded after the result
            at = self._finished.get(event.seq)
            if at is None:
                return
            step = self.steps[at]
            self.changed_from = min(self.changed_from, at)
        plain = event.of(diff_text.shown_map(event.wire))
        if isinstance(plain, TreeTaken):
            if plain.tree is not None and (plain.when == "after" or "before" not in step.trees):
                step.trees[plain.when] = (plain.store, plain.tree)
            if plain.when == "after":
                step.files += [[masked(str(part)) for part in row] for row in plain.changes or () if row]
            if not agent_text.is_detail(plain):
                step.activity.append(("tree", self._text(plain)))
            return
        if isinstance(plain, AgentActed):
            step.session = plain.id if plain.what == "session" else step.session
            step.model = plain.name_ if plain.what == "model" else step.model
            step.tools += plain.what == "tool"
        told = self._text(plain)
        if told and len(step.activity) < _MOST_ACTIVITY:
            kind = "guard" if isinstance(plain, Guarded) else plain.what
            kind = "failed" if isinstance(plain, AgentActed) and plain.is_error else kind
            step.activity.append((kind, told))

    def _text(self, event: AgentActed | Guarded | TreeTaken) -> str:
        if self._is_bare and isinstance(event, AgentActed):
            kept = {name: value for name, value in event.wire.items() if name not in ("text", "target")}
            event = AgentActed.of(kept)
        return masked("\n".join(agent_text.describe(event, is_whole=True)))


def _bare(note: NoteEvent) -> dict[str, Any]:
    """The fields of a note without what may be contents."""
    return {name: value for name, value in note.own_fields().items() if name in _NAMES}


def _by(reason: str | None) -> str:
    return "" if reason in (None, "terminal", "return") else f" by {masked(str(reason))}"


def _tone(verdict: str) -> str:
    if verdict in _GOOD:
        return "good"
    return "error" if verdict in _ERRORS else "bad" if verdict in ("failure", "no", "stall") else ""


def _first_line(value: Any) -> str:
    text = value if isinstance(value, str) else to_text(value)
    first, _, more = masked(text).strip().partition("\n")
    if len(first) > _LONGEST_SUBJECT:
        return first[: _LONGEST_SUBJECT - 1] + "…"
    return first + (" …" if more.strip() else "")


def to_text(value: Any) -> str:
    """Plain data in one line."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
