"""Replay of a journal in lockstep: each line is read once, and compared as the program comes to it.

Owns the quick way to find a run identical, in bounded memory. It never decides that a run differs: whatever
is not plainly as recorded (calls side by side, another program, damage, a difference) is left to `diff`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir.records import frozen
from ...vm.code.image import Image
from ...vm.machine.outcomes import Effect
from ..host.errors import UserError
from ..journal import events as kinds
from ..journal.codec import is_line_of, unseal
from ..journal.journal import Blobs
from ..journal.reader import missing_bytes, whole_lines
from . import diff
from .find import RunFiles
from .re_execution import ReExecution
from .recording import Asked, Note, Recording, bounded

# What the driver records and a program does not do.
_DRIVER = (
    *(kinds.Process, kinds.AgentActed, kinds.Guarded, kinds.TreeTaken),
    *(kinds.RunInterrupted, kinds.RunResume),
)
_DRIVER_LINES = tuple(kinds.line_head(kind) for kind in _DRIVER)


class _Unlike(Exception):
    """The journal is not plainly what the program does."""


@frozen
class Identical:
    """A run that its program repeats. results: how many it got. end: its `run_end`, None without one."""

    comparison: diff.Comparison
    results: int
    end: dict[str, Any] | None


def follow(files: RunFiles, image: Image) -> Identical | None:
    """Execute a run again along its journal; None where it takes `diff` to tell. Raises ReadError."""
    if missing_bytes(files.journal):
        return None
    lines = whole_lines(files.journal)
    try:
        start = _event(next(lines, b""))
        if not isinstance(start, kinds.RunStart):
            return None
        recording = Recording(files.name, {}, Blobs(files.outputs).fetch)
        recording.about = recording.value(start.wire, "how the run began")
        with bounded(recording.about):
            return _Lockstep(recording, lines, ReExecution(image)).run()
    except (_Unlike, UserError):
        return None  # `diff` raises it, too
    finally:
        lines.close()


class _Lockstep:
    """line: the next one of what the program did; None at the end of the journal."""

    def __init__(self, recording: Recording, lines: Iterator[bytes], execution: ReExecution) -> None:
        self.recording = recording
        self.execution = execution
        self.same = 0
        self._lines = lines
        self._pass()

    def run(self) -> Identical:
        execution = self.execution
        while self.line is not None:
            for event in execution.events():
                self._match(event)
                if self.line is None:
                    break  # a run that crashed may have been computing, without an end
            if self.line is not None:
                entry = _event(self.line)
                if isinstance(entry, kinds.RunEnd):
                    return self._end(entry.wire)
                self._give(entry)
        return self._identical(None)

    def _match(self, event: tuple[str, dict[str, Any]] | Effect) -> None:
        """Compare the next line with what the program did."""
        assert self.line is not None
        if not isinstance(event, Effect):
            if not is_line_of(self.line, *event):
                then = _event(self.line)
                now = diff.note(*event)
                if not isinstance(then, kinds.NoteEvent) or not diff.is_same(
                    Note(then.kind_name, then.own_fields()), now
                ):
                    raise _Unlike
        else:
            then = _event(self.line)
            if (
                not isinstance(then, kinds.EffectStarted)
                or then.seq != event.seq
                or self.execution.machine.is_ready
                or not diff.is_same(Asked(then.seq, then.kind, then.arguments), diff.asked(event))
            ):
                raise _Unlike
        self.same += 1
        self._pass()

    def _give(self, entry: kinds.Event) -> None:
        """Give the program its next result, which must be what comes next."""
        waiting = self.execution.machine.waiting
        while isinstance(entry, kinds.EffectStarted) and entry.seq in waiting:
            self._pass()  # started again, after a resume
            if self.line is None:
                return
            entry = _event(self.line)
        if not isinstance(entry, kinds.EffectFinished) or entry.seq not in waiting:
            raise _Unlike
        result = entry.result
        if result is None:
            raise _Unlike
        self.execution.give(entry.seq, self.recording.value(result, f"the result of effect {entry.seq}"))
        self._pass()

    def _pass(self) -> None:
        """Go to the next line of what the program did."""
        line = next(self._lines, None)
        while line is not None and line.startswith(_DRIVER_LINES):
            _event(line)
            line = next(self._lines, None)
        self.line = line

    def _end(self, end: dict[str, Any]) -> Identical:
        self._pass()
        if self.line is not None or not diff.is_same_end(end, self.execution, exact=True):
            raise _Unlike
        return self._identical(end)

    def _identical(self, end: dict[str, Any] | None) -> Identical:
        execution = self.execution
        told = diff.Comparison(self.same, self.same, execution.machine.ticks, None, end is not None)
        return Identical(told, execution.answers, end)


def _event(line: bytes) -> kinds.Event:
    wire = unseal(line[:-1])
    if wire is None:
        raise _Unlike
    return kinds.read_event(wire)
