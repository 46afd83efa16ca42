"""Thread for the blocking work of the server, one job after another.

The thread is a daemon, so that a long job does not keep the process alive after Ctrl-C, unlike a thread pool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from ..host import threads

Result = TypeVar("Result")


class JobThread:
    """A thread that executes jobs of coroutines in order."""

    def __init__(self) -> None:
        self._jobs: threads.SimpleQueue[tuple[Any, ...]] = threads.SimpleQueue()
        threads.Thread(target=self._work, daemon=True).start()

    async def do(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function in the thread; return its result or raise its exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._jobs.put((loop, future, function, args))
        return await future

    def _work(self) -> None:
        while True:
            loop, future, function, args = self._jobs.get()
            if future.cancelled():
                continue
            value: Any = None
            failure: Exception | None = None
            try:
                value = function(*args)
            except Exception as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server ends
                loop.call_soon_threadsafe(_settle, future, value, failure)


def _settle(future: asyncio.Future[Any], value: Any, failure: Exception | None) -> None:
    if future.done():  # cancelled: the viewer has disconnected
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(value)
