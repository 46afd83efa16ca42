"""Output of a command that drives a run: messages, diagnostics, and the result at the end.

Owns the two streams: one for progress and messages, one for the result. With `--json`, standard output
contains only the result, one JSON object. `failures` converts exceptions to diagnostics.
"""

from __future__ import annotations

import sys

from ...vm.code.image import Image
from ..host import secrets
from ..host.errors import UserError
from ..host.screen import Screen
from ..journal.codec import json_text
from ..journal.outcome import Outcome
from ..project.options import Values
from . import early_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


class Report:
    """Output of one command.

    is_silent: write nothing. errors: screen for messages; by default standard error. as_json (attribute): the
    result is one JSON object on standard output, and progress goes to standard error.
    """

    def __init__(self, values: Values, is_silent: bool = False, errors: Screen | None = None) -> None:
        self.values = values
        self.is_silent = is_silent
        self.as_json: bool = values.json
        self.open_streams()
        if errors is not None:
            self.errors = errors

    def open_streams(self) -> None:
        """Use the current standard streams; they change when a run detaches."""
        self.errors = Screen(None if self.is_silent else sys.stderr)
        self.screen = self.errors if self.as_json or self.is_silent else Screen(sys.stdout)

    def detach(self) -> None:
        """Continue in the background: the caller has already written the JSON object."""
        self.as_json = False
        self.open_streams()

    # --- messages -------------------------------------------------------------------------------

    def warn(self, text: str) -> None:
        self.errors.write(text + "\n")

    def show_failure(self, error: BaseException, has_started: bool = True) -> None:
        """Show the diagnostics of an exception, or a message for an interrupt before the run started.

        Shows nothing for the interrupt of a started run, which its display reports, or for an internal error.
        """
        failures = _failures()
        text = failures.as_text(error, self.errors.color)
        if text:
            self.errors.write(text)
        elif not has_started and not failures.is_internal(error):
            self.warn(early_signals.MESSAGE)

    def show_fault(self, outcome: Outcome, image: Image | None) -> None:
        """Show the error of a run, with its position in the source."""
        failures = _failures()
        self.errors.write(failures.fault_text(outcome, image, self.errors.color))

    # --- the result -----------------------------------------------------------------------------

    def answer(self, outcome: Outcome, exit_code: int, profile: dict[str, Any] | None = None) -> int:
        """Write the result of the run; return the exit code: a failure if the result cannot be written."""
        try:
            self.write_result(outcome, profile)
        except BrokenPipeError:
            pass  # the reader has closed the pipe; the run itself is complete
        except UserError as error:
            self.show_failure(error)
            return exit_code or error.exit_code
        return exit_code

    def write_result(self, outcome: Outcome, profile: dict[str, Any] | None) -> None:
        """Write the outcome as JSON, else the value of a flow. Raises UserError and BrokenPipeError."""
        if self.as_json:
            write_json(outcome.to_json() | ({"profile": profile} if profile else {}))
        elif outcome.kind != "loop" and outcome.value is not None and not self.values.quiet:
            text = json_text(secrets.known.mask_all(outcome.value), indent=2)
            self.screen.deliver(self.screen.encode(text + "\n"))


def write_json(value: Any) -> None:
    """Write one JSON object as a line of standard output, with secrets masked."""
    text = json_text(secrets.known.mask_all(value))
    Screen(sys.stdout).deliver((text + "\n").encode("utf-8", "replace"))


def write_usage_error(message: str) -> None:
    """Write the JSON object for a command line that cannot be parsed."""
    outcome = Outcome(None, None, "loop", "error")
    outcome.terminated_by = "error"
    outcome.error = {"kind": "usage", "message": message, "span": None}
    write_json(outcome.to_json())


def _failures() -> ModuleType:
    from . import failures  # only after a failure

    return failures
