"""A model that writes loops, and its reports to people: its name, the costs, the reason of a failure.

`creating` and `pinning` use one author for all their requests; `describing` owns the requests and checks.
"""

from __future__ import annotations

from typing import Any

from ..host.errors import Failure, UserError
from ..host.screen import Screen, printable
from ..host.secrets import masked
from ..journal.quantities import usage_texts
from ..models.client import ModelClient
from ..terminal.console import InterruptHandler
from . import describing
from .describing import Described, Hopeless


class Author:
    """Asks the model of that name, by default the project's; its client is kept until `close`."""

    def __init__(self, model: str | None, errors: Screen) -> None:
        self._model = model
        self._errors = errors
        self._client = ModelClient()

    def close(self) -> None:
        self._client.close()

    def write(self, words: str, about: str = "", **given: Any) -> Described:
        """The loop of `describing.describe`. about: what stands before each line that says it is asked.

        Raises UserError, CompileError, Interrupted.
        """
        model = describing.model_name(self._model)

        def on_try(number: int) -> None:
            again = f": what it gave cannot be used, repair {number}" if number else ""
            self._errors.write(f"{about}asking {printable(model)}{again} …\n")

        try:
            with InterruptHandler() as interrupt:
                made = describing.describe(
                    self._client, words, model=self._model, interrupt=interrupt, on_try=on_try, **given
                )
        except Hopeless as error:
            raise self._refusal(error) from None
        self._errors.write(f"{printable(made.model)}{_cost(made.usage)}\n\n")
        return made

    def _refusal(self, error: Hopeless) -> UserError:
        """Show what the model gave in the end, and say that it cannot be used."""
        shown = "\n".join(map(printable, error.text[:4000].split("\n")))
        self._errors.write(masked(f"{shown}\n\n{error.problem[:6000]}\n"))
        tries = describing.REPAIRS + 1
        message = f"the model gave no loop that can be used, in {tries} tries{_cost(error.usage)}"
        help = "say it in other words, name another --model, or answer questions: llc create"
        return Failure("no-loop", message, help)


def _cost(usage: dict[str, Any] | None) -> str:
    return f" ({', '.join(usage_texts(usage))})" if usage else ""
