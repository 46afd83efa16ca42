"""Replay in lockstep with the journal: each line is read once and compared when the program reaches it.

Owns the fast path, with bounded memory, that confirms that a run is identical. It never decides that a run
differs: in all other cases (concurrent calls, another program, damage, a difference), `diff` compares.
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
from .recording import EffectRequest, Note, Recording, bounded

# Events of the driver; a re-execution does not produce them.
_DRIVER = (
    *(kinds.Process, kinds.AgentActed, kinds.Guarded, kinds.TreeTaken),
    *(kinds.RunInterrupted, kinds.RunResume),
)
_DRIVER_LINES = tuple(kinds.line_head(kind) for kind in _DRIVER)


class _Mismatch(Exception):
    """The fast path cannot confirm that the program repeats the journal."""


@frozen
class IdenticalReplay:
    """A run that its program repeats. results: their number. end: its `run_end`; None if unfinished."""

    comparison: diff.Comparison
    results: int
    end: dict[str, Any] | None


def replay_in_lockstep(files: RunFiles, image: Image) -> IdenticalReplay | None:
    """Re-execute a run along its journal; None if `diff` must decide. Raises ReadError."""
    if missing_bytes(files.journal):
        return None
    lines = whole_lines(files.journal)
    try:
        start = _event(next(lines, b""))
        if not isinstance(start, kinds.RunStart):
            return None
        recording = Recording(files.name, {}, Blobs(files.outputs).fetch)
        recording.about = recording.value(start.wire, "the start of the run")
        with bounded(recording.about):
            return _Lockstep(recording, lines, ReExecution(image)).run()
    except (_Mismatch, UserError):
        return None  # `diff` raises the same UserError
    finally:
        lines.close()


class _Lockstep:
    """One replay. line: the next journal line that is not of the driver; None at the end of the journal."""

    def __init__(self, recording: Recording, lines: Iterator[bytes], execution: ReExecution) -> None:
        self.recording = recording
        self.execution = execution
        self.same = 0
        self._lines = lines
        self._advance()

    def run(self) -> IdenticalReplay:
        execution = self.execution
        while self.line is not None:
            for event in execution.events():
                self._match(event)
                if self.line is None:
                    break  # the run crashed while it was computing
            if self.line is not None:
                entry = _event(self.line)
                if isinstance(entry, kinds.RunEnd):
                    return self._end(entry.wire)
                self._give(entry)
        return self._identical(None)

    def _match(self, event: tuple[str, dict[str, Any]] | Effect) -> None:
        """Compare the next line with an event of the re-execution."""
        assert self.line is not None
        if not isinstance(event, Effect):
            if not is_line_of(self.line, *event):
                then = _event(self.line)
                now = diff.note_of(*event)
                if not isinstance(then, kinds.NoteEvent) or not diff.is_same(
                    Note(then.kind_name, then.own_fields()), now
                ):
                    raise _Mismatch
        else:
            then = _event(self.line)
            if (
                not isinstance(then, kinds.EffectStarted)
                or then.seq != event.seq
                or self.execution.machine.is_ready
                or not diff.is_same(
                    EffectRequest(then.seq, then.kind, then.arguments), diff.request_of(event)
                )
            ):
                raise _Mismatch
        self.same += 1
        self._advance()

    def _give(self, entry: kinds.Event) -> None:
        """Give the program its next result, which must be the next line."""
        waiting = self.execution.machine.waiting
        while isinstance(entry, kinds.EffectStarted) and entry.seq in waiting:
            self._advance()  # started again after a resume
            if self.line is None:
                return
            entry = _event(self.line)
        if not isinstance(entry, kinds.EffectFinished) or entry.seq not in waiting:
            raise _Mismatch
        result = entry.result
        if result is None:
            raise _Mismatch
        self.execution.give(entry.seq, self.recording.value(result, f"the result of effect {entry.seq}"))
        self._advance()

    def _advance(self) -> None:
        """Advance to the next line that is not of the driver."""
        line = next(self._lines, None)
        while line is not None and line.startswith(_DRIVER_LINES):
            _event(line)
            line = next(self._lines, None)
        self.line = line

    def _end(self, end: dict[str, Any]) -> IdenticalReplay:
        self._advance()
        if self.line is not None or not diff.is_same_end(end, self.execution, exact=True):
            raise _Mismatch
        return self._identical(end)

    def _identical(self, end: dict[str, Any] | None) -> IdenticalReplay:
        execution = self.execution
        comparison = diff.Comparison(self.same, self.same, execution.machine.ticks, None, end is not None)
        return IdenticalReplay(comparison, execution.answers, end)


def _event(line: bytes) -> kinds.Event:
    wire = unseal(line[:-1])
    if wire is None:
        raise _Mismatch
    return kinds.read_event(wire)
