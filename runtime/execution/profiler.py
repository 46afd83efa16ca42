"""Time profile of a run: time by state and effect, and the time of llc itself.

Owns the division of time. Each moment is divided equally among the running effects, and belongs to llc if
there are none, so the parts add up to the active time of the run. A profile is computed from a journal
(`of_events`), or measured during a run (`Meter`); a measurement also separates the machine from the journal.
`inspection.profile_report` shows it. Imported only for a profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.effects import EFFECTS
from ...ir.light_records import LightRecord, field
from ..host import clock
from ..journal import events as kinds
from ..journal.reader import Damage

MACHINE, JOURNAL, OTHER, ALL = "machine", "journal", "other", "llc"
# If time stamps exceed the recorded active time by more seconds than this, the computer was suspended.
_MIN_SUSPENSION_S = 1.0
_STARTS = (kinds.ActionStart.name, kinds.EffectStart.name)
_ENDS = (kinds.ActionComplete.name, kinds.EffectComplete.name)
_STOPS = (kinds.RunEnd.name, kinds.RunInterrupted.name)
_NOTES = {name: kind for name, kind in kinds.KINDS.items() if issubclass(kind, kinds.NoteEvent)}

# The active states of a program, outermost first, as (loop, state); the loop '' is the program itself.
Chain = tuple[tuple[str, str], ...]
Key = tuple[Chain, str]


class Cost(LightRecord):
    """The cost of one kind of work: number, total duration in seconds, share of the run's time in seconds."""

    count: int = 0
    total: float = 0.0
    share: float = 0.0

    def add(self, other: Cost) -> None:
        self.count += other.count
        self.total += other.total
        self.share += other.share


class StateTracker(LightRecord):
    """Tracks the active states of a program, from its notes.

    A note names its loop, but not the enclosing loops. A loop whose states are entered while another loop is
    in a state counts as nested in it, until an effect of that state shows that both loops are concurrent.
    """

    _chain: Chain = ()
    _shown: dict[str, Chain] = field(factory=dict)
    _open: dict[str, Chain] = field(factory=dict)
    _concurrent: set[tuple[str, str]] = field(factory=set)

    def restore(self, loops: Iterable[tuple[str, str | None]]) -> None:
        """Set the position of a resumed run: active loops with their states, in the order of their start."""
        for loop, state in loops:
            if state is not None:
                self._chain = (*self._chain, (loop, state))
                self._shown[state] = self._open[loop] = self._chain

    def note(self, note: kinds.NoteEvent) -> None:
        """Update the active states by a note."""
        name = note.loop or ""
        loops = [at_loop for at_loop, _ in self._chain]
        around = self._chain[: loops.index(name)] if name in loops else self._chain
        if isinstance(note, kinds.StateEnter):
            shown = note.shown_state
            if shown is None:
                return
            self._chain = (*around, (name, shown)) if name else (("", shown),)
            self._shown[shown] = self._open[name] = self._chain
        elif isinstance(note, kinds.LoopComplete) and name:
            self._chain = around
            self._open.pop(name, None)
            return
        elif isinstance(note, kinds.Evaluate | kinds.Route) and not name:
            self._chain = tuple(part for part in self._chain if part[0] == "")
        else:
            return
        # Loops nested in this one have ended.
        self._open = {
            inner: chain
            for inner, chain in self._open.items()
            if inner == name or all(at_loop != name for at_loop, _ in chain)
        }

    def of_effect(self, state: Any) -> Chain:
        """The active states of an effect. state: from its event; None for the state that was entered last."""
        chain = self._chain
        if isinstance(state, str):
            chain = self._shown.get(state, (("", state),))
        if chain:
            loop = chain[-1][0]
            for inner, outer in self._open.items():
                if inner != loop and any(at_loop == loop for at_loop, _ in outer[:-1]):
                    self._concurrent.add((inner, loop))
        return chain

    def names(self, chain: Chain) -> tuple[str, ...]:
        """The names of a chain's states, without states of concurrent loops."""
        last = chain[-1][0] if chain else ""
        return tuple(shown for loop, shown in chain if (last, loop) not in self._concurrent)


