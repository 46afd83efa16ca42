"""The console of `llc repl`: forms and commands, and how their answers look.

Owns the commands (`:help` …). `session` compiles and runs the forms, `line_editor` reads them from a
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

# `/task …`, which no form begins with.
TASK_LINE = re.compile(r"\s*/task(?=\s|$)")


class Leave(Exception):
    """Ends the session."""


class Command:
    """A row: how it is written, what it does, and the method of `Console` that does it."""

    def __init__(self, usage: str, doc: str, run: Callable[[Console, str], None]) -> None:
        self.name = usage.split()[0]
        self.usage = usage
        self.doc = doc
        self.run = run


class Listening:
    """While a form is evaluated Ctrl-C asks it to stop; a second insists, a third does not ask.

    The first ends a wait and a program that computes. The second kills what was started at once. The
    third ends even an operation of the machine that takes long.
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
    """A session with commands, and where its answers go.

    is_terminal: everything goes to the terminal; else only values go to `out`, all else to `errors`.
    """

    def __init__(self, session: Session, out: Screen, errors: Screen, is_terminal: bool) -> None:
        self.session = session
        self.is_terminal = is_terminal
        self._out = out
        self._errors = errors
        self.has_failed = False
        self.was_interrupted = False
        self._was_told = False

    @property
    def has_color(self) -> bool:
        return self._out.color

    def greet(self) -> None:
        self._say(f"llc {__version__}; :help shows the commands, Ctrl-D leaves", "dim")

    # --- one input --------------------------------------------------------------------------------

    def enter(self, text: str) -> None:
        """Do what an input says. Raises `Leave`, and `Exited` where a program ends the session."""
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
            self._tell(error)

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
        with Listening() as interrupt:
            for answer in self.session.run(self.session.source(text), interrupt):
                self._answer(answer)

    def _task(self, text: str) -> None:
        """Do a task as `llc task` does it, and show its result; `it` is what the call gave."""
        if not text.strip():
            raise UserError("bad-command", "write /task NAME key=value… or /task (EXPRESSION)")
        session = self.session
        as_json = "--json" in text.split()
        try:
            call = task_line.read_text(text, session.toplevel.declared, session.toplevel.defined)
            if call.wants_help:
                self._write(task_line.help_text(call, "/task"))
                return
            result = self._result(call.text)
        except (CompileError, UserError) as error:
            self._tell(error)
            result = task_result.of_refusal(error)
        self.has_failed = result["status"] == "FAILED"
        if as_json:
            self._write(task_result.as_json(result))
            return
        self._say(task_result.headline(result, self._errors).removesuffix("\n"))
        if not self._was_told:
            self._write(task_result.content_of(result))

    def _result(self, text: str) -> dict[str, Any]:
        """What the forms of a line give, as a TaskResult."""
        self._was_told = False
        with Listening() as interrupt:
            for answer in self.session.run(self.session.source(text), interrupt):
                has_value = answer.value is not None
                answer.value = None
                self._answer(answer)
                if not answer.is_good:
                    self._was_told = True
                    return _of_answer(answer)
        return task_result.of_value(self.session.last if has_value else None, {})

    # --- answers ----------------------------------------------------------------------------------

    def _tell(self, error: CompileError | UserError) -> None:
        """Show why an input is refused."""
        self._was_told = True
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
        """What was asked for: for a terminal without what would steer it."""
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
        task = "/task NAME key=value… does a task or calls a tool and shows its result; /task NAME --help."
        self._write("\n".join(["An expression is evaluated; `it` is the last value.", task, *rows]) + "\n")

    def expand(self, text: str) -> None:
        self._write(self.session.expanded(self.session.source(_given(":expand FORM", text))))

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
        out = [render(Diagnostic(FaultKind(fault.kind), fault.message, span, "here"), sources, color)]
        lines = fault.trace_lines()
        places = [place for _, _, place in fault.backtrace]
        if fault.omitted:
            places.insert(len(places) // 2, None)
        for line, place in list(zip(lines, places, strict=True))[::-1]:
            out.append("  " + (line if place is None else line.rpartition(" (")[0]))
            if place is not None:
                shown = render(Diagnostic(FaultKind(""), "", Span(*place)), sources, color)
                out += [f"  {row}" for row in shown.split("\n")[1:]]
        self._write("\n".join(out) + "\n")

    def doc(self, text: str) -> None:
        name = self.session.find(_given(":doc NAME", text))
        self._write(f"{name.usage}\n  {name.kind}{': ' if name.doc else ''}{name.doc}\n")

    def load(self, text: str) -> None:
        path = _given(":load FILE", text)
        path = path[1:-1] if len(path) > 1 and path[0] == path[-1] == '"' else path
        with Listening() as interrupt:
            for answer in self.session.load(path, interrupt):
                answer.value = None
                self._answer(answer)

    def env(self, text: str) -> None:
        room = max(20, self._out.width - 1)
        for name, what in self.session.variables():
            self._write(f"{name}  {what}"[:room] + "\n")

    def reset(self, text: str) -> None:
        self.session.reset()
        self._say("all definitions are gone", "dim")

    def quit(self, text: str) -> None:
        raise Leave


def _of_answer(answer: Answer) -> dict[str, Any]:
    """The TaskResult of a form that failed."""
    if answer.error is not None:
        return task_result.of_refusal(answer.error)
    if answer.fault is not None:
        return task_result.failure(task_result.FAILURE, answer.fault.message, {"kind": answer.fault.kind}, {})
    return task_result.failure(task_result.FAILURE, "it was interrupted", {"kind": "interrupt"}, {})


def is_complete(text: str, pending: Pending | None = None) -> bool:
    """Whether an input waits for nothing more. pending: what is known of it already."""
    line = TASK_LINE.match(text)
    if line is None:
        return (pending or Pending(text)).is_complete
    return task_line.is_complete(text[line.end() :])


def _given(usage: str, text: str) -> str:
    if not text:
        raise UserError("bad-command", f"write {usage}")
    return text


COMMANDS = {
    command.name: command
    for command in (
        Command(":help", "Show this.", Console.help),
        Command(":expand FORM", "Show a form in core, as it is compiled.", Console.expand),
        Command(":ir [FORM|NAME]", "Show the states of a form, a function, or what came last.", Console.ir),
        Command(":disasm [FORM|NAME]", "The same as bytecode.", Console.disasm),
        Command(":why", "Show the last fault with all it went through.", Console.why),
        Command(":doc NAME", "Say what a name means.", Console.doc),
        Command(":load FILE", "Evaluate the forms of a file.", Console.load),
        Command(":env", "List what was defined.", Console.env),
        Command(":reset", "Forget all definitions.", Console.reset),
        Command(":quit", "Leave; so does Ctrl-D.", Console.quit),
    )
}
