"""The helper process of one MCP server: speaks to it through the official `mcp` package.

Requests are {"op": "start" | "list" | "call", "server": {command, args, env, cwd}, "seconds", and for a call
"tool", "args"}. An answer is {}, {"tools"} or {"value"}, else {"error": {kind, message}}; {"pid"} tells the
server's process, {"is_hung"} that it hears nothing any more. The server is started by the first request, kept
until this process ends, and started anew after it was lost.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from typing import Any

from ...host import environment, files, pipes, processes, threads
from ...host.errors import KindError
from ...models.helper_process import serve

# Seconds that a server has to show that it listens, after a call that took too long.
_LISTENING = 2.0
# Seconds that it may take to end.
_END_SECONDS = 8.0
# Seconds between two looks whether the run is still there.
_LOOK = 0.2
# Characters and lines of what it wrote to stderr that an error tells, and pages of a listing.
_TOLD = 800
_LINES = 3
_PAGES = 100


class Lost(KindError):
    """There is no server: it could not be started, or it ended."""


def main() -> None:
    loop = asyncio.new_event_loop()
    threads.Thread(target=loop.run_forever, daemon=True).start()
    link = _Link()

    asking = pipes.poll()
    asking.register(0, 0)  # reports only that the pipe was closed

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        answering = asyncio.run_coroutine_threadsafe(link.answer(request), loop)
        while not asking.poll(0):
            with contextlib.suppress(concurrent.futures.TimeoutError):
                return answering.result(_LOOK)
        raise SystemExit  # the run is gone in the middle of a call

    try:
        serve(answer)
    finally:
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(link.end(), loop).result(_END_SECONDS)
        processes.exit_now(0)  # threads of the package may be left


class _Link:
    """The connection to the server, if there is one: a task holds it open."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._session: Any = None
        self._errors: Any = None

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            await self._connect(request["server"], request["seconds"])
            found: dict[str, Any] = {}
            if request["op"] == "list":
                found = await asyncio.wait_for(self._list(), request["seconds"])
            elif request["op"] == "call":
                found = await self._call(request)
            return {**found, "pid": _child()}
        except Lost as error:
            await self.end()
            return {"error": {"kind": error.kind, "message": error.message}}
        except TimeoutError:
            told = {"kind": "timeout", "message": f"no answer within {request['seconds']:.3g} s"}
            return {"error": told, "is_hung": not await self._listens()}
        except BaseException as error:
            return {"error": await self._told(error)}

    # --- the connection -------------------------------------------------------------------------

    async def _connect(self, server: dict[str, Any], seconds: float) -> None:
        if self._task is not None and not self._task.done():
            return
        try:
            import mcp  # noqa: F401 - it takes a moment, which is none of the server's
        except ModuleNotFoundError as error:
            message = f"the package `mcp` is missing ({error}); in a checkout of llc: pip install '.[mcp]'"
            raise Lost("no-package", message) from None
        if environment.which(server["command"], path=server["env"].get("PATH")) is None:
            raise Lost("not-found", f"`{server['command']}` is not on PATH")
        self._stop = asyncio.Event()
        self._session = None
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(server, ready))
        done, _ = await asyncio.wait([ready, self._task], timeout=seconds, return_when="FIRST_COMPLETED")
        if ready in done:
            ready.result()
            return
        if self._task in done:
            why = _words(self._task.exception())
            raise Lost("mcp-crash", f"it could not be started: {why}{self._stderr()}")
        raise Lost("timeout", f"it did not say what it is within {seconds:.3g} s{self._stderr()}")

    async def _hold(self, server: dict[str, Any], ready: asyncio.Future[None]) -> None:
        """Be connected until `_stop` is set; `ready` tells when."""
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client

        self._errors = files.TemporaryFile("w+", encoding="utf-8", errors="replace")
        parameters = StdioServerParameters(
            command=server["command"], args=server["args"], env=server["env"], cwd=server["cwd"]
        )
        async with (
            stdio_client(parameters, errlog=self._errors) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            self._session = session
            ready.set_result(None)
            await self._stop.wait()

    async def _listens(self) -> bool:
        """Whether it answers at all: one that hangs would hang in the next call too."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._session.send_ping(), _LISTENING)
            return True
        return False

    async def end(self) -> None:
        task, self._task = self._task, None
        self._session = None
        if task is None:
            return
        self._stop.set()
        if not task.done():
            await asyncio.wait([task], timeout=0 if _child() == 0 else _END_SECONDS - 2)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=2)
        if not task.cancelled() and task.done():
            task.exception()  # it is reported already

    async def _told(self, error: BaseException) -> dict[str, Any]:
        """An error of the package or of the server; a connection that is gone is begun anew next time."""
        import pydantic

        if isinstance(error, pydantic.ValidationError):
            return {"kind": "mcp-reply", "message": f"what it answered is no answer: {_wrong(error)}"}
        text = _words(error)
        if (
            self._session is None
            or "closed" in text.lower()
            or (self._task is not None and self._task.done())
        ):
            stderr = self._stderr()
            await self.end()
            return {"kind": "mcp-crash", "message": f"the server is gone: {text}{stderr}"}
        kind = "timeout" if "timed out" in text.lower() else "mcp-error"
        return {"kind": kind, "message": text}

    def _stderr(self) -> str:
        """The end of what the server wrote to stderr."""
        if self._errors is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0, files.SEEK_END)
            self._errors.seek(max(0, self._errors.tell() - 4 * _TOLD))
            lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
            text = " | ".join(lines[-_LINES:])[-_TOLD:]
            return f"; it wrote: {text}" if text else ""
        return ""

    # --- requests -------------------------------------------------------------------------------

    async def _list(self) -> dict[str, Any]:
        from mcp.types import PaginatedRequestParams

        tools: list[Any] = []
        cursor = None
        for _ in range(_PAGES):
            page = await self._session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            cursor = getattr(page, "next_cursor", None)
            if not cursor:
                break
        return {"tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]}

    async def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        called = self._session.call_tool(request["tool"], request["args"])
        result = await asyncio.wait_for(called, request["seconds"])
        data = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        parts = data.get("content") or []
        texts = [part.get("text", "") for part in parts if part.get("type") == "text"]
        if data.get("isError"):
            return {"error": {"kind": "mcp-error", "message": "\n".join(texts) or "it says not why"}}
        structured = data.get("structuredContent")
        if structured is not None:
            return {
                "value": structured["result"]
                if request.get("is_wrapped") and "result" in structured
                else structured
            }
        if len(texts) == len(parts) == 1:
            return {"value": texts[0]}
        return {"value": parts if parts else None}


def _words(error: BaseException | None) -> str:
    """An error in a line; of a group the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is None:
        return "it ended by itself"
    text = " ".join(str(error).split())[:_TOLD]
    return text or type(error).__name__


def _wrong(error: Any) -> str:
    """What is wrong with an answer, the first of it."""
    found = error.errors(include_url=False, include_input=False)[:_LINES]
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)[:_TOLD]


def _child() -> int:
    """The process of the server, 0 where there is none or the system does not tell."""
    own = str(processes.getpid())
    with contextlib.suppress(OSError):
        for name in files.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, IndexError), files.open(f"/proc/{name}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[1].decode() == own:
                        return int(name)
    return 0
