"""Watch over the versions of a run: one look at intervals for all who view it, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

# Seconds between two looks.
INTERVAL = 0.03


class Watch:
    """The last version of a run that was seen, and a task that looks for another one while there are viewers.

    look: gives the version now, "" where there is no such run. is_ending: whether the server ends.
    """

    def __init__(self, look: Callable[[], Awaitable[Any]], is_ending: Callable[[], bool]) -> None:
        self.viewers = 0
        self._look = look
        self._is_ending = is_ending
        self._seen: Any = None  # before the first look
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._go())

    def close(self) -> None:
        self._task.cancel()

    async def other(self, version: Any, seconds: float) -> bool:
        """Wait until the version is another one or the server ends; False if that took too long."""
        try:
            async with asyncio.timeout(seconds):
                while self._seen in (version, None) and not self._is_ending():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _go(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_ending():
            begun = loop.time()
            seen = await self._look()
            if seen != self._seen:
                self._seen = seen
                self._wake()
            # A look at a long run takes time, and others are to be answered between two.
            await asyncio.sleep(max(INTERVAL, loop.time() - begun))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
