"""Event kinds of a journal: one class per kind, with its wire name, typed fields and documentation.

Writers create instances of these classes, readers return them, and the table in `spec/events.md` is generated
from them. The notes of a program are declared in `ir.effects`; here their fields get types. The base class is
in `typed_event`.

Only this module contains the wire names of events and fields.
"""

from __future__ import annotations

from ...ir.effects import NOTES
from .agent_activity import AgentActivity
from .codec import KIND, TIME
from .typed_event import ABSENT, KINDS, LARGEST, Event, Field, Written, line_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Also the names of the base that users of the kinds need.
__all__ = ["ABSENT", "KINDS", "LARGEST", "Event", "Field", "Written", "line_head"]

# Identification of an effect in doubt: its kind, and a CRC-32 of its command.
Mark = tuple[str, int]
_NUMBERS = (int, float)


def read_event(wire: dict[str, Any], offset: int = 0, line: int = 0) -> Event:
    """Return the typed event for the object of a line."""
    return KINDS.get(wire[KIND], Unlisted).of(wire, offset, line)


def own_event(written: Written, line: int) -> Event:
    """Return the typed event for an event that this process has just written as line number `line`."""
    kind, fields, ts, offset = written
    event = object.__new__(KINDS.get(kind, Unlisted))
    event.ts, event.wire, event.offset, event.line = ts, fields, offset, line
    return event


# --- events of the driver ---------------------------------------------------------------------


class RunStart(Event, name="run_start"):
    """The run starts. `format`: format of the journal, 1; `path`: file of the program, or `expression`
    (`-e`); `scope`: paths of the run, if a batch changed them; `limits`: `fuel`, `depth` and `size`, if not
    the default; `budget`: limits of its budget; `forked_from`: the `run` whose history it shares, the effect
    `at` which they diverge, and the time of the fork (`ts`)."""

    format: int
    run: str
    program: str
    program_hash: str
    llc: str
    path: str | None
    expression: str | None = ABSENT
    script: str | None = ABSENT
    scope: list[Any] | None = ABSENT
    overrides: dict[str, Any] | None = ABSENT
    limits: dict[str, Any] | None = ABSENT
    budget: dict[str, Any] | None = ABSENT
    forked_from: dict[str, Any] | None = ABSENT

    @property
    def parent(self) -> dict[str, Any] | None:
        """Of a fork: the `run` whose history it shares, and the effect `at` which they diverge; else None."""
        fork = self.forked_from or {}
        at = fork.get("at")
        if not isinstance(fork.get("run"), str):
            return None
        return {"run": fork["run"], "at": at if type(at) is int else None}

    @property
    def started_at(self) -> str | None:
        """Start of this run; for a fork, the time of the fork (earlier events belong to the parent)."""
        ts = (self.forked_from or {}).get(TIME)
        return ts if isinstance(ts, str) else self.ts or None

    def is_fork_begun(self, event: Event) -> bool:
        """Whether this run is a fork and the event is its own, not shared with its parent."""
        ts = (self.forked_from or {}).get(TIME)
        return isinstance(ts, str) and event.ts >= ts


class EffectEvent(Event):
    """Base class of the events of one effect; `seq` is its number."""

    seq: int


