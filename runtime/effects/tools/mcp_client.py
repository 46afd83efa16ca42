"""Tools of MCP servers: one helper process for each server, kept for the run (`spec/mcp.md`).

Owns which server a tool is of, how long a call may take, and that nothing of a server is left behind.
What is said to a server is said by `mcp_worker`; the `mcp` package is imported there and nowhere else.
"""

from __future__ import annotations

import contextlib
import re

from ...host import environment, processes, signals, threads
from ...host.effect_context import TICK, Context, Interrupted
from ...host.paths import ROOT
from ...models.helper_process import START_LIMIT, Worker, WorkerEnded, WorkerTimeout
from ...project import configuration
from .builtin_tools import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ....frontend.tasks.mcp_servers import McpServer

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
# Seconds that a server may take to start, if its `timeout` is not longer.
STARTING = 30.0
# Seconds more than the call itself that the helper has to tell that it took too long.
_GRACE = 5.0
# Seconds that a server has to end by itself when the run is over.
_ENDING = 10.0


class Servers:
    """The servers of a run, by name; several effects at once may call them."""

    def __init__(self) -> None:
        self._lock = threads.Lock()
        self._running: dict[str, _Server] = {}

    def close(self) -> None:
        for server in self._running.values():
            server.let_go()
        for server in self._running.values():
            server.close()
        self._running.clear()

    def call(self, definition: dict[str, Any], args: dict[str, Any], context: Context) -> dict[str, Any]:
        """{"value"} or {"error"} of a `tool` effect. Raises ToolError and `Interrupted`."""
        name = definition["server"]
        configured = configured_servers().get(name)
        if configured is None:
            raise ToolError(
                "unknown-server", f"no server is called `{name}` under `mcp` in .loops/config.yaml"
            )
        with self._lock:
            server = self._running.setdefault(name, _Server(name))
        limits = {
            "timeout_s": args.get("timeout_s") or configured.timeout,
            "deadline_ms": args.get("deadline_ms"),
        }
        asked = {
            "op": "call",
            "tool": definition["tool"],
            "args": args["args"],
            "is_wrapped": definition.get("is_wrapped", False),
        }
        return server.ask(configured, asked, limits, context)


def configured_servers() -> dict[str, McpServer]:
    """The servers of the project. Raises ToolError where the configuration cannot be read."""
    try:
        return configuration.load_usable(ROOT).mcp
    except configuration.Unusable as error:
        raise ToolError("bad-configuration", str(error)) from None


def as_request(server: McpServer) -> dict[str, Any]:
    """What a helper needs to start a server: `$NAME` in its `env` is the variable of that name."""
    env = {name: value for name, value in environment.environ.items() if _is_sendable(value)}
    for name, value in server.env.items():
        env[name] = _VARIABLE.sub(lambda found: env.get(found[1] or found[2], ""), value)
    return {"command": server.command, "args": list(server.args), "env": env, "cwd": server.cwd}


def _is_sendable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def listed(server: McpServer, context: Context) -> list[dict[str, Any]]:
    """What a server offers now. Raises ToolError."""
    asking = _Server(server.name)
    try:
        answer = asking.ask(server, {"op": "list"}, {"timeout_s": server.timeout}, context)
    finally:
        asking.close()
    if "error" in answer:
        raise ToolError(answer["error"]["kind"], answer["error"]["message"])
    tools: list[dict[str, Any]] = answer["tools"]
    return tools


def _left(limits: dict[str, Any], context: Context) -> tuple[float, str]:
    """Seconds that are left, and what sets that bound."""
    seconds, limited_by = context.limit(limits, own="action")
    assert seconds is not None
    return seconds, limited_by


def _too_late(limited_by: str) -> dict[str, Any]:
    return {"error": {"kind": "timeout", "message": "there was no time left"}, "timed_out": limited_by}


class _Server:
    """One server: its helper, and the process that the helper told."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threads.Lock()
        self._worker = Worker("effects.tools.mcp_worker", dict(environment.environb))
        self._process: tuple[int, str] | None = None

    def ask(
        self, server: McpServer, asked: dict[str, Any], limits: dict[str, Any], context: Context
    ) -> dict[str, Any]:
        """What the helper answers; one call at a time.

        limits: `timeout_s` and `deadline_ms`. The time that the server takes to start, or for the calls
        before this one, is the run's, not the call's.
        """
        while not self._turn.acquire(timeout=TICK):
            context.interrupt.check()
            if _left(limits, context)[0] <= 0:
                return _too_late("loop")
            if context.on_tick is not None:
                context.on_tick()
        try:
            starting = {**limits, "timeout_s": max(STARTING, server.timeout)}
            answer = self._ask(server, {"op": "start"}, starting, context)
            return answer if "error" in answer else self._ask(server, asked, limits, context)
        finally:
            self._turn.release()

    def _ask(
        self, server: McpServer, asked: dict[str, Any], limits: dict[str, Any], context: Context
    ) -> dict[str, Any]:
        try:
            left, _ = _left({**limits, "timeout_s": START_LIMIT}, context)
            self._worker.ready(left, context.interrupt, context.on_tick)
            left, limited_by = _left(limits, context)
            if left <= 0:
                return _too_late(limited_by)
            request = {**asked, "server": as_request(server), "seconds": left}
            answer = self._worker.ask(request, left + _GRACE, context.interrupt, context.on_tick)
        except WorkerTimeout:
            self._kill()
            message = f"the MCP server `{self._name}` does not answer"
            return {"error": {"kind": "timeout", "message": message}, "timed_out": _left(limits, context)[1]}
        except WorkerEnded as error:
            self._kill()
            return {"error": {"kind": "mcp-crash", "message": f"its helper failed: {error}"}}
        except Interrupted:
            self._kill()
            raise
        pid = answer.pop("pid", 0)
        if pid and (self._process is None or self._process[0] != pid):
            self._process = (pid, processes.start_time(pid))
        if answer.pop("is_hung", False):
            self._kill()  # it would hang in the next call too
        if "error" in answer:
            told = answer["error"]
            told["message"] = f"the MCP server `{self._name}`: {told['message']}"
            if told.get("kind") == "timeout":
                answer["timed_out"] = limited_by
        return answer

    def let_go(self) -> None:
        """Tell the helper to end, and with it the server."""
        self._worker.close_requests()

    def close(self) -> None:
        self._worker.close_requests()
        self._worker.wait_and_close(_ENDING)
        self._kill()

    def _kill(self) -> None:
        """End the server where it has outlived its helper."""
        self._worker.close()
        if self._process is not None:
            pid, begun = self._process
            self._process = None
            if begun and processes.is_alive(pid, begun):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    processes.killpg(pid, signals.SIGKILL)
