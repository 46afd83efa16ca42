"""Time profile of a run: by state and effect, and the time that llc itself used.

Owns how time is divided. Each moment belongs in equal parts to the effects that are then being performed, and
to llc if there are none, so the parts add up to the time the run was active. A profile is made of any journal
(`of_events`), or measured during a run (`Meter`), which also separates the machine from the journal.
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
# Time stamps that go so far beyond what a run says of its time are of a machine that slept.
_ASLEEP = 1.0
_STARTS = (kinds.ActionStart.name, kinds.EffectStart.name)
_ENDS = (kinds.ActionComplete.name, kinds.EffectComplete.name)
_STOPS = (kinds.RunEnd.name, kinds.RunInterrupted.name)
_NOTES = {name: kind for name, kind in kinds.KINDS.items() if issubclass(kind, kinds.NoteEvent)}

# The states a program is in, outermost first, each with its loop; '' is the program itself.
Chain = tuple[tuple[str, str], ...]
Key = tuple[Chain, str]


class Cost(LightRecord):
    """count: how often. total: seconds it took. share: seconds of the run's time that are its own."""

    count: int = 0
    total: float = 0.0
    share: float = 0.0

    def add(self, other: Cost) -> None:
        self.count += other.count
        self.total += other.total
        self.share += other.share


class Places(LightRecord):
    """The states around whatever the program does, by its notes.

    A note says its loop and not what is around that: a loop whose states are entered while another is in a
    state is taken to be inside it, until an effect of that state shows that they are side by side.
    """

    _chain: Chain = ()
    _shown: dict[str, Chain] = field(factory=dict)
    _open: dict[str, Chain] = field(factory=dict)
    _beside: set[tuple[str, str]] = field(factory=set)

    def stand(self, loops: Iterable[tuple[str, str | None]]) -> None:
        """The position of a resumed run: active loops with their states, in the order of their start."""
        for loop, state in loops:
            if state is not None:
                self._chain = (*self._chain, (loop, state))
                self._shown[state] = self._open[loop] = self._chain

    def note(self, note: kinds.NoteEvent) -> None:
        """The program made this note."""
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
        # A loop inside this one is over, however it ended.
        self._open = {
            inner: chain
            for inner, chain in self._open.items()
            if inner == name or all(at_loop != name for at_loop, _ in chain)
        }

    def of_effect(self, state: Any) -> Chain:
        """Where an effect is asked for; `state` as its event says, else it is the state entered last."""
        chain = self._chain
        if isinstance(state, str):
            chain = self._shown.get(state, (("", state),))
        if chain:
            loop = chain[-1][0]
            for inner, outer in self._open.items():
                if inner != loop and any(at_loop == loop for at_loop, _ in outer[:-1]):
                    self._beside.add((inner, loop))
        return chain

    def names(self, chain: Chain) -> tuple[str, ...]:
        """The states of a chain as shown, without those that turned out to be concurrent."""
        last = chain[-1][0] if chain else ""
        return tuple(shown for loop, shown in chain if (last, loop) not in self._beside)


class Profile:
    """What is known so far. `costs` by place and kind of effect, `own` by what llc did."""

    def __init__(self, name: str, program: str) -> None:
        self.name = name
        self.program = program
        self.places = Places()
        # How many lines of the journal could not be read.
        self.damaged = 0
        self.own: dict[str, Cost] = {}
        self._costs: dict[Key, Cost] = {}
        self._open: dict[int, tuple[Key, float]] = {}
        self._time: float | None = None

    def advance(self, time: float, own: str) -> None:
        """It is `time` now. What passed is that of the effects under way; else llc did `own`."""
        if self._time is None:
            self._time = time
        passed = time - self._time
        if passed <= 0:
            return
        self._time = time
        if not self._open:
            self.own.setdefault(own, Cost()).share += passed
        for key, _ in self._open.values():
            self._costs[key].share += passed / len(self._open)

    def begin(self, seq: int, key: Key, time: float) -> None:
        self._costs.setdefault(key, Cost())
        self._open[seq] = (key, time)

    def end(self, seq: int, time: float) -> None:
        if seq in self._open:
            key, begun = self._open.pop(seq)
            cost = self._costs[key]
            cost.count += 1
            cost.total += time - begun

    def pause(self, time: float) -> None:
        """The run stops here: effects in progress end, and time passes outside the run."""
        for seq in list(self._open):
            self.end(seq, time)
        self._time = None

    @property
    def costs(self) -> dict[tuple[tuple[str, ...], str], Cost]:
        """Costs by the states around an effect, outermost first, and its kind; the most expensive first."""
        found: dict[tuple[tuple[str, ...], str], Cost] = {}
        for (chain, kind), cost in self._costs.items():
            found.setdefault((self.places.names(chain), kind), Cost()).add(cost)
        return dict(sorted(found.items(), key=lambda item: (-item[1].share, item[0])))

    @property
    def time(self) -> float:
        """Seconds the run was active."""
        return sum(cost.share for cost in (*self._costs.values(), *self.own.values()))


