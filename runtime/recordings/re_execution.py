"""Re-execution of a program over recorded answers; no effect is performed.

Owns the order in which that happens (the machine runs until nothing is ready, then gets one answer) and
how the run ends. `diff` compares it, `trace_text` shows it, `fork` shares its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...vm.code.image import Image
from ...vm.machine.migration import RenewalError, renew
from ...vm.machine.outcomes import NO_ANSWER, Done, Effect, OutOfFuel
from ...vm.tiered import Machine
from ...vm.values.faults import Fault
from ..host.effect_context import exit_code
from ..host.errors import Failure
from ..journal.outcome import Outcome
from ..journal.position import QUANTUM, Progress, event_fields
from .recording import Recording


class Endless(Exception):
    """The program runs on without asking for anything, beyond the bound it was given."""


class ReExecution:
    """One execution of a program over given answers.

    image: its program now. most: how many ticks it may use in all; None is no bound. recording: whose
    changes of the program are made too. answers: how many it was given. stop: how its program ended,
    `exit` included; None before that.
    """

    def __init__(self, image: Image, most: int | None = None, recording: Recording | None = None) -> None:
        self._recording = recording
        self._changes = list(recording.changes) if recording is not None else []
        self.image = image
        self.machine = Machine(image)
        self.progress = Progress()
        self.answers = 0
        self.stop: Done | Fault | Effect | None = None
        self._most = most
        self._result: tuple[Any, int | None] = (NO_ANSWER, None)

    def events(self) -> Iterator[tuple[str, dict[str, Any]] | Effect]:
        """Run until nothing is ready: its notes, as (kind, fields of the event), and the effects it asks for.

        Raises Endless.
        """
        machine = self.machine
        while self.stop is None:
            machine.refuel(QUANTUM)
            outcome = machine.resume(*self._result)
            self._result = (NO_ANSWER, None)
            for kind, fields in machine.take_notes():
                self.progress.note(kind, fields)
                yield kind, event_fields(kind, fields)
            if isinstance(outcome, Effect):
                yield outcome
            elif isinstance(outcome, Done | Fault):
                self.stop = outcome
            elif isinstance(outcome, OutOfFuel) and self._most is not None and machine.ticks > self._most:
                raise Endless
            if not machine.is_ready:
                yield from self._change()
                return

    def _change(self) -> Iterator[Effect]:
        """Continue with the next program of the run: pending effects are asked for again."""
        is_changed = False
        while self._changes and self._changes[0].answers <= self.answers and self.machine.waiting:
            change = self._changes.pop(0)
            if change.answers == self.answers:
                self._renew(change.image)
                is_changed = True
        if is_changed:
            yield from list(self.machine.waiting.values())

    def passed(self, answers: int) -> None:
        """Continue after that number of answers, with the program of that time."""
        self.answers = answers
        self._changes = [change for change in self._changes if change.answers > answers]

    def _renew(self, name: str) -> None:
        recording = self._recording
        if recording is None or recording.programs is None:
            return
        try:
            image = recording.programs(name)
            self.machine, _ = renew(self.machine, image)
        except RenewalError as error:
            raise Failure(
                "damaged-record", f"{recording.name} cannot continue with {name}: {error}"
            ) from None
        self.image = image

    def give(self, seq: int, result: Any) -> None:
        """Give the answer to effect `seq`; `events` continues with it."""
        self._result = (result, seq)
        self.answers += 1

    @property
    def exit(self) -> Effect | None:
        """The effect that asks to end the run, if one waits."""
        return next((effect for effect in self.machine.waiting.values() if effect.kind == "exit"), None)

    def ending(self) -> dict[str, Any]:
        """How the run ends, as its `run_end` says it; `stop` must be there, or `exit`."""
        outcome = Outcome(None, None, self.image.meta["kind"], "error").reach(self.progress)
        if isinstance(self.stop, Done | Fault):
            outcome.take(self.stop)
        else:
            outcome.take(exit_code(self.exit.args.get("code") if self.exit is not None else 1))
        fields = outcome.to_event().wire
        del fields["duration_ms"]
        return fields
