"""Console of `llc repl`: execution of forms and commands, output of their results.

Owns the commands (`:help` …). `session` compiles and runs the forms; `line_editor` reads them from a
terminal. `spec/repl.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from ... import __version__
from ...frontend.sexp.completeness import Pending
from ...ir.diagnostics import CompileError, Diagnostic, FaultKind, clean, render, render_all, suggest
from ...ir.spans import Span
from ...vm.values.faults import Fault
from ..host import signals
from ..host.effect_context import Interrupt
from ..host.errors import UserError
from ..host.screen import Screen, printable
from ..host.secrets import masked
from . import task_line, task_result
from .session import Answer, Session

# Beginning of a task line; no form begins with it.
TASK_LINE = re.compile(r"\s*/task(?=\s|$)")


class Leave(Exception):
    """Raised to end the session."""


class Command:
    """A command: its usage, its help text, and the method of `Console` that executes it."""

    def __init__(self, usage: str, doc: str, run: Callable[[Console, str], None]) -> None:
        self.name = usage.split()[0]
        self.usage = usage
        self.doc = doc
        self.run = run


class InterruptHandler:
    """Context in which Ctrl-C interrupts the evaluation of a form.

    The first Ctrl-C ends a wait or a computing program. The second kills started processes at once. The third
    also ends a long operation of the machine.
    """

    def __init__(self) -> None:
        self.interrupt = Interrupt()
        self._before: Any = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.interrupt.count >= 2:
            raise KeyboardInterrupt
        self.interrupt.set()

    def __enter__(self) -> Interrupt:
        self._before = signals.signal(signals.SIGINT, self._handle)
        return self.interrupt

    def __exit__(self, *error: object) -> None:
        signals.signal(signals.SIGINT, self._before)
        self.interrupt.close()


class Console:
    """A session with commands and its output.

    out: the screen for values. errors: the screen for all other output. is_terminal: whether both are the
    terminal.
    """

    def __init__(self, session: Session, out: Screen, errors: Screen, is_terminal: bool) -> None:
        self.session = session
        self.is_terminal = is_terminal
        self._out = out
        self._errors = errors
        self.has_failed = False
        self.was_interrupted = False
        self._is_error_shown = False

    @property
    def has_color(self) -> bool:
        return self._out.color

    def greet(self) -> None:
        self._say(f"llc {__version__}; :help shows the commands, Ctrl-D leaves", "dim")

    # --- one input --------------------------------------------------------------------------------

    def enter(self, text: str) -> None:
        """Execute an input. Raises `Leave`, and `Exited` if a program ends the session."""
        if not text.strip():
            return
        self.has_failed = self.was_interrupted = False
        try:
            line = TASK_LINE.match(text)
            if line is not None:
                self._task(text[line.end() :])
            elif text.lstrip().startswith(":"):
                self._command(text.strip())
            else:
                self._forms(text)
        except (CompileError, UserError) as error:
            self._show_error(error)

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ") if " " in text else text.partition("\n")
        command = COMMANDS.get(name)
        if command is None:
            raise UserError(
                "unknown-command",
                f"there is no command `{clean(name, 80)}`",
                suggest(name, COMMANDS, "commands"),
            )
        command.run(self, rest.strip())

    def _forms(self, text: str) -> None:
        with InterruptHandler() as interrupt:
            for answer in self.session.run(self.session.source(text), interrupt):
                self._answer(answer)

    def _task(self, text: str) -> None:
        """Execute a task like `llc task`, and show its result; `it` is the value of the call."""
        if not text.strip():
            raise UserError(
                "bad-command", "no task is given", "write /task NAME key=value… or /task (EXPRESSION)"
            )
        session = self.session
        as_json = "--json" in text.split()
        try:
            call = task_line.read_text(text, session.toplevel.declared, session.toplevel.defined)
            if call.wants_help:
                self._write(task_line.help_text(call, "/task"))
                return
            result = self._result(call.text)
        except (CompileError, UserError) as error:
            self._show_error(error)
            result = task_result.of_refusal(error)
        self.has_failed = result["status"] == "FAILED"
        if as_json:
            self._write(task_result.as_json(result))
            return
        self._say(task_result.headline(result, self._errors).removesuffix("\n"))
        if not self._is_error_shown:
            self._write(task_result.content_of(result))

    def _result(self, text: str) -> dict[str, Any]:
        """Evaluate the forms of a line; returns the last value as a TaskResult."""
        self._is_error_shown = False
        with InterruptHandler() as interrupt:
            for answer in self.session.run(self.session.source(text), interrupt):
                has_value = answer.value is not None
                answer.value = None
                self._answer(answer)
                if not answer.is_good:
                    self._is_error_shown = True
                    return _of_answer(answer)
        return task_result.of_value(self.session.last if has_value else None, {})

    # --- answers ----------------------------------------------------------------------------------

    def _show_error(self, error: CompileError | UserError) -> None:
        """Show the error of a refused input."""
        self._is_error_shown = True
        if isinstance(error, CompileError):
            self._refused(error)
        else:
            self.has_failed = True
            self._diagnose([Diagnostic(error.id, error.message, help=error.help)])

    def _answer(self, answer: Answer) -> None:
        if answer.input is not None and answer.input.diagnostics:
            self._diagnose(answer.input.diagnostics, answer.input.sources)
        if answer.error is not None:
            self._refused(answer.error)
        elif answer.is_interrupted:
            self.has_failed = self.was_interrupted = True
            self._say("interrupted", "yellow")
        elif answer.fault is not None:
            self.has_failed = True
            self._show_fault(answer.fault)
        elif answer.input is not None:
            for name in answer.input.defined:
                if name in answer.input.replaced:
                    self._say(f"{name} is replaced", "yellow")
                elif self.is_terminal:
                    self._say(f"{name} is defined", "dim")
        if answer.value is not None:
            self._write(answer.value + "\n")

    def _refused(self, error: CompileError) -> None:
        self.has_failed = self.has_failed or any(finding.is_error for finding in error.diagnostics)
        self._diagnose(error.diagnostics, error.sources)

    def _show_fault(self, fault: Fault) -> None:
        span = Span(*fault.span) if fault.span else None
        found = Diagnostic(FaultKind(fault.kind), fault.message, span, "here" if span else "")
        self._diagnose([found], self.session.sources)
        if len(fault.backtrace) > 1:
            self._errors.write("".join(f"  {line}\n" for line in fault.trace_lines()))

    def _diagnose(self, found: Iterable[Diagnostic], sources: Iterable[Any] = ()) -> None:
        self._errors.write(render_all(found, sources, self._errors.color) + "\n")

    def _write(self, text: str) -> None:
        """Write requested output; without control characters on a terminal."""
        if self.is_terminal:
            text = "\n".join(map(printable, text.split("\n")))
        self._out.deliver(self._out.encode(masked(text)))

    def _say(self, text: str, style: str = "") -> None:
        """Show additional information."""
        self._errors.write(self._errors.paint(text, style) + "\n")

    # --- commands ---------------------------------------------------------------------------------

    def help(self, text: str) -> None:
        width = max(len(command.usage) for command in COMMANDS.values())
        rows = [f"  {command.usage.ljust(width)}  {command.doc}" for command in COMMANDS.values()]
        task = "/task NAME key=value… executes a task or tool and shows its result; see /task NAME --help."
        self._write("\n".join(["An expression is evaluated; `it` is the last value.", task, *rows]) + "\n")

    def expand(self, text: str) -> None:
        self._write(self.session.expanded(self.session.source(_required(":expand FORM", text))))

    def ir(self, text: str) -> None:
        self._write(self.session.ir(text))

    def disasm(self, text: str) -> None:
        self._write(self.session.bytecode(text))

    def why(self, text: str) -> None:
        fault = self.session.fault
        if fault is None:
            self._write("no form has failed\n")
            return
        color = self._out.color
        sources = {source.path: source for source in self.session.sources}
        span = Span(*fault.span) if fault.span else None
        output = [render(Diagnostic(FaultKind(fault.kind), fault.message, span, "here"), sources, color)]
        lines = fault.trace_lines()
        places = [place for _, _, place in fault.backtrace]
        if fault.omitted:
            places.insert(len(places) // 2, None)
        for line, place in list(zip(lines, places, strict=True))[::-1]:
            output.append("  " + (line if place is None else line.rpartition(" (")[0]))
            if place is not None:
                shown = render(Diagnostic(FaultKind(""), "", Span(*place)), sources, color)
                output += [f"  {row}" for row in shown.split("\n")[1:]]
        self._write("\n".join(output) + "\n")

    def doc(self, text: str) -> None:
        name = self.session.find(_required(":doc NAME", text))
        self._write(f"{name.usage}\n  {name.kind}{': ' if name.doc else ''}{name.doc}\n")

    def load(self, text: str) -> None:
        path = _required(":load FILE", text)
        path = path[1:-1] if len(path) > 1 and path[0] == path[-1] == '"' else path
        with InterruptHandler() as interrupt:
            for answer in self.session.load(path, interrupt):
                answer.value = None
                self._answer(answer)

    def env(self, text: str) -> None:
        width = max(20, self._out.width - 1)
        for name, meaning in self.session.variables():
            self._write(f"{name}  {meaning}"[:width] + "\n")

    def reset(self, text: str) -> None:
        self.session.reset()
        self._say("all definitions are removed", "dim")

    def quit(self, text: str) -> None:
        raise Leave


def _of_answer(answer: Answer) -> dict[str, Any]:
    """The TaskResult of a form that failed."""
    if answer.error is not None:
        return task_result.of_refusal(answer.error)
    if answer.fault is not None:
        return task_result.failure(task_result.FAILURE, answer.fault.message, {"kind": answer.fault.kind}, {})
    return task_result.failure(task_result.FAILURE, "the form was interrupted", {"kind": "interrupt"}, {})


def is_complete(text: str, pending: Pending | None = None) -> bool:
    """Whether an input is complete. pending: the analysis of the text, if the caller has it."""
    line = TASK_LINE.match(text)
    if line is None:
        return (pending or Pending(text)).is_complete
    return task_line.is_complete(text[line.end() :])


def _required(usage: str, text: str) -> str:
    if not text:
        raise UserError("bad-command", "an argument is missing", f"write {usage}")
    return text


COMMANDS = {
    command.name: command
    for command in (
        Command(":help", "Show this help.", Console.help),
        Command(":expand FORM", "Show a form expanded to core.", Console.expand),
        Command(":ir [FORM|NAME]", "Show IR of a form, of a function, or of the last form.", Console.ir),
        Command(":disasm [FORM|NAME]", "Show the same as bytecode.", Console.disasm),
        Command(":why", "Show the last fault with its backtrace.", Console.why),
        Command(":doc NAME", "Show the meaning of a name.", Console.doc),
        Command(":load FILE", "Evaluate the forms of a file.", Console.load),
        Command(":env", "List all definitions.", Console.env),
        Command(":reset", "Remove all definitions.", Console.reset),
        Command(":quit", "Leave; Ctrl-D does the same.", Console.quit),
    )
}
