"""Watch of a run: one periodic check for a new version, shared by all its viewers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

# Seconds between two checks.
INTERVAL_S = 0.03


class Watch:
    """The last seen version of a run, and a task that checks for a new version until `close`.

    get_version: returns the current version, "" if the run does not exist. is_ending: returns True when the
    server ends.
    """

    def __init__(self, get_version: Callable[[], Awaitable[Any]], is_ending: Callable[[], bool]) -> None:
        self.viewers = 0
        self._get_version = get_version
        self._is_ending = is_ending
        self._seen: Any = None  # before the first check
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._check())

    def close(self) -> None:
        self._task.cancel()

    async def wait_for_change(self, version: Any, seconds: float) -> bool:
        """Wait until the version differs from `version` or the server ends; False after the timeout."""
        try:
            async with asyncio.timeout(seconds):
                while self._seen in (version, None) and not self._is_ending():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _check(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_ending():
            started_at = loop.time()
            version = await self._get_version()
            if version != self._seen:
                self._seen = version
                self._wake()
            # A check of a long run takes time; leave as much time for other requests.
            await asyncio.sleep(max(INTERVAL_S, loop.time() - started_at))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
