"""Coroutines of a run: generators that yield what they wait for and are sent its result.

`alone` runs one coroutine and blocks in each wait; `execution/scheduler` runs many and waits for all of
them at once. The code of a run is the same in both cases.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol, TypeVar

    Result = TypeVar("Result")

    class Waits(Protocol):
        """Something to wait for."""

        def wait(self) -> Any:
            """Block until there is a result and return it; None if the caller has to look again."""

    # None is no wait: it lets other coroutines run.
    Steps = Generator[Waits | None, Any, Result]
else:
    Steps = Waits = object


class Apart:
    """The wait for a call of `action()`, during which nothing else of the run proceeds."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def wait(self) -> object:
        return self.action()


def alone(steps: Steps[Result]) -> Result:
    """Run a coroutine to its end and return its result; exceptions of a wait are raised inside it."""
    try:
        waits = next(steps)
        while True:
            try:
                came = None if waits is None else waits.wait()
            except BaseException as error:
                waits = steps.throw(error)
            else:
                waits = steps.send(came)
    except StopIteration as end:
        found: Result = end.value
        return found
