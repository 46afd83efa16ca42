"""Steps of a run: its effects in the order of their results, each with its verdict, route and notes.

Position `n` of a run is the point after `n` results, as in `llc trace`. Step `n` is the effect whose result
comes next, or the end. `RunHistory` folds the journal; a step contains the events of one position. `model`
adds the slots.
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

_MAX_SUBJECT_CHARS = 200
_GOOD_VERDICTS = ("success", "target", "yes", "progress")
_BAD_VERDICTS = ("failure", "no", "stall")
_ERROR_VERDICTS = ("error", "blocked")
# Fields of notes that are names and numbers, and therefore part of a bare report.
_BARE_FIELDS = ("loop", "state", "iteration", "type", "verdict", "from", "to", "policy", "cycle", "status")
# Limit of the entries of an agent's activity in one step.
_MAX_ACTIVITIES = 2000


@define
class Step:
    """The effect at a position of a run.

    args, result, details: indices in the table of values.
    state: the author's state, `<loop>/<state>` in an inner loop.
    outer: the state of the program.
    start, end: milliseconds since the start of the run.
    after, until: number of results when the effect started and ended.
    lane: row of the timeline, see `lanes`.
    agent: name of the agent, "" for the default one, None if the effect is not an agent.
    verdict, route: of the evaluation of the result. details: of the verdict. tone: good, bad, error or "".
    usd, tokens, calls, seconds: consumption by unit of a budget.
    notes: texts of the notes before the effect.
    activity: entries of the agent's work: kind and text.
    files: changed files: letter and path.
    trees: store and tree by "before" and "after".
    tools: number of tool calls.
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
    """A mark on the timeline. kind: end, interrupted, resumed, changed or damage. at: None if unknown."""

    at: int | None
    kind: str
    text: str
    step: int


class Steps:
    """The steps of a run, built from its events in order (`add`). The last step has no result yet.

    changed_from: the first step that changed since `take`. is_bare: omit the contents of texts.
    """

    def __init__(self, history: RunHistory, values: Values, is_bare: bool = False) -> None:
        self.history = history
        self.values = values
        self.steps = [Step()]
        self.marks: list[Mark] = []
        self.taken = RouteCounts()
        self.changed_from = 0
        self._is_bare = is_bare
        # Time of the first event in seconds since 1970, and of the latest one in ms since the first.
        self._started_at: float | None = None
        self._latest = 0
        self._started: list[Step] = []
        # Started effects without a result, by number.
        self._open: dict[int, Step] = {}
        # Positions of the finished effects, by number.
        self._finished: dict[int, int] = {}

    def add(self, entry: Event | Damage) -> None:
        """Add the next entry of the journal."""
        count = self.history.results
        used = self.history.used.by_unit() if isinstance(entry, EffectFinished) else {}
        self.history.add(entry)
        if isinstance(entry, Damage):
            if not entry.is_torn_line:
                self._mark(None, "damage", f"the journal is damaged: {entry}")
            return
        moment = entry.moment
        if moment is not None:
            self._started_at = moment if self._started_at is None else self._started_at
            self._latest = max(self._latest, round((moment - self._started_at) * 1000))
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
            self._set_state(last)

    def take(self) -> int:
        """Return the first step that changed since the last call."""
        first, self.changed_from = self.changed_from, len(self.steps)
        return first

    def take_started(self) -> list[Step]:
        """Return the effects that started since the last call, in the order of their starts."""
        started, self._started = self._started, []
        return started

    @property
    def pending(self) -> list[Step]:
        """The effects without a result, in the order of their starts."""
        return list(self._open.values())

    def duration(self, now: float | None = None) -> int:
        """Milliseconds from the first event to the last one, or to `now` in seconds since 1970."""
        if now is None or self._started_at is None:
            return self._latest
        return max(self._latest, round((now - self._started_at) * 1000))

    def _mark(self, at: int | None, kind: str, text: str) -> None:
        self.marks.append(Mark(at, kind, text, len(self.steps) - 1))

    def _set_state(self, step: Step) -> None:
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
        self._set_state(step)
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
        """Remove the effects without a result: they were abandoned."""
        for step in self._open.values():
            step.until = len(self.steps) - 1
        self._open.clear()

    def _finish(self, event: EffectFinished, used: dict[str, float]) -> None:
        step = self._open.pop(event.seq, None) or self._new_step(event)
        result = event.result or {}
        step.end, step.until = self._latest, len(self.steps)
        if step.start is None:
            step.start = step.end
            self._set_state(step)
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
        fields = _bare_fields(note) if self._is_bare else note.own_fields()
        last.notes.append(masked(diff_text.describe(Note(note.kind_name, fields))))
        if isinstance(note, StateEnter | LoopComplete) and last.seq is None:
            self._set_state(last)
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
        text = self._text(plain)
        if text and len(step.activity) < _MAX_ACTIVITIES:
            kind = "guard" if isinstance(plain, Guarded) else plain.what
            kind = "failed" if isinstance(plain, AgentActed) and plain.is_error else kind
            step.activity.append((kind, text))

    def _text(self, event: AgentActed | Guarded | TreeTaken) -> str:
        if self._is_bare and isinstance(event, AgentActed):
            kept = {name: value for name, value in event.wire.items() if name not in ("text", "target")}
            event = AgentActed.of(kept)
        return masked("\n".join(agent_text.describe(event, is_whole=True)))


def _bare_fields(note: NoteEvent) -> dict[str, Any]:
    """The fields of a note that contain no texts of the run."""
    return {name: value for name, value in note.own_fields().items() if name in _BARE_FIELDS}


def _by(reason: str | None) -> str:
    return "" if reason in (None, "terminal", "return") else f" by {masked(str(reason))}"


def _tone(verdict: str) -> str:
    if verdict in _GOOD_VERDICTS:
        return "good"
    if verdict in _ERROR_VERDICTS:
        return "error"
    return "bad" if verdict in _BAD_VERDICTS else ""


def _first_line(value: Any) -> str:
    """The first line of a text, shortened; the items of a list are joined."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    first, _, more = masked(text).strip().partition("\n")
    if len(first) > _MAX_SUBJECT_CHARS:
        return first[: _MAX_SUBJECT_CHARS - 1] + "…"
    return first + (" …" if more.strip() else "")