class Profile:
    """A time profile. costs: by active states and kind of effect. own: by kind of llc's own work."""

    def __init__(self, name: str, program: str) -> None:
        self.name = name
        self.program = program
        self.states = StateTracker()
        # The number of unreadable lines of the journal.
        self.damaged = 0
        self.own: dict[str, Cost] = {}
        self._costs: dict[Key, Cost] = {}
        self._open: dict[int, tuple[Key, float]] = {}
        self._time: float | None = None

    def advance(self, time: float, own: str) -> None:
        """Assign the time since the last call to the running effects, or to `own` without any."""
        if self._time is None:
            self._time = time
        elapsed = time - self._time
        if elapsed <= 0:
            return
        self._time = time
        if not self._open:
            self.own.setdefault(own, Cost()).share += elapsed
        for key, _ in self._open.values():
            self._costs[key].share += elapsed / len(self._open)

    def begin(self, seq: int, key: Key, time: float) -> None:
        self._costs.setdefault(key, Cost())
        self._open[seq] = (key, time)

    def end(self, seq: int, time: float) -> None:
        if seq in self._open:
            key, started_at = self._open.pop(seq)
            cost = self._costs[key]
            cost.count += 1
            cost.total += time - started_at

    def pause(self, time: float) -> None:
        """End the running effects, because the run stops; the time until the next event does not count."""
        for seq in list(self._open):
            self.end(seq, time)
        self._time = None

    @property
    def costs(self) -> dict[tuple[tuple[str, ...], str], Cost]:
        """Costs by active states (outermost first) and kind of effect, the most expensive first."""
        costs: dict[tuple[tuple[str, ...], str], Cost] = {}
        for (chain, kind), cost in self._costs.items():
            costs.setdefault((self.states.names(chain), kind), Cost()).add(cost)
        return dict(sorted(costs.items(), key=lambda item: (-item[1].share, item[0])))

    @property
    def time(self) -> float:
        """The active time of the run, in seconds."""
        return sum(cost.share for cost in (*self._costs.values(), *self.own.values()))


# --- from a journal ---------------------------------------------------------------------------


def of_events(name: str, entries: Iterable[kinds.Event | Damage]) -> Profile:
    """Compute a profile from events, in milliseconds, by time stamps and durations of actions."""
    profile = Profile(name, name)
    marks: list[tuple[float, int, int, Key | None]] = []
    open_keys: dict[int, tuple[Key, float]] = {}
    now = begin = before = suspended = 0.0

    def end_segment() -> None:
        """Add a segment of the run, between a start or resume and the next stop."""
        for seq, (key, started_at) in open_keys.items():
            marks.extend(((started_at, 0, seq, key), (now, 1, seq, None)))
        for time, phase, seq, key_of_start in sorted(marks, key=lambda mark: mark[:3]):
            profile.advance(time, ALL)
            if phase == 0 and key_of_start is not None:
                profile.begin(seq, key_of_start, time)
            else:
                profile.end(seq, time)
        if marks:
            profile.advance(now, ALL)
        profile.pause(now)
        marks.clear()
        open_keys.clear()

    for event in entries:
        if isinstance(event, Damage):
            if not (event.at_end and (event.torn or event.missing)):
                profile.damaged += event.line_count
            continue
        time = event.moment
        if time is None:
            continue
        if isinstance(event, kinds.RunStart):
            profile.program = event.program or name
        elif isinstance(event, kinds.RunResume):
            end_segment()
            before, now = profile.time, 0.0
        if not marks:
            now, suspended = time, 0.0
            begin = time
            marks.append((now, 1, 0, None))
        active_ms = event.active_ms
        if active_ms is not None:  # the clock continues while the computer is suspended
            inactive = before + time - suspended - begin - active_ms / 1000
            suspended += inactive if inactive > _MIN_SUSPENSION_S else 0.0
        now = max(now, time - suspended)
        if isinstance(event, kinds.EffectStarted):
            open_keys[event.seq] = ((profile.states.of_effect(event.state), event.kind), now)
        elif isinstance(event, kinds.EffectFinished):
            if event.seq in open_keys:
                key, started_at = open_keys.pop(event.seq)
                duration_ms = event.duration_ms_said
                started_at = started_at if duration_ms is None else max(started_at, now - duration_ms / 1000)
                marks.extend(((started_at, 0, event.seq, key), (now, 1, event.seq, None)))
        elif isinstance(event, kinds.NoteEvent):
            profile.states.note(event)
    end_segment()
    return profile