class EffectStarted(EffectEvent):
    """Base class of the two kinds of effect starts."""

    kind: str
    args: dict[str, Any]
    state: str | None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the effect, including its command."""
        return self.args


class EffectFinished(EffectEvent):
    """Base class of the two kinds of effect results."""

    kind: str
    result: dict[str, Any] | None

    @property
    def active_ms(self) -> int | None:
        result = self.wire.get("result")
        return _milliseconds(result.get("elapsed_ms")) if result.__class__ is dict else None

    @property
    def duration_ms_said(self) -> float | None:
        """Duration in milliseconds as reported in the result."""
        return reported_duration(self.result or {})

    @staticmethod
    def read(wire: dict[str, Any]) -> tuple[int, str, dict[str, Any] | None, int | None]:
        """Read `seq`, `kind`, `result` and `active_ms` in one pass: each step of a run folds them."""
        seq, kind, result = wire.get("seq"), wire.get("kind"), wire.get("result")
        if seq.__class__ is not int or not -LARGEST < seq < LARGEST:
            seq = 0
        if kind.__class__ is not str:
            kind = ""
        if result.__class__ is not dict:
            return seq, kind, None, None
        active = result.get("elapsed_ms")
        if active.__class__ is not int or not 0 <= active < LARGEST:
            active = None
        return seq, kind, result, active


class ActionStart(EffectStarted, name="action_start"):
    """A shell or slash command is about to start. `action`: the command; `args`: its other arguments, and the
    complete command if it has more than 4096 characters, because `action` shortens it."""

    action: Any
    seq: int
    kind: str
    args: dict[str, Any]
    state: str | None

    @property
    def arguments(self) -> dict[str, Any]:
        args = self.args
        return {**args, "command": self.action} if "action" in self.wire and "command" not in args else args


class Process(EffectEvent, name="process"):
    """A process was started for an effect. `start_time` distinguishes it from a later process with its
    pid."""

    seq: int
    pid: int
    start_time: str


class TreeTaken(EffectEvent, name="tree"):
    """The files of the project were recorded `before` or `after` an effect that may change them. `store`:
    `git` or `manifest`; `tree`: id in the store, or null with the `reason`; `changes`: letter (A, D, M or T)
    and path of each file that changed since the previous tree, at most 200; `changed`: number of changed
    files; `left_out`: paths without recorded content, with the reason; `concurrent`, `runs`: concurrent
    effects and other runs, whose changes are in the tree too."""

    seq: int
    when: str
    store: str
    tree: str | None
    changes: list[Any] | None = ABSENT
    changed: int | None = ABSENT
    left_out: list[Any] | None = ABSENT
    concurrent: list[Any] | None = ABSENT
    runs: list[Any] | None = ABSENT
    reason: str | None = ABSENT
    duration_ms: float | None


class Guarded(EffectEvent, name="guard"):
    """An agent changed guarded paths. `on`: `revert` (the paths were restored to the previous tree) or `fail`
    (the step fails); `changes`: letter (A, D, M or T) and path of each change, at most 200; `changed`: their
    number."""

    seq: int
    on: str
    changes: list[Any]
    changed: int


class AgentActed(EffectEvent, name="agent"):
    """An activity that an agent reports during its work; empty fields are omitted. `what`: `session`,
    `model`, `text`, `tool`, `tool-end`, `files`, `usage`, `rate-limit`, `quota-wait`, `quota-over`, `retry`,
    `refusal`, `question`, `answer`, `error` or `final` (`journal/agent_activity.py` lists their fields), or
    `bound`: after 10,000 events or 16 MiB, no more activities of this effect are recorded."""

    seq: int
    what: str
    id: str = ABSENT
    name_: str = ABSENT
    target: str = ABSENT
    text: str = ABSENT
    files: list[Any] = ABSENT
    is_error: bool = ABSENT
    status: int | None = ABSENT
    resets_at: float | None = ABSENT
    attempt: int | None = ABSENT
    delay_s: float | None = ABSENT
    usage: dict[str, Any] = ABSENT

    @staticmethod
    def of_activity(seq: int, activity: AgentActivity) -> AgentActed:
        """Return the event for an activity of an agent."""
        return AgentActed(
            seq=seq,
            what=activity.kind,
            id=activity.id or ABSENT,
            name_=activity.name or ABSENT,
            target=activity.target or ABSENT,
            text=activity.text or ABSENT,
            files=list(activity.files) or ABSENT,
            is_error=activity.is_error or ABSENT,
            status=_absent_if_none(activity.status),
            resets_at=_absent_if_none(activity.resets_at),
            attempt=_absent_if_none(activity.attempt),
            delay_s=_absent_if_none(activity.delay_s),
            usage=_absent_if_none(activity.usage),
        )


class ActionComplete(EffectFinished, name="action_complete"):
    """A command has ended or could not start. `result`: the result for the program."""

    exit_code: int | None
    duration_ms: float | None
    seq: int
    kind: str
    result: dict[str, Any] | None


class EffectStart(EffectStarted, name="effect_start"):
    """An effect that is not a command is about to be performed. `state`: the requesting state, if it is not
    the state entered last."""

    seq: int
    kind: str
    state: str | None = ABSENT
    args: dict[str, Any]


class EffectComplete(EffectFinished, name="effect_complete"):
    """An effect that is not a command has its result."""

    seq: int
    kind: str
    result: dict[str, Any] | None


class RunInterrupted(Event, name="run_interrupted"):
    """The run was interrupted and can be resumed. `reason`: absent after Ctrl-C or SIGTERM; `hangup`: the
    terminal was closed, and actions with a keeper continue; `fuel`, `budget`: the fuel or the budget is used
    up; `handoff`: an agent handed over, and the loop pauses; `parked`: the run on a worker only waits and
    continues automatically."""

    state: str | None
    duration_ms: float | None
    reason: str | None = ABSENT

    @property
    def active_ms(self) -> int | None:
        return _milliseconds(self.wire.get("duration_ms"))


# Reason of an interruption: the run on a worker only waits. It continues automatically.
PARKED = "parked"
# Reason of an interruption: the terminal was closed. The actions continue, and `llc resume` takes them over.
HANGUP = "hangup"
# Decision about an effect whose action has survived its driver.
TAKE_OVER = "take-over"


class RunResume(Event, name="run_resume"):
    """The run resumes. `elapsed_ms`: its active time so far; `unknown`: decision about each effect in doubt,
    by number (`rerun`, `continue`, `fail` or `take-over`); `lost`: losses by damage to the journal, a
    sentence each; `set_aside`: file with the part that was removed from the journal; `doubtful`: later
    effects that may have been performed, with kind and a CRC-32 of the command."""

    state: str | None
    iteration: int
    elapsed_ms: float | None
    unknown: dict[str, Any]
    lost: list[str]
    set_aside: str | None
    doubtful: list[Any] | None = ABSENT

    @property
    def active_ms(self) -> int | None:
        return _milliseconds(self.wire.get("elapsed_ms"))

    @property
    def marks(self) -> dict[int, Mark | None]:
        """Value of `doubtful` by effect number."""
        return read_marks(self.doubtful)


class ProgramChanged(Event, name="program_changed"):
    """The run continues with another program. `image`: file of the program in the run's folder; `link`: file,
    state and name of a loop with a computed name that was added to the program (absent for
    `--accept-changes`)."""

    program_hash: str | None
    image: str
    state: str | None
    link: list[Any] | None = ABSENT


class RunEnd(Event, name="run_end"):
    """The run has ended, with the outcome that `llc run --json` prints. `code`: exit code that a flow
    requested; `evidence`: check or verdict that established the success (`agents.md`)."""

    status: str | None
    terminated_by: str | None
    final_state: str | None
    iterations: int | None
    steps: int | None
    value: Any
    error: dict[str, Any] | None
    duration_ms: float | None
    code: int | None = ABSENT
    evidence: dict[str, Any] | None = ABSENT

    @property
    def active_ms(self) -> int | None:
        return _milliseconds(self.wire.get("duration_ms"))


# --- notes of the program ---------------------------------------------------------------------


class NoteEvent(Event):
    """Base class of the notes of a program."""

    by = "program"
    loop: str | None

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__(name)
        if name:
            cls.__doc__ = NOTES[name].doc


class StateNote(NoteEvent):
    """Base class of notes about a state."""

    state: str | None

    @property
    def shown_state(self) -> str | None:
        """Name of the state for display: `<loop>/<state>` for a state of an inner loop."""
        return shown_state(self.loop, self.state)


class LoopStart(NoteEvent, name="loop_start"):
    loop: str | None


class StateEnter(StateNote, name="state_enter"):
    loop: str | None = ABSENT
    state: str | None
    iteration: int

    @staticmethod
    def read(wire: dict[str, Any]) -> tuple[str | None, str | None, int]:
        """Read `loop`, `state` and `iteration` in one pass: each step of a run folds them."""
        loop, state, iteration = wire.get("loop"), wire.get("state"), wire.get("iteration")
        if iteration.__class__ is not int or not -LARGEST < iteration < LARGEST:
            iteration = 0
        return (loop if loop.__class__ is str else None, state if state.__class__ is str else None, iteration)


class Evaluate(StateNote, name="evaluate"):
    loop: str | None = ABSENT
    state: str | None
    type: str
    verdict: Any
    details: dict[str, Any]
    confidence: Any = ABSENT


class Route(NoteEvent, name="route"):
    loop: str | None = ABSENT
    from_: str
    to: str
    verdict: Any = ABSENT


class Handoff(StateNote, name="handoff"):
    loop: str | None = ABSENT
    state: str | None
    policy: str
    text: Any


class Hook(StateNote, name="hook"):
    loop: str | None = ABSENT
    state: str | None = ABSENT
    hook: str


class Cycle(NoteEvent, name="cycle"):
    loop: str | None = ABSENT
    cycle: int


class Log(NoteEvent, name="log"):
    message: Any


class LoopComplete(NoteEvent, name="loop_complete"):
    loop: str | None = ABSENT
    final_state: str | None
    iterations: int | None
    status: str | None
    cycles: int | None = ABSENT
    terminated_by: str | None


class Unlisted(NoteEvent):
    """Event of a kind that is not in the table: a note of another version."""

    @property
    def kind_name(self) -> str:
        return str(self.wire.get(KIND))


def read_marks(rows: Any) -> dict[int, Mark | None]:
    """Convert `RunResume.doubtful` to marks by effect number; malformed rows are ignored."""
    marks: dict[int, Mark | None] = {}
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [int(seq)]:
                marks[seq] = None
            case [int(seq), str(kind), int(crc)]:
                marks[seq] = (kind, crc)
    return marks


def shown_state(loop: str | None, state: str | None) -> str | None:
    """Return the name of a state for display: `<loop>/<state>` for a state of an inner loop."""
    return state if state is None or loop is None else f"{loop}/{state}"


def _absent_if_none(value: Any) -> Any:
    return ABSENT if value is None else value


def reported_duration(result: dict[str, Any]) -> float | None:
    """Return the duration in milliseconds in the result of an effect; None if absent or invalid."""
    took = result.get("duration_ms")
    return took if took.__class__ in _NUMBERS and 0 <= took < LARGEST else None


def _milliseconds(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < LARGEST else None
