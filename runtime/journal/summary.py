"""What a run's journal tells about it so far: where it is, how long it took, what it cost.

Reads a journal once and then only what is new, so that it can be followed. Interprets nothing that
the program means; `replay` does that.
"""

from __future__ import annotations

import contextlib
import os.path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..host import files
from ..host.errors import EXIT_FAILURE, UserError, reason
from ..host.paths import HISTORY
from ..host.secrets import hidden
from ..project.budget import CALLS
from ..runs.locks import is_live
from . import journal
from .active_time import ActiveTime, seconds
from .journal import BlobError, Blobs
from .position import Progress, state_shown
from .run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

_STARTS = ("action_start", "effect_start")
_ENDS = ("action_complete", "effect_complete")
_CHUNK = 1 << 20


def left_out(journal: str, lines: int) -> str:
    """What is said of a journal whose damaged lines are passed over."""
    which = "1 line is" if lines == 1 else f"{lines} lines are"
    return f"note: {journal}: {which} damaged and left out\n"


class Follower:
    """The events of a journal, those that are there and then those that come.

    Raises UserError where there is no journal to be read; a run in the queue has none yet.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._file = self._open()
        self._rest = b""
        # How many whole lines were damaged so far.
        self.damaged = 0

    def _open(self) -> BinaryIO | None:
        try:
            # Open for good: when the run ends its folder moves, and the file with it.
            return files.open(self._run.journal, "rb")
        except OSError as error:
            if isinstance(error, FileNotFoundError) and is_live(self._run):
                return None
            message = f"cannot read the journal of {self._run.id}: {reason(error)}"
            raise UserError("no-record", message, exit_code=EXIT_FAILURE) from None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Each whole line that is new, and its event; what is damaged is left out."""
        if self._file is None:
            self._file = self._open()
            if self._file is None:
                return
        if files.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0, files.SEEK_END)  # it was repaired: what was cut off is gone
            self._rest = b""
        while data := self._file.read(_CHUNK):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                event = journal.unseal(line)
                if event is None:
                    self.damaged += 1
                    continue
                _take_out_unsound(event)
                yield line, event

    def events(self) -> Iterator[dict[str, Any]]:
        return (event for _, event in self.lines())

    def whole(self, value: Any) -> Any:
        """A value of an event for people: long texts as they were, secrets masked; what is lost says so."""
        return journal.unpack(value, self._fetch, hidden)

    def _fetch(self, name: str, size: int) -> str:
        run = self._run
        for folder in (run.outputs, os.path.join(run.root, HISTORY, run.id, "outputs")):
            with contextlib.suppress(BlobError):
                return Blobs(folder).fetch(name, size)
        return f"[{size} bytes, lost]"


# What the fields of events are, where more is done with them than to show them.
_WHOLE = ("seq", "iteration", "iterations", "steps", "pid", "exit_code", "code", "cycle")
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(_WHOLE, int),
    **dict.fromkeys(("duration_ms", "elapsed_ms"), (int, float)),
    **dict.fromkeys(("kind", "status", "start_time", "program", "path", "loop", "terminated_by", "ts"), str),
    **dict.fromkeys(("state", "final_state"), str),
    **dict.fromkeys(("args", "result", "error", "details", "overrides"), dict),
    "lost": list,
}


def _take_out_unsound(event: dict[str, Any]) -> None:
    """Take fields out of an event that are not what we write: a journal may have come from anywhere."""
    for name in event.keys() & _KINDS.keys():
        value, kind = event[name], _KINDS[name]
        is_sound = value is None or (isinstance(value, kind) and not isinstance(value, bool))
        if not is_sound or (isinstance(value, int | float) and not -1e15 < value < 1e15):
            del event[name]


class StateSummary:
    """One of the author's states: how often it was entered, for how long, what was judged and spent."""

    __slots__ = ("entered", "ms", "tokens", "usd", "verdicts")

    def __init__(self) -> None:
        self.entered = 0
        self.ms = 0
        self.verdicts: dict[str, int] = {}
        self.usd = 0.0
        self.tokens = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "entered": self.entered,
            "duration_ms": self.ms,
            "verdicts": self.verdicts,
            "usd": round(self.usd, 9),
            "tokens": self.tokens,
        }

    def add(self, told: dict[str, Any]) -> None:
        self.entered += told["entered"]
        self.ms += told["duration_ms"]
        self.usd += told["usd"]
        self.tokens += told["tokens"]
        for verdict, count in told["verdicts"].items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + count