# --- of a journal -----------------------------------------------------------------------------


def of_events(name: str, entries: Iterable[kinds.Event | Damage]) -> Profile:
    """The profile of a run by its events, to the millisecond: by time stamps and the durations of actions."""
    profile = Profile(name, name)
    marks: list[tuple[float, int, int, Key | None]] = []
    open_keys: dict[int, tuple[Key, float]] = {}
    now = begin = before = stood = 0.0

    def leave() -> None:
        """The end of a stretch in which the run was active."""
        for seq, (key, begun) in open_keys.items():
            marks.extend(((begun, 0, seq, key), (now, 1, seq, None)))
        for time, phase, seq, found in sorted(marks, key=lambda mark: mark[:3]):
            profile.advance(time, ALL)
            if phase == 0 and found is not None:
                profile.begin(seq, found, time)
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
            leave()
            before, now = profile.time, 0.0
        if not marks:
            now, stood = time, 0.0
            begin = time
            marks.append((now, 1, 0, None))
        active_ms = event.active_ms
        if active_ms is not None:  # a machine that slept was not active, though its clock continued
            asleep = before + time - stood - begin - active_ms / 1000
            stood += asleep if asleep > _ASLEEP else 0.0
        now = max(now, time - stood)
        if isinstance(event, kinds.EffectStarted):
            open_keys[event.seq] = ((profile.places.of_effect(event.state), event.kind), now)
        elif isinstance(event, kinds.EffectFinished):
            if event.seq in open_keys:
                key, begun = open_keys.pop(event.seq)
                took = event.duration_ms_said
                begun = begun if took is None else max(begun, now - took / 1000)
                marks.extend(((begun, 0, event.seq, key), (now, 1, event.seq, None)))
        elif isinstance(event, kinds.NoteEvent):
            profile.places.note(event)
    leave()
    return profile


# --- while it runs ----------------------------------------------------------------------------


class Meter:
    """Measures one run: its driver gets `machine(…)` and `journal(…)` in place of the real ones."""

    def __init__(self, name: str, program: str) -> None:
        self.profile = Profile(name, program)
        self._pending: dict[int, Key] = {}

    def machine(self, machine: Any) -> Any:
        self.profile.advance(clock.perf_counter(), OTHER)
        return _Machine(machine, self)

    def journal(self, journal: Any) -> Any:
        return _Journal(journal, self)

    def timed(self, own: str, action: Callable[..., Any], *given: Any) -> Any:
        """Do something of llc's own."""
        profile = self.profile
        begun = clock.perf_counter()
        profile.advance(begun, OTHER)
        try:
            return action(*given)
        finally:
            now = clock.perf_counter()
            profile.advance(now, own)
            cost = profile.own.setdefault(own, Cost())
            cost.count += 1
            cost.total += now - begun

    def before(self, kind: str, fields: dict[str, Any]) -> None:
        """An event is about to be recorded."""
        if kind in _ENDS:
            now = clock.perf_counter()
            self.profile.advance(now, OTHER)
            if fields["seq"] in self._pending:
                self.profile.begin(fields["seq"], self._pending.pop(fields["seq"]), now)
            self.profile.end(fields["seq"], now)

    def after(self, kind: str, fields: dict[str, Any]) -> None:
        """An event was recorded. What is waited for, or acts, begins when its start is in the file."""
        if kind in _STARTS:
            row = EFFECTS[fields["kind"]]
            self._pending[fields["seq"]] = (self.profile.places.of_effect(fields.get("state")), row.name)
            if not (row.waits or row.acts):
                self.begin_pending()
        elif kind in _STOPS:
            self.profile.pause(clock.perf_counter())
        elif kind in _NOTES:
            self.profile.places.note(_NOTES[kind].of(fields))

    def begin_pending(self) -> None:
        if not self._pending:
            return
        now = clock.perf_counter()
        self.profile.advance(now, OTHER)
        for seq, key in self._pending.items():
            self.profile.begin(seq, key, now)
        self._pending.clear()


class _Measured:
    """Something of the run's, with the time taken of what it does."""

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Machine(_Measured):
    def resume(self, *given: Any) -> Any:
        return self._meter.timed(MACHINE, self._inner.resume, *given)


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
