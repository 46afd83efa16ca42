"""Observer protocol for run progress, and observers without progress output.

An observer does not influence the run. `terminal.progress` contains the observer that shows progress.
"""

from __future__ import annotations

from ..host import terminal
from ..host.screen import Screen, printable
from ..journal.outcome import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Display:
    """Observer of a run. The base class shows nothing."""

    def begin(self, run_id: str, program: str) -> None:
        """A run starts."""

    def resume(
        self, run_id: str, program: str, state: str | None, iteration: int, used: dict[str, Any] | None = None
    ) -> None:
        """A run is resumed in a state. used: the usage of its calls, as in a result; None if unknown."""

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """The program made a note; see `ir.effects.NOTES`."""

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        """An effect starts."""

    def output(self, stream: str, text: str) -> None:
        """The running action wrote text to a stream, `output` or `stderr`."""

    @property
    def has_person(self) -> bool:
        """Whether a person can be asked: both input and output are terminals."""
        return False

    def prompt(self, text: str) -> None:
        """Prompt the person for a line."""

    def concurrent(self, seq: int) -> Display:
        """The observer of one of several concurrent effects."""
        return self

    def tick(self) -> None:
        """Time has passed while the run waits."""

    def effect_end(self, kind: str, result: dict[str, Any]) -> None:
        """The effect has its result."""

    def effect_cut(self) -> None:
        """The effect was interrupted."""

    def notice(self, text: str) -> None:
        """The driver has a message for the user."""

    def end(self, outcome: Outcome) -> None:
        """The run has ended or was interrupted."""


class ForwardingDisplay(Display):
    """Observer that forwards everything to `inner`; the base class of observers that change a part of it."""

    def __init__(self, inner: Display) -> None:
        self._inner = inner

    def begin(self, run_id: str, program: str) -> None:
        self._inner.begin(run_id, program)

    def resume(
        self, run_id: str, program: str, state: str | None, iteration: int, used: dict[str, Any] | None = None
    ) -> None:
        self._inner.resume(run_id, program, state, iteration, used)

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        self._inner.note(kind, fields)

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        self._inner.effect_start(kind, args)

    def output(self, stream: str, text: str) -> None:
        self._inner.output(stream, text)

    @property
    def has_person(self) -> bool:
        return self._inner.has_person

    def prompt(self, text: str) -> None:
        self._inner.prompt(text)

    def tick(self) -> None:
        self._inner.tick()

    def effect_end(self, kind: str, result: dict[str, Any]) -> None:
        self._inner.effect_end(kind, result)

    def effect_cut(self) -> None:
        self._inner.effect_cut()

    def notice(self, text: str) -> None:
        self._inner.notice(text)

    def end(self, outcome: Outcome) -> None:
        self._inner.end(outcome)


def has_person(screen: Screen) -> bool:
    """Whether both a screen and standard input are terminals."""

    try:
        return screen.is_terminal and terminal.isatty(0)
    except OSError:
        return False


class QuietDisplay(Display):
    """Observer that shows only questions."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._is_asking = False

    @property
    def has_person(self) -> bool:
        return has_person(self._screen)

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        if kind == "ask" and self.has_person:
            self._screen.write(f"{printable(str(args.get('question')))}\n")

    def prompt(self, text: str) -> None:
        self._screen.write(printable(text))
        self._is_asking = True

    def effect_end(self, kind: str, result: dict[str, Any]) -> None:
        if self._is_asking and result.get("by") != "terminal":
            self._screen.write("\n")
        self._is_asking = False

    def effect_cut(self) -> None:
        self.effect_end("ask", {})
