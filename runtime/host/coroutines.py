"""Coroutines of a run: generators that yield wait objects and receive their results.

`alone` runs one coroutine and blocks in each wait. `execution/scheduler` runs many coroutines and waits for
all of them together. The code of a run is the same in both cases.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol, TypeVar

    Result = TypeVar("Result")

    class Waits(Protocol):
        """Wait object."""

        def wait(self) -> Any:
            """Block until a result is available and return it; None if the coroutine must check again."""

    # Yielding None does not wait: other coroutines may run.
    Steps = Generator[Waits | None, Any, Result]
else:
    Steps = Waits = object


class Apart:
    """Wait for a blocking call of `action()`; the run does nothing else during the call."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def wait(self) -> object:
        return self.action()


def alone(steps: Steps[Result]) -> Result:
    """Run a coroutine to its end and return its result; an exception of a wait is raised in the coroutine."""
    try:
        waits = next(steps)
        while True:
            try:
                value = None if waits is None else waits.wait()
            except BaseException as error:
                waits = steps.throw(error)
            else:
                waits = steps.send(value)
    except StopIteration as end:
        result: Result = end.value
        return result
