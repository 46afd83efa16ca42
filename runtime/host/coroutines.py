"""How a run waits, alone or as one of many.

What may have to wait is a generator: it yields what it waits for, and is sent what came of that. Where
it runs by itself, `alone` waits for each thing in its turn; where many go on side by side, `many` waits
for all of them at once. So there is one way to run, whoever waits.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol, TypeVar

    Result = TypeVar("Result")

    class Waits(Protocol):
        """Something that is waited for."""

        def wait(self) -> Any:
            """Block until something came of it, which is given; None where there is only to look again."""

    # None is no wait: others may have their turn.
    Steps = Generator[Waits | None, Any, Result]


class Apart:
    """The wait for `action()`, which may take a moment, and in which nothing else of the run goes on."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def wait(self) -> object:
        return self.action()


def alone(steps: Steps[Result]) -> Result:
    """What `steps` come to, where nothing else is waited for. An exception of a wait is theirs."""
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
