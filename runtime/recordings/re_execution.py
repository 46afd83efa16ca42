"""Re-execution of a program with recorded answers; performs no effects.

Owns the order of execution (the machine runs until no strand is ready, then gets one answer) and the end of
the run. Used by `diff`, `trace_text` and `fork`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...vm.code.image import Image
from ...vm.machine.migration import MigrationError, migrate
from ...vm.machine.outcomes import NO_ANSWER, Done, Effect, OutOfFuel
from ...vm.tiered import Machine
from ...vm.values.faults import Fault
from ..host.effect_context import exit_code
from ..host.errors import Failure
from ..journal.outcome import Outcome
from ..journal.position import QUANTUM, Progress, event_fields
from .recording import Recording


class Endless(Exception):
    """The program exceeded its tick limit without ending or requesting another effect."""


class ReExecution:
    """One execution of a program with recorded answers.

    image: the current program. max_ticks: the total tick limit; None for no limit. recording: the source of
    changes of the program; None for none. answers: how many answers the program got. stop: the end of the
    program, `exit` included; None before the end.
    """

    def __init__(
        self, image: Image, max_ticks: int | None = None, recording: Recording | None = None
    ) -> None:
        self._recording = recording
        self._changes = list(recording.changes) if recording is not None else []
        self.image = image
        self.machine = Machine(image)
        self.progress = Progress()
        self.answers = 0
        self.stop: Done | Fault | Effect | None = None
        self._max_ticks = max_ticks
        self._result: tuple[Any, int | None] = (NO_ANSWER, None)

    def events(self) -> Iterator[tuple[str, dict[str, Any]] | Effect]:
        """Run until no strand is ready; yields notes, as (kind, fields of the event), and requested effects.

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
            elif (
                isinstance(outcome, OutOfFuel)
                and self._max_ticks is not None
                and machine.ticks > self._max_ticks
            ):
                raise Endless
            if not machine.is_ready:
                yield from self._change()
                return

    def _change(self) -> Iterator[Effect]:
        """Continue with the next program of the run, which requests pending effects again."""
        is_changed = False
        while self._changes and self._changes[0].answers <= self.answers and self.machine.waiting:
            change = self._changes.pop(0)
            if change.answers == self.answers:
                self._renew(change.image)
                is_changed = True
        if is_changed:
            yield from list(self.machine.waiting.values())

    def skip_to(self, answers: int) -> None:
        """Treat this number of answers as given; earlier changes of the program have been applied."""
        self.answers = answers
        self._changes = [change for change in self._changes if change.answers > answers]

    def _renew(self, name: str) -> None:
        recording = self._recording
        if recording is None or recording.programs is None:
            return
        try:
            image = recording.programs(name)
            self.machine, _ = migrate(self.machine, image)
        except MigrationError as error:
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
        """The waiting `exit` effect, which ends the run; None without one."""
        return next((effect for effect in self.machine.waiting.values() if effect.kind == "exit"), None)

    def ending(self) -> dict[str, Any]:
        """The fields of the `run_end`. The program must have ended, or `exit` must wait."""
        outcome = Outcome(None, None, self.image.meta["kind"], "error").reach(self.progress)
        if isinstance(self.stop, Done | Fault):
            outcome.take(self.stop)
        else:
            outcome.take(exit_code(self.exit.args.get("code") if self.exit is not None else 1))
        fields = outcome.to_event().wire
        del fields["duration_ms"]
        return fields