class Summary:
    """A run as its events tell; `take` them in order.

    start, end: its `run_start` and `run_end`. pending: the effects that have started and have no result,
    by seq; processes: those that were started for them, each with its start time. verdict: the latest
    `evaluate`. is_interrupted: it was asked to stop, or stopped for a `reason`, and not resumed since.
    unpriced: calls of which nobody knows what they cost.
    """

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        self.is_interrupted = False
        self.reason: str | None = None
        self.progress = Progress()
        self.resumed = 0
        self.verdict: dict[str, Any] | None = None
        self.pending: dict[int, dict[str, Any]] = {}
        self.processes: dict[int, list[tuple[int, str]]] = {}
        self.states: dict[str, StateSummary] = {}
        self.usd = 0.0
        self.tokens = 0
        self.calls = 0
        self.unpriced = 0
        self.call_seconds = 0.0
        self.last = ""
        self._active = ActiveTime()
        self._until: float | None = None
        self._entered: float | None = None

    @property
    def state(self) -> str | None:
        return self.progress.state

    @property
    def iteration(self) -> int:
        return self.progress.iteration

    @property
    def steps(self) -> int:
        return self.progress.steps

    def take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        moment = seconds(event.get("ts"))
        if kind == "run_start":
            self.start = event
        elif kind == "run_resume":
            self._leave_state(self._until)
            self.is_interrupted = False
            self.reason = None
            self.resumed += 1
            self.pending.clear()
            self.processes.clear()
            self._entered = moment
        elif kind in ("run_end", "run_interrupted"):
            self._leave_state(moment)
            self.is_interrupted = kind == "run_interrupted"
            self.reason = event.get("reason")
            if kind == "run_end":
                self.end = event
                self.pending.clear()
                self.processes.clear()
        elif kind == "state_enter":
            self._leave_state(moment)
            self.progress.note(kind, event)
            self._of(self.state).entered += 1
            self._entered = moment
        elif kind == "loop_complete":
            self._leave_state(moment)
            self.progress.note(kind, event)
            if self.state is not None and "loop" in event:
                self._entered = moment  # a loop within it is over: the program is back in its state
        elif kind == "evaluate":
            self.progress.note(kind, event)
            self.verdict = event
            verdicts = self._of(state_shown(event)).verdicts
            verdict = str(event.get("verdict"))
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
        elif kind in _STARTS:
            self.pending[event.get("seq", 0)] = event
        elif kind == "process":
            started = (event.get("pid", 0), event.get("start_time", ""))
            self.processes.setdefault(event.get("seq", 0), []).append(started)
        elif kind in _ENDS:
            begun = self.pending.pop(event.get("seq", 0), {})
            self.processes.pop(event.get("seq", 0), None)
            self._spend(event, begun.get("state") or self.state)
        self.last = event.get("ts") or self.last
        self._active.add(event)
        self._until = self._until if moment is None else moment

    def _of(self, state: Any) -> StateSummary:
        return self.states.setdefault(str(state), StateSummary())

    def _leave_state(self, moment: float | None) -> None:
        if self.state is not None and self._entered is not None and moment is not None:
            self._of(self.state).ms += max(0, round((moment - self._entered) * 1000))
        self._entered = None

    def _spend(self, event: dict[str, Any], state: Any) -> None:
        result = event.get("result")
        if event.get("kind") in CALLS:
            self.calls += 1
            self.call_seconds += _amount(result.get("duration_ms") if isinstance(result, dict) else 0) / 1000
        usage = result.get("usage") if isinstance(result, dict) else None
        if not isinstance(usage, dict):
            return
        usd, tokens = _amount(usage.get("usd")), int(_amount(usage.get("tokens")))
        self.usd += usd
        self.tokens += tokens
        self.unpriced += usage.get("usd") is None
        if state is not None:
            of_state = self._of(state)
            of_state.usd += usd
            of_state.tokens += tokens

    def elapsed_ms(self, now: float | None = None) -> int:
        """For how long the run was active; up to `now` where it goes on."""
        return self._active.total(now)

    def elapsed_here_ms(self, now: float) -> int:
        """Milliseconds since the state was entered."""
        return 0 if self._entered is None else max(0, round((now - self._entered) * 1000))


def of(run: RunFolder) -> Summary:
    """The summary of a run as its journal is now. Raises UserError."""
    follower = Follower(run)
    try:
        summary = Summary()
        for event in follower.events():
            summary.take(event)
        return summary
    finally:
        follower.close()


def _amount(value: Any) -> float:
    """A number that was spent; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value if 0 <= value < 1e15 else 0
