"""`llc task`: a run of one call or expression, which always ends with a TaskResult (`spec/task.md`).

`terminal.task_line` parses the arguments, `terminal.task_result` creates the result, and `run` executes the
run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..host import secrets
from ..host.errors import EXIT_FAILURE, EXIT_OK
from ..host.screen import Screen
from ..journal.outcome import Outcome
from ..project.load import load_expression
from ..project.options import CommandParameter, Values
from ..project.options import read as read_options
from ..terminal import task_line, task_result
from .command import Command, execute
from .report import Report
from .run import new_run


def run(words: Sequence[str], fields: dict[str, Any], options: Sequence[CommandParameter]) -> int:
    """Execute `llc task`; return the exit code.

    words: task name and arguments. fields: options given before the task name. options: declarations of the
    options that may also follow it.
    """
    values = Values("", **fields, expression="")
    report = TaskReport(values)
    # Set before the words are parsed, because their errors are reported as JSON too.
    report.as_json = values.json or "--json" in words[1:]
    calls: list[task_line.Call] = []

    def read(command: Command) -> None:
        call = task_line.read(words, declarations=values.declare, options=options)
        if call.wants_help:
            text = task_line.help_text(call, "llc task")
            Screen(sys.stdout).deliver(report.errors.encode(secrets.masked(text)))
            return
        for name, value in read_options(call.llc_options).items():
            if isinstance(value, tuple):
                value = (*getattr(values, name), *value)
            setattr(values, name, value)
        calls.append(call)

    code = Command(values, report).execute(read)
    if not calls:
        return code
    (call,) = calls
    return execute(
        values,
        lambda command: new_run(
            command, lambda command: ("", load_expression(call.text, values, command.warn, call.name))
        ),
        TaskReport(values),
    )


class TaskReport(Report):
    """Output of `llc task`: the TaskResult on standard output, everything else on standard error."""

    def open_streams(self) -> None:
        super().open_streams()
        self.screen = self.errors

    def answer(self, outcome: Outcome, exit_code: int, profile: dict[str, Any] | None = None) -> int:
        result = task_result.result_of(outcome, exit_code)
        if exit_code == EXIT_OK and result["status"] == "FAILED":
            exit_code = EXIT_FAILURE
        self.result = secrets.known.mask_all(result)
        return super().answer(outcome, exit_code, profile)

    def write_result(self, outcome: Outcome, profile: dict[str, Any] | None) -> None:
        out = Screen(sys.stdout)
        if self.as_json:
            out.deliver(task_result.as_json(self.result).encode("utf-8", "replace"))
            return
        if not self.values.quiet:
            self.errors.write(task_result.headline(self.result, self.errors))
        # An error of the run has already been shown with its position.
        text = task_result.content_of(self.result) if outcome.error is None else ""
        if text:
            out.deliver(out.encode(task_result.shown(text, out.is_terminal)))
