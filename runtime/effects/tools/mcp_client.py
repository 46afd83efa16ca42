"""Tools of MCP servers: one helper process per server, kept for the run (`spec/mcp.md`).

Owns the assignment of tools to servers, the time limits of calls, and the end of the servers' processes. Must
not contain: the protocol (`mcp_worker`, the only module that imports the `mcp` package).
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
# Minimum timeout for the start of a server, in seconds.
START_TIMEOUT = 30.0
# Additional seconds in which the helper can report the timeout of a call.
_GRACE = 5.0
# Seconds in which a server can end by itself at the end of the run.
_END_TIMEOUT = 10.0


class Servers:
    """The servers of a run, by name; concurrent effects may call them."""

    def __init__(self) -> None:
        self._lock = threads.Lock()
        self._running: dict[str, _Server] = {}

    def close(self) -> None:
        for server in self._running.values():
            server.request_end()
        for server in self._running.values():
            server.close()
        self._running.clear()

    def call(self, definition: dict[str, Any], args: dict[str, Any], context: Context) -> dict[str, Any]:
        """Call a tool; return {"value"} or {"error"}. Raises ToolError and `Interrupted`."""
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
        request = {
            "op": "call",
            "tool": definition["tool"],
            "args": args["args"],
            "is_wrapped": definition.get("is_wrapped", False),
        }
        return server.request(configured, request, limits, context)


def configured_servers() -> dict[str, McpServer]:
    """The servers in the project's configuration. Raises ToolError if the configuration is invalid."""
    try:
        return configuration.load_usable(ROOT).mcp
    except configuration.Unusable as error:
        raise ToolError("bad-configuration", str(error)) from None


def as_request(server: McpServer) -> dict[str, Any]:
    """The data that a helper needs to start a server; expands `$NAME` in its `env`."""
    env = {name: value for name, value in environment.environ.items() if _is_sendable(value)}
    for name, value in server.env.items():
        env[name] = _VARIABLE.sub(lambda match: env.get(match[1] or match[2], ""), value)
    return {"command": server.command, "args": list(server.args), "env": env, "cwd": server.cwd}


def _is_sendable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def listed(server: McpServer, context: Context) -> list[dict[str, Any]]:
    """List the tools of a server. Raises ToolError."""
    temporary = _Server(server.name)
    try:
        answer = temporary.request(server, {"op": "list"}, {"timeout_s": server.timeout}, context)
    finally:
        temporary.close()
    if "error" in answer:
        raise ToolError(answer["error"]["kind"], answer["error"]["message"])
    tools: list[dict[str, Any]] = answer["tools"]
    return tools


def _remaining_time(limits: dict[str, Any], context: Context) -> tuple[float, str]:
    """The remaining seconds, and the limit that applies."""
    seconds, limited_by = context.limit(limits, own="action")
    assert seconds is not None
    return seconds, limited_by


def _too_late(limited_by: str) -> dict[str, Any]:
    return {"error": {"kind": "timeout", "message": "there was no time left"}, "timed_out": limited_by}


class _Server:
    """One server: its helper, and the server process that the helper reported."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threads.Lock()
        self._worker = Worker("effects.tools.mcp_worker", dict(environment.environb))
        self._process: tuple[int, str] | None = None

    def request(
        self, server: McpServer, request: dict[str, Any], limits: dict[str, Any], context: Context
    ) -> dict[str, Any]:
        """Send a request to the helper and return its answer; one request at a time.

        limits: `timeout_s` and `deadline_ms`. The start of the server and waiting for other requests count
        towards the run's deadline, not towards the timeout.
        """
        while not self._lock.acquire(timeout=TICK):
            context.interrupt.check()
            if _remaining_time(limits, context)[0] <= 0:
                return _too_late("loop")
            if context.on_tick is not None:
                context.on_tick()
        try:
            start_limits = {**limits, "timeout_s": max(START_TIMEOUT, server.timeout)}
            answer = self._send(server, {"op": "start"}, start_limits, context)
            return answer if "error" in answer else self._send(server, request, limits, context)
        finally:
            self._lock.release()

    def _send(
        self, server: McpServer, request: dict[str, Any], limits: dict[str, Any], context: Context
    ) -> dict[str, Any]:
        try:
            remaining, _ = _remaining_time({**limits, "timeout_s": START_LIMIT}, context)
            self._worker.ready(remaining, context.interrupt, context.on_tick)
            remaining, limited_by = _remaining_time(limits, context)
            if remaining <= 0:
                return _too_late(limited_by)
            request = {**request, "server": as_request(server), "seconds": remaining}
            answer = self._worker.ask(request, remaining + _GRACE, context.interrupt, context.on_tick)
        except WorkerTimeout:
            self._kill()
            message = f"the MCP server `{self._name}` does not answer"
            return {
                "error": {"kind": "timeout", "message": message},
                "timed_out": _remaining_time(limits, context)[1],
            }
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
            self._kill()  # the next call would hang too
        if "error" in answer:
            error_fields = answer["error"]
            error_fields["message"] = f"the MCP server `{self._name}`: {error_fields['message']}"
            if error_fields.get("kind") == "timeout":
                answer["timed_out"] = limited_by
        return answer

    def request_end(self) -> None:
        """Request the end of the helper and of the server."""
        self._worker.close_requests()

    def close(self) -> None:
        self._worker.close_requests()
        self._worker.wait_and_close(_END_TIMEOUT)
        self._kill()

    def _kill(self) -> None:
        """Kill the helper, and the server if it has survived the helper."""
        self._worker.close()
        if self._process is not None:
            pid, started_at = self._process
            self._process = None
            if started_at and processes.is_alive(pid, started_at):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    processes.killpg(pid, signals.SIGKILL)
