"""`llc task`: a run of one call or expression, whose outcome is a TaskResult however it ends.

The line is read by `terminal.task_line`, the result made by `terminal.task_result`, and the run is one
like any other (`run`). `spec/task.md`.
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


def run(words: Sequence[str], given: dict[str, Any], options: Sequence[CommandParameter]) -> int:
    """`llc task`; the exit code.

    given: the options before the task's name. options: those that may also be among the words after it.
    """
    values = Values("", **given, expression="")
    report = TaskReport(values)
    # Decided before the words are read, because errors in them are reported as JSON too.
    report.as_json = values.json or "--json" in words[1:]
    calls: list[task_line.Call] = []

    def read(command: Command) -> None:
        call = task_line.read(words, sides=values.declare, options=options)
        if call.wants_help:
            text = task_line.help_text(call, "llc task")
            Screen(sys.stdout).deliver(report.errors.encode(secrets.masked(text)))
            return
        for name, value in read_options(call.given).items():
            before = getattr(values, name)
            setattr(values, name, (*before, *value) if isinstance(value, tuple) else value)
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
    """Output of `llc task`: the TaskResult on standard output, all else on standard error."""

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
        # A failure of the run itself has been shown with its place.
        text = task_result.content_of(self.result) if outcome.error is None else ""
        if text:
            out.deliver(out.encode(task_result.shown(text, out.is_terminal)))