# --- while it runs ----------------------------------------------------------------------------


class Meter:
    """Measures one run. Its driver gets the wrappers `machine(…)` and `journal(…)`."""

    def __init__(self, name: str, program: str) -> None:
        self.profile = Profile(name, program)
        self._pending: dict[int, Key] = {}

    def machine(self, machine: Any) -> Any:
        self.profile.advance(clock.perf_counter(), OTHER)
        return _Machine(machine, self)

    def journal(self, journal: Any) -> Any:
        return _Journal(journal, self)

    def timed(self, own: str, action: Callable[..., Any], *args: Any) -> Any:
        """Call an action and assign its time to llc's own work `own`."""
        profile = self.profile
        started_at = clock.perf_counter()
        profile.advance(started_at, OTHER)
        try:
            return action(*args)
        finally:
            now = clock.perf_counter()
            profile.advance(now, own)
            cost = profile.own.setdefault(own, Cost())
            cost.count += 1
            cost.total += now - started_at

    def before(self, kind: str, fields: dict[str, Any]) -> None:
        """Update the profile before an event is recorded."""
        if kind in _ENDS:
            now = clock.perf_counter()
            self.profile.advance(now, OTHER)
            if fields["seq"] in self._pending:
                self.profile.begin(fields["seq"], self._pending.pop(fields["seq"]), now)
            self.profile.end(fields["seq"], now)

    def after(self, kind: str, fields: dict[str, Any]) -> None:
        """Update the profile after a record. An effect that waits or acts starts after the next flush."""
        if kind in _STARTS:
            row = EFFECTS[fields["kind"]]
            self._pending[fields["seq"]] = (self.profile.states.of_effect(fields.get("state")), row.name)
            if not (row.waits or row.acts):
                self.begin_pending()
        elif kind in _STOPS:
            self.profile.pause(clock.perf_counter())
        elif kind in _NOTES:
            self.profile.states.note(_NOTES[kind].of(fields))

    def begin_pending(self) -> None:
        if not self._pending:
            return
        now = clock.perf_counter()
        self.profile.advance(now, OTHER)
        for seq, key in self._pending.items():
            self.profile.begin(seq, key, now)
        self._pending.clear()


class _Measured:
    """Wrapper that measures the calls of an object."""

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Machine(_Measured):
    def resume(self, *args: Any) -> Any:
        return self._meter.timed(MACHINE, self._inner.resume, *args)


class _Journal(_Measured):
    def record(self, event: kinds.Event, ts: str | None = None) -> Any:
        return self.write(event.name, event.wire, ts)

    def write(self, kind: str, fields: dict[str, Any], ts: str | None = None) -> Any:
        self._meter.before(kind, fields)
        try:
            return self._meter.timed(JOURNAL, self._inner.write, kind, fields, ts)
        finally:
            self._meter.after(kind, fields)

    def flush(self) -> None:
        self._meter.timed(JOURNAL, self._inner.flush)
        self._meter.begin_pending()

    def sync_later(self, recorded: Callable[[], object] = bool) -> None:
        self._meter.timed(JOURNAL, self._inner.sync_later, recorded)

    def settle(self) -> None:
        self._meter.timed(JOURNAL, self._inner.settle)
        self._meter.begin_pending()

    def sync(self) -> None:
        self._meter.timed(JOURNAL, self._inner.sync)
        self._meter.begin_pending()
