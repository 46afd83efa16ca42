"""What is shown of one of several effects that are performed at once: each line says which it is."""

from __future__ import annotations

from ...ir.effects import EFFECTS
from ...vm.primitives.handlers import duration
from ..execution.observer import Display
from ..host import clock
from .action_text import MOST_LINES, ActionOutput, failure_text
from .progress import ProgressDisplay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BesideDisplay(Display):
    """Shows effect `seq` among others on the display of their run."""

    def __init__(self, run: ProgressDisplay, seq: int, is_verbose: bool) -> None:
        self._run = run
        self._head = f"#{seq} "
        self._is_verbose = is_verbose
        self._output = ActionOutput(1 << 60 if is_verbose else MOST_LINES)
        self._begun = clock.monotonic()
        self._is_shown = False
        self._is_asking = False

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        self._run.begin_beside()
        row = EFFECTS[kind]
        command = args.get(row.subject) if row.is_action or row.is_idle else None
        if isinstance(command, str):
            self._is_shown = True
            self._run.line_of(self._head + self._run.mark("to") + " ", command)
        elif self._is_verbose:
            self._is_shown = True
            self._run.line_of(self._head + self._run.mark("to") + " ", kind)

    @property
    def has_person(self) -> bool:
        return self._run.has_person

    def prompt(self, text: str) -> None:
        self._is_asking = True
        *lines, last = text.split("\n")
        self._run.prompt("\n".join([*lines, self._head + last if last else ""]))

    def output(self, stream: str, text: str) -> None:
        self._show(self._output.feed(stream, text))

    def _show(self, lines: list[str]) -> None:
        self._run.show_lines(f"{self._head}{self._run.mark('bar')} ", lines)

    def effect_end(self, kind: str, result: dict[str, Any]) -> None:
        self._run.count_usage(result)
        self._finish(result)
        text = failure_text(result)
        if text:
            self._run.line_of(f"{self._head}{self._run.mark('bad')} ", text, "red")
        elif self._is_shown:
            took = duration(round((clock.monotonic() - self._begun) * 1000))
            self._run.line_of(f"{self._head}{self._run.mark('ok')} ", took, "dim")

    def effect_cut(self) -> None:
        self._finish({})

    def _finish(self, result: dict[str, Any]) -> None:
        self._run.end_beside()
        if self._is_asking:
            self._is_asking = False
            self._run.end_prompt(result)
        lines, hidden, last = self._output.finish()
        self._show(lines)
        if hidden:
            self._run.line_of(self._head, f"{self._run.mark('more')} {hidden} lines not shown", "dim")
        self._show(last)
