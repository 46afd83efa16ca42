"""Model that writes loops, with messages for the user: model name, cost, reason of a failure.

`creation` and `pins` use one author for all their requests; `generation` owns the requests and checks.
"""

from __future__ import annotations

from typing import Any

from ..host.errors import Failure, UserError
from ..host.screen import Screen, printable
from ..host.secrets import masked
from ..journal.quantities import usage_texts
from ..models.client import ModelClient
from ..terminal.console import InterruptHandler
from . import generation
from .generation import GeneratedLoop, GenerationFailed


class Author:
    """Author of loops. model: name of the model, None for the project's. Keeps its client until `close`."""

    def __init__(self, model: str | None, errors: Screen) -> None:
        self._model = model
        self._errors = errors
        self._client = ModelClient()

    def close(self) -> None:
        self._client.close()

    def write(self, words: str, prefix: str = "", **options: Any) -> GeneratedLoop:
        """Generate a loop with `generation.generate`. prefix: start of each progress line.

        Raises UserError, CompileError, Interrupted.
        """
        model = generation.model_name(self._model)

        def on_attempt(number: int) -> None:
            repair = f": its loop is invalid, repair {number}" if number else ""
            self._errors.write(f"{prefix}asking {printable(model)}{repair} …\n")

        try:
            with InterruptHandler() as interrupt:
                loop = generation.generate(
                    self._client,
                    words,
                    model=self._model,
                    interrupt=interrupt,
                    on_attempt=on_attempt,
                    **options,
                )
        except GenerationFailed as error:
            raise self._report_failure(error) from None
        self._errors.write(f"{printable(loop.model)}{_cost(loop.usage)}\n\n")
        return loop

    def _report_failure(self, error: GenerationFailed) -> UserError:
        """Show the last reply of the model and its errors; return the error to raise."""
        reply = "\n".join(map(printable, error.text[:4000].split("\n")))
        self._errors.write(masked(f"{reply}\n\n{error.problem[:6000]}\n"))
        attempts = generation.MAX_REPAIRS + 1
        message = f"the model wrote no valid loop in {attempts} attempts{_cost(error.usage)}"
        help = "change the description, name another --model, or answer questions: llc create"
        return Failure("no-loop", message, help)


def _cost(usage: dict[str, Any] | None) -> str:
    return f" ({', '.join(usage_texts(usage))})" if usage else ""
