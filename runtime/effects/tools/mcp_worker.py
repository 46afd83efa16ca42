"""Helper process of one MCP server; uses the official `mcp` package.

Requests are {"op": "start" | "list" | "call", "server": {command, args, env, cwd}, "seconds"}, for a call
also "tool" and "args". An answer is {}, {"tools"}, {"value"} or {"error": {kind, message}}; "pid" is the
process id of the server, "is_hung" states that the server does not react any more. The first request starts
the server, which runs until this process ends. A lost server is started again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from typing import Any

from ...host import environment, files, pipes, processes, threads
from ...host.errors import KindError
from ...models.helper_process import serve

# Timeout of the ping after a call that took too long, in seconds.
_PING_TIMEOUT = 2.0
# Timeout for the end of the server, in seconds.
_END_TIMEOUT = 8.0
# Seconds between two checks whether the run still exists.
_CHECK_INTERVAL = 0.2
# Limits of the standard error in a message: characters and lines.
_MAX_CHARACTERS = 800
_MAX_LINES = 3
# Maximum number of pages of a listing.
_MAX_PAGES = 100


class Lost(KindError):
    """The server could not be started, or has ended."""


def main() -> None:
    loop = asyncio.new_event_loop()
    threads.Thread(target=loop.run_forever, daemon=True).start()
    link = _Link()

    poller = pipes.poll()
    poller.register(0, 0)  # reports only the closing of the pipe

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        future = asyncio.run_coroutine_threadsafe(link.answer(request), loop)
        while not poller.poll(0):
            with contextlib.suppress(concurrent.futures.TimeoutError):
                return future.result(_CHECK_INTERVAL)
        raise SystemExit  # the run has ended during the call

    try:
        serve(answer)
    finally:
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(link.end(), loop).result(_END_TIMEOUT)
        processes.exit_now(0)  # threads of the package may still be running


class _Link:
    """The connection to the server; a task keeps it open."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._session: Any = None
        self._errors: Any = None

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            await self._connect(request["server"], request["seconds"])
            result: dict[str, Any] = {}
            if request["op"] == "list":
                result = await asyncio.wait_for(self._list(), request["seconds"])
            elif request["op"] == "call":
                result = await self._call(request)
            return {**result, "pid": _server_pid()}
        except Lost as error:
            await self.end()
            return {"error": {"kind": error.kind, "message": error.message}}
        except TimeoutError:
            timeout = {"kind": "timeout", "message": f"no answer within {request['seconds']:.3g} s"}
            return {"error": timeout, "is_hung": not await self._reacts()}
        except BaseException as error:
            return {"error": await self._describe(error)}

    # --- the connection -------------------------------------------------------------------------

    async def _connect(self, server: dict[str, Any], seconds: float) -> None:
        if self._task is not None and not self._task.done():
            return
        try:
            import mcp  # noqa: F401 - imported before the timeout of the server starts
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
            reason = _one_line(self._task.exception())
            raise Lost("mcp-crash", f"it could not be started: {reason}{self._stderr()}")
        raise Lost("timeout", f"it did not initialise within {seconds:.3g} s{self._stderr()}")

    async def _hold(self, server: dict[str, Any], ready: asyncio.Future[None]) -> None:
        """Keep the connection open until `_stop` is set. ready: completed once the server is initialised."""
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

    async def _reacts(self) -> bool:
        """Whether the server answers a ping; otherwise the next call would hang too."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._session.send_ping(), _PING_TIMEOUT)
            return True
        return False

    async def end(self) -> None:
        task, self._task = self._task, None
        self._session = None
        if task is None:
            return
        self._stop.set()
        if not task.done():
            await asyncio.wait([task], timeout=0 if _server_pid() == 0 else _END_TIMEOUT - 2)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=2)
        if not task.cancelled() and task.done():
            task.exception()  # retrieved, because it has already been reported

    async def _describe(self, error: BaseException) -> dict[str, Any]:
        """Describe an error of the package or the server; close a lost connection, so that it is reopened."""
        import pydantic

        if isinstance(error, pydantic.ValidationError):
            return {"kind": "mcp-reply", "message": f"its answer is invalid: {_validation_errors(error)}"}
        text = _one_line(error)
        if (
            self._session is None
            or "closed" in text.lower()
            or (self._task is not None and self._task.done())
        ):
            stderr = self._stderr()
            await self.end()
            return {"kind": "mcp-crash", "message": f"the server has ended: {text}{stderr}"}
        kind = "timeout" if "timed out" in text.lower() else "mcp-error"
        return {"kind": kind, "message": text}

    def _stderr(self) -> str:
        """The end of the server's standard error, as a clause for a message."""
        if self._errors is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0, files.SEEK_END)
            self._errors.seek(max(0, self._errors.tell() - 4 * _MAX_CHARACTERS))
            lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
            text = " | ".join(lines[-_MAX_LINES:])[-_MAX_CHARACTERS:]
            return f"; it wrote: {text}" if text else ""
        return ""

    # --- requests -------------------------------------------------------------------------------

    async def _list(self) -> dict[str, Any]:
        from mcp.types import PaginatedRequestParams

        tools: list[Any] = []
        cursor = None
        for _ in range(_MAX_PAGES):
            page = await self._session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            cursor = getattr(page, "next_cursor", None)
            if not cursor:
                break
        return {"tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]}

    async def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        call = self._session.call_tool(request["tool"], request["args"])
        result = await asyncio.wait_for(call, request["seconds"])
        data = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        parts = data.get("content") or []
        texts = [part.get("text", "") for part in parts if part.get("type") == "text"]
        if data.get("isError"):
            return {"error": {"kind": "mcp-error", "message": "\n".join(texts) or "it states no reason"}}
        structured = data.get("structuredContent")
        if structured is not None:
            is_wrapped = request.get("is_wrapped") and "result" in structured
            return {"value": structured["result"] if is_wrapped else structured}
        if len(texts) == len(parts) == 1:
            return {"value": texts[0]}
        return {"value": parts if parts else None}


def _one_line(error: BaseException | None) -> str:
    """The message of an error in one line; the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is None:
        return "it ended by itself"
    text = " ".join(str(error).split())[:_MAX_CHARACTERS]
    return text or type(error).__name__


def _validation_errors(error: Any) -> str:
    """The first validation errors of an answer."""
    errors = error.errors(include_url=False, include_input=False)[:_MAX_LINES]
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in errors)[:_MAX_CHARACTERS]


def _server_pid() -> int:
    """The process id of the server; 0 if there is none or the system does not provide it."""
    own = str(processes.getpid())
    with contextlib.suppress(OSError):
        for name in files.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, IndexError), files.open(f"/proc/{name}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[1].decode() == own:
                        return int(name)
    return 0
