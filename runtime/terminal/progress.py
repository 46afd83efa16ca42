"""Progress display of a run; `spec/cli.md`, Progress.

    [1/20] check → mypy src/
           ✗ failure (exit 1)
           → fix

On a terminal, the output of the running action follows live, dim and indented, above a line with a spinner
and the elapsed time. In a pipe, the same text is written in plain lines, with a bar before output.
"""

from __future__ import annotations

from ...ir.effects import EFFECTS
from ...vm.values.text_form import duration_text
from ..execution.observer import Display, has_person
from ..host import clock
from ..host.screen import Screen, columns, counted, fit, printable
from ..journal.outcome import Outcome
from ..journal.position import state_shown
from ..journal.quantities import usage_texts
from .action_text import MAX_LIVE_LINES, ActionOutput, call_text, failure_text, task_failure_text, tone
from .progress_lines import ProgressLines
from .verdict_text import verdict_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class ProgressDisplay(ProgressLines, Display):
    """Shows progress on a screen. limits: max_iterations by loop; "" is the program itself."""

    def __init__(self, screen: Screen, limits: Mapping[str, int | None], verbose: bool = False) -> None:
        super().__init__(screen)
        self._limits = limits
        self._verbose = verbose
        self._pending: tuple[str, int] | None = None
        self._output = ActionOutput(1 << 60 if verbose else MAX_LIVE_LINES)
        self._waiting_for = ""
        self._failed = ""
        self._effect_started_at = 0.0
        self._ticks = 0
        self._concurrent = 0
        self._run_id = ""
        self._is_watching = False
        self._hint = ""  # shown if the effect takes longer than a tick
        # Usage that calls reported; None if the earlier usage of the run is unknown.
        self._usages: list[dict[str, Any]] | None = None

    def _header(self, action: str | None = None) -> None:
        """Write `[1/20] check → mypy src/` for the last entered state, once."""
        if self._pending is None:
            if action is None:
                return
            head = self._indent
        else:
            state, iteration = self._pending
            self._pending = None
            loop, _, _ = state.rpartition("/")
            limit = self._limits.get(loop)
            head = f"[{iteration}/{limit}] " if limit is not None else f"[{iteration}] "
            self._indent = " " * len(head)
            head += printable(state)
        if action is not None:
            head += f" {self._marks['to']} {self._one_line(action)}"
        if self._screen.is_live:
            head = fit(head, self._screen.width - 1, self._marks["more"])
        self._line(head)

    def since(self, seconds: float) -> None:
        """Set the elapsed seconds of the effect that started last."""
        self._effect_started_at = clock.monotonic() - seconds

    def detach(self) -> None:
        """End the display: erase the status line."""
        self._erase_status()

    # --- concurrent effects (`ParallelDisplay`) ------------------------------------------

    def concurrent(self, seq: int) -> Display:
        return ParallelDisplay(self, seq, self._verbose)

    def begin_concurrent(self) -> None:
        """Count one more concurrent effect."""
        self._show_failure()
        self._header()
        if self._concurrent == 0:
            self._effect_started_at = clock.monotonic()
            self._ticks = 0
        self._concurrent += 1
        self._waiting_for = f"{self._concurrent} at once"

    def end_concurrent(self) -> None:
        self._concurrent -= 1
        self._waiting_for = f"{self._concurrent} at once" if self._concurrent else ""

    # --- events of the run --------------------------------------------------------------------

    def begin(self, run_id: str, program: str) -> None:
        self._run_id = run_id
        self._usages = []
        if self._verbose:
            self._line(f"Run {run_id}", "dim")

    def set_used(self, used: dict[str, Any] | None) -> None:
        """Set the usage of the run so far; {} for none, None if it is unknown and so not shown."""
        self._usages = None if used is None else [used] if used else []

    def resume(
        self, run_id: str, program: str, state: str | None, iteration: int, used: dict[str, Any] | None = None
    ) -> None:
        self._run_id = run_id
        self.set_used(used)
        where = f" in {printable(state)}" if state else ""
        self._line(f"Resuming {run_id}{where}")
        if state is not None:
            self._pending = (state, iteration)

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "evaluate":
            self._failed = ""  # the verdict replaces it
        else:
            self._show_failure()
        if kind == "state_enter":
            if self._pending is not None:
                self._header()
            self._pending = (state_shown(fields) or "-", int(fields.get("iteration") or 0))
        elif kind == "evaluate":
            self._verdict(fields)
        elif kind == "route":
            self._header()
            self._detail(f"{self._marks['to']} {printable(str(fields.get('to')))}")
        elif kind == "handoff":
            self._header()
            about = self._one_line(str(fields.get("text"))) or "no message"
            text = f"hands over ({fields.get('policy')}): {about}"
            self._detail(f"{self._marks['other']} {fit(text, 200, self._marks['more'])}", "yellow")
        elif kind == "hook":
            self._header()
            self._detail(f"hook {printable(str(fields.get('hook')))}", "dim")
        elif kind == "log":
            self._header()
            self._line(printable(str(fields.get("message"))))
        elif kind == "cycle":
            self._pending = None
            self._line(f"Cycle {fields.get('cycle')}", "bold")
        elif kind == "loop_complete":
            self._pending = None
            if "loop" in fields:
                self._inner_end(fields)

    def _inner_end(self, fields: dict[str, Any]) -> None:
        """Show the end of a loop inside the program."""
        loop, state = printable(str(fields["loop"])), printable(str(fields.get("final_state")))
        status, count = str(fields.get("status")), fields.get("iterations")
        words = {"success": "completed", "failure": "failed"}
        word = words.get(status, f"stopped by {printable(str(fields.get('terminated_by')))}")
        text = f"{loop} {word}: {state} ({counted(count, 'iteration')})"
        self._line(text, "green" if status == "success" else "red")

    def _show_failure(self) -> None:
        """Show the failure of the last action, if no verdict has replaced it."""
        if self._failed:
            self._detail(self._screen.paint(f"{self._marks['bad']} {self._failed}", "red"))
            self._failed = ""

    def _verdict(self, fields: dict[str, Any]) -> None:
        self._header()
        verdict = printable(str(fields.get("verdict")))
        details = fields.get("details")
        details = details if isinstance(details, dict) else {}
        mark, style = tone(verdict)
        about = verdict_text(str(fields.get("type")), verdict, details, self._screen.unicode)
        text = self._screen.paint(f"{self._marks[mark]} {verdict}", style) + (f" ({about})" if about else "")
        self._detail(text)
        if self._verbose and details.get("reason"):
            self._detail(self._one_line(str(details["reason"])), "dim")

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        self._show_failure()
        row = EFFECTS[kind]
        if row.is_work:
            self._header(call_text(kind, args))
            self._output.reset()
        elif kind == "ask":
            self._ask(str(args.get("question")))
        elif self._verbose and row.waiting:
            self._header()
            unit = " s" if row.subject == "seconds" else ""
            self._detail(f"{row.waiting}: {printable(str(args.get(row.subject)))}{unit}", "dim")
        self._waiting_for = row.waiting
        self._effect_started_at = clock.monotonic()
        self._ticks = 0

    def _ask(self, question: str) -> None:
        lines = question.strip().splitlines()
        self._header(lines[0])
        for line in lines[1:]:
            self._detail(printable(line))
        if not self.has_person:
            self._hint = f"waiting for: llc answer {self._run_id}"

    @property
    def has_person(self) -> bool:
        return not self._is_watching and has_person(self._screen)

    def watch(self, run_id: str) -> None:
        """Show a run of another process, whose questions cannot be answered here."""
        self._run_id = run_id
        self._is_watching = True

    def output(self, stream: str, text: str) -> None:
        self._show_output(self._output.feed(stream, text))

    def _show_output(self, lines: list[str]) -> None:
        if not lines:
            return
        self._erase_status()
        self._break_prompt()
        screen = self._screen
        if screen.is_live:
            shown = "".join(screen.paint(self._indent + line, "dim") + "\n" for line in lines)
        else:
            head = f"{self._indent}{self._marks['bar']} "
            shown = "".join((head + line).rstrip() + "\n" for line in lines)
        screen.write(shown)

    def tick(self) -> None:
        if self._hint:
            hint, self._hint = self._hint, ""
            self._detail(hint, "yellow")
        if self._prompt and not self._is_asking:
            self._show_prompt()  # other output came after the prompt
        if not self._screen.is_live or self._is_asking:
            return
        spin = self._marks["spin"]
        ms = (clock.monotonic() - self._effect_started_at) * 1000
        parts = [spin[self._ticks % len(spin)], duration_text(int(ms))]
        self._ticks += 1
        text = self._waiting_for or self._output.partial()
        if text:
            parts.append(text)
        width = self._screen.width - 1
        indent = self._indent[: width // 4]  # keep space for the time on a narrow terminal
        line = fit(indent + " ".join(parts), width, self._marks["more"])
        self._screen.write("\r" + self._screen.paint(line, "dim") + "\x1b[K")
        self._status_shown = columns(line) > 0

    def effect_end(self, kind: str, result: dict[str, Any]) -> None:
        self.count_usage(result)
        self._finish_output(kind)
        if kind == "ask":
            self._answered(result)
        row = EFFECTS[kind]
        if self._verbose and row.is_work:
            self._detail(f"took {duration_text(result.get('duration_ms') or 0)}", "dim")
        if row.is_work:
            text = failure_text(result) if row.is_action else task_failure_text(result)
            self._failed = fit(self._one_line(text), 200, self._marks["more"])

    def count_usage(self, result: dict[str, Any]) -> None:
        """Record the usage that a call reports."""
        usage = result.get("usage")
        if self._usages is not None and isinstance(usage, dict):
            self._usages.append(usage)

    def _spent(self) -> str:
        """The total usage of the run, in the units that all calls report."""
        total = {}
        for unit in ("usd", "tokens"):
            reported = [usage.get(unit) for usage in self._usages or ()]
            amounts = [amount for amount in reported if isinstance(amount, int | float)]
            if amounts and len(amounts) == len(reported):
                total[unit] = sum(amounts)
        return "".join(f", {text}" for text in usage_texts(total))

    def _answered(self, result: dict[str, Any]) -> None:
        """Show the answer to a question, unless it was typed here."""
        self.end_prompt(result)
        if result.get("by") == "terminal":
            return
        if result.get("by") is None:
            self._failed = failure_text(result) or "no answer"
        else:
            sources = {"default": "no answer in time", "answer": "answered from elsewhere"}
            source = sources.get(str(result["by"]), "scripted")
            self._detail(f"{self._one_line(str(result.get('output')))} ({source})")

    def effect_cut(self) -> None:
        self.end_prompt({})
        self._finish_output("shell")

    def end_prompt(self, result: dict[str, Any]) -> None:
        """End the prompt of the last question."""
        self._prompt = self._hint = ""
        if result.get("by") == "terminal":
            self._is_asking = False  # the cursor is on the next line
        self._break_prompt()

    def _finish_output(self, kind: str) -> None:
        self._erase_status()
        if EFFECTS[kind].is_work:
            lines, hidden, last = self._output.finish()
            self._show_output(lines)
            if hidden:
                self._detail(f"{self._marks['more']} {hidden} lines not shown", "dim")
            self._show_output(last)

    def notice(self, text: str) -> None:
        self._line(printable(text), "yellow")

    def end(self, outcome: Outcome) -> None:
        self._erase_status()
        self._show_failure()
        if outcome.status in ("error", "interrupted"):
            self._header()
        if outcome.kind != "loop":
            return
        count = outcome.iterations
        facts = f"{counted(count, 'iteration')}, {duration_text(outcome.duration_ms)}"
        facts = f"({facts}{self._spent()})"
        state = printable(outcome.final_state or "-")
        style = "green" if outcome.status == "success" else "red"
        if outcome.status in ("success", "failure"):
            word = "completed" if outcome.status == "success" else "failed"
            text = f"Loop {word}: {state} {facts}"
        elif outcome.status == "limit":
            text = f"Loop stopped by {outcome.terminated_by}: {state} {facts}"
        elif outcome.status == "interrupted":
            is_paused = outcome.terminated_by == "handoff"
            text = f"Loop {'paused' if is_paused else 'interrupted'}: {state} {facts}"
        else:
            text = f"Loop ended by an error: {state} {facts}"
        self._line("")
        self._line(text, style)
        if outcome.terminated_by == "budget" and any(None in usage.values() for usage in self._usages or ()):
            note = "a call that does not report its usage counts as the whole remaining budget"
            self.notice(f"note: {note}; limit `calls` or `seconds` for such an agent")


class ParallelDisplay(Display):
    """Observer of the concurrent effect `seq`: each line starts with its number."""

    def __init__(self, run: ProgressDisplay, seq: int, is_verbose: bool) -> None:
        self._run = run
        self._head = f"#{seq} "
        self._is_verbose = is_verbose
        self._output = ActionOutput(1 << 60 if is_verbose else MAX_LIVE_LINES)
        self._started_at = clock.monotonic()
        self._is_shown = False
        self._is_asking = False

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        self._run.begin_concurrent()
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
            duration = duration_text(round((clock.monotonic() - self._started_at) * 1000))
            self._run.line_of(f"{self._head}{self._run.mark('ok')} ", duration, "dim")

    def effect_cut(self) -> None:
        self._finish({})

    def _finish(self, result: dict[str, Any]) -> None:
        self._run.end_concurrent()
        if self._is_asking:
            self._is_asking = False
            self._run.end_prompt(result)
        lines, hidden, last = self._output.finish()
        self._show(lines)
        if hidden:
            self._run.line_of(self._head, f"{self._run.mark('more')} {hidden} lines not shown", "dim")
        self._show(last)
