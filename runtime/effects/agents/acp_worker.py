"""Helper process: client of the Agent Client Protocol (https://agentclientprotocol.com).

Reads the prompt from standard input, starts the agent, runs one turn, and writes one JSON object per line for
each activity of the agent; `stdlib/protocols/acp.yaml` defines their meaning. Answers requests for permission
and for files of the project. Must not contain: the framing of messages (`acp_connection`), the meaning of
events, the result of the effect.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from typing import Any

from ...host import clock, environment, processes, signals
from ...host.effect_context import Interrupt, Interrupted
from ...journal.agent_activity import PERMIT
from . import acp_files
from .acp_connection import Connection, Failed
from .acp_tools import MAX_ITEMS, ToolCall, items_of, mapping_of, text_of

VERSION = 1
# Timeouts in seconds: for each answer until the prompt is sent; for the end of a cancelled turn; for the
# reports of the ends of tools after the end of the turn.
START_LIMIT = 120.0
CANCEL_LIMIT = 1.0
SETTLE_LIMIT = 10.0
# Seconds without a message after which an agent has finished repeating a loaded session.
QUIET = 1.0
# Minimum interval of progress events, in seconds.
_PROGRESS_INTERVAL = 0.2
# Seconds between two checks for the answer of a person.
_ANSWER_CHECK_INTERVAL = 0.3
# Maximum length of a name or a reason in a message.
_MAX_NAME = 200
_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_INTERNAL_ERROR = -32603
_AUTH_REQUIRED = -32000
_ENDINGS = {
    "max_tokens": "the model reached its limit of tokens before it had finished; divide the task, or raise "
    "the limit in the agent's settings",
    "max_turn_requests": "it reached its limit of model requests; divide the task, or raise the limit in its "
    "settings",
    "refusal": "the model refuses the task; change the prompt, or use another model or agent",
    "cancelled": "it cancelled the turn; run it again, and see its own log for the reason",
}


def main() -> None:
    """Run one conversation; the last argument is {argv, session?, permissions, mode?, answers?} as JSON."""
    interrupt = Interrupt()
    for number in (signals.SIGINT, signals.SIGTERM):
        signals.signal(number, lambda *_: interrupt.set())
    settings = json.loads(sys.argv[-1])
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        connection = Connection(settings["argv"], interrupt)
    except (OSError, ValueError) as error:
        tell("error", message=f"`{settings['argv'][0]}` could not be started: {error}")
        sys.exit(1)
    try:
        Conversation(connection, settings).run(prompt)
    except Failed as failed:
        tell("error", **failed.fields)
        sys.exit(1)
    except (Interrupted, BrokenPipeError):
        sys.exit(1)  # llc has stopped this helper or has itself ended
    finally:
        connection.end()


def tell(kind: str, **fields: Any) -> None:
    """Write an event."""
    sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
    sys.stdout.flush()


class Conversation:
    """One turn in a session of an agent."""

    def __init__(self, connection: Connection, settings: dict[str, Any]) -> None:
        self._connection = connection
        self._permissions = settings["permissions"]
        self._mode = settings.get("mode")
        self._wanted = settings.get("session")
        self._session = ""
        self._id = 0
        self._tools: dict[str, ToolCall] = {}
        # The agent repeats the messages of a session while it loads the session.
        self._is_replay = False
        self._cost = 0.0
        self._has_refused = False
        # Prefix of the paths of a person's answers; None if no person can answer.
        self._answers: str | None = settings.get("answers") if self._permissions == "ask" else None
        # Requests that wait for a person's answer.
        self._requests: deque[tuple[Any, dict[str, Any]]] = deque()
        # Name of the answer to the first request; "" before the question is reported.
        self._question = ""
        self._question_count = 0
        # Files that the agent has written through llc.
        self._written: set[str] = set()
        # The last failed tool, until the agent writes a text.
        self._failed: ToolCall | None = None
        self._last_progress_at = 0.0

    def run(self, prompt: str) -> None:
        """Run one turn and report all activities of the agent. Raises `Failed` and `Interrupted`."""
        capabilities = self._initialize()
        self._session = self._open_session(capabilities)
        tell("session", id=self._session)
        if self._mode is not None:
            self._request("session/set_mode", {"sessionId": self._session, "modeId": self._mode}, START_LIMIT)
        content = [{"type": "text", "text": prompt}]
        try:
            answer = self._request("session/prompt", {"sessionId": self._session, "prompt": content}, None)
            self._settle()
        except Interrupted:
            self._cancel()
            raise
        reason = answer.get("stopReason")
        if reason == "cancelled" and self._has_refused:
            reason = "refused_tool"  # some agents end the turn after a refusal
        elif reason == "end_turn":
            if not self._has_refused:
                self._check_end()
        elif reason not in _ENDINGS:
            raise Failed(
                f"the turn ended for a reason that llc does not know: {json.dumps(reason)[:_MAX_NAME]}; "
                "use a version of the agent that llc was tested with"
            )
        end = {**answer, "stopReason": reason, "message": _ENDINGS.get(reason)}
        tell("end", **{key: value for key, value in end.items() if key != "type"})

    def _initialize(self) -> dict[str, Any]:
        """The agent's capabilities."""
        # Offering writes limits them to the project. If reads are offered, Gemini CLI 0.61 cannot create a
        # file.
        file_methods = {"readTextFile": False, "writeTextFile": True}
        params = {
            "protocolVersion": VERSION,
            "clientCapabilities": {"fs": file_methods, "terminal": False},
            "clientInfo": {"name": "llc", "version": "1"},
        }
        answer = self._request("initialize", params, START_LIMIT)
        if answer.get("protocolVersion") != VERSION:
            version = json.dumps(answer.get("protocolVersion"))[:_MAX_NAME]
            raise Failed(
                f"it speaks version {version} of the Agent Client Protocol, and llc version {VERSION}; "
                f"install a version of the agent that speaks version {VERSION}"
            )
        return mapping_of(answer.get("agentCapabilities"))

    def _open_session(self, capabilities: dict[str, Any]) -> str:
        """Open a new session or the session to continue; return its id."""
        params: dict[str, Any] = {"cwd": environment.getcwd(), "mcpServers": []}
        if self._wanted is None:
            session = text_of(self._request("session/new", params, START_LIMIT).get("sessionId"))
            if not session:
                raise Failed(
                    "its new session has no id, which the Agent Client Protocol requires; "
                    "use a version of the agent that llc was tested with"
                )
            return session
        if "resume" in mapping_of(capabilities.get("sessionCapabilities")):
            method = "session/resume"  # without a repetition, which opencode continues after the load
        elif capabilities.get("loadSession") is True:
            method = "session/load"
        else:
            raise Failed("it cannot continue a session; use `session: new`", reason="no_session")
        self._is_replay = True
        try:
            self._request(method, {**params, "sessionId": self._wanted}, START_LIMIT)
        except Failed as failed:
            if failed.fields.get("code", _AUTH_REQUIRED) != _AUTH_REQUIRED:
                failed.fields["reason"] = "no_session"
            raise
        if method == "session/load":
            self._skip_replay()
        self._is_replay = False
        return str(self._wanted)

    def _skip_replay(self) -> None:
        """Wait until the agent is quiet: some agents repeat messages after the answer to `session/load`."""
        deadline = clock.monotonic() + START_LIMIT
        while clock.monotonic() < deadline:
            try:
                message = self._connection.receive(min(deadline, clock.monotonic() + QUIET))
            except TimeoutError:
                return
            if message is None:
                return  # the next request reports it
            self._handle(message)

    def _settle(self) -> None:
        """Wait for the reports of the ends of tools that are missing at the end of the turn."""
        deadline = clock.monotonic() + SETTLE_LIMIT
        while any(tool.is_reported for tool in self._tools.values()):
            try:
                message = self._connection.receive(deadline)
            except TimeoutError:
                return
            if message is None:
                return
            self._handle(message)

    def _check_end(self) -> None:
        """Check that the work is complete at the end of a turn. Raises `Failed`."""
        running = [_notation(tool) for tool in self._tools.values() if tool.is_reported]
        if running:
            raise Failed(
                f"it ended its turn without reporting the end of {', '.join(running[:20])}, so the work may "
                "be incomplete; see what it has done, and run it again"
            )
        if self._failed is not None:
            raise Failed(
                f"it ended its turn after {_notation(self._failed)} had failed, without a message about it; "
                f"see what it has done, and run it again: {self._failed.output[-_MAX_NAME:]}"
            )

    def _cancel(self) -> None:
        """Cancel the turn and give the agent time to record the interruption in the session."""
        self._permissions, self._answers = "plan", None
        for id, _ in self._requests:
            self._connection.send(id=id, result={"outcome": {"outcome": "cancelled"}})
        self._connection.send(method="session/cancel", params={"sessionId": self._session})
        deadline = clock.monotonic() + CANCEL_LIMIT
        while True:
            try:
                message = self._connection.receive(deadline)
            except TimeoutError:
                return
            if message is None or ("method" not in message and message.get("id") == self._id):
                return
            self._handle(message)

    # --- messages ---------------------------------------------------------------------------------

    def _request(self, method: str, params: dict[str, Any], limit: float | None) -> dict[str, Any]:
        """Send a request and return its result; handle the messages before the result.

        limit: timeout in seconds; None for no limit.
        """
        self._id += 1
        self._connection.send(id=self._id, method=method, params=params)
        deadline = None if limit is None else clock.monotonic() + limit
        help = "check that its command starts it as an agent of the Agent Client Protocol"
        while True:
            try:
                message = self._receive(deadline)
            except TimeoutError:
                raise Failed(f"it did not answer `{method}` within {limit:g} s; {help}") from None
            if message is None:
                exit_reason = self._connection.end()
                raise Failed(f"{exit_reason} before it answered `{method}`; {help}, and see its output")
            if "method" in message:
                self._handle(message)
            elif str(message.get("id")) != str(self._id):
                raise Failed(
                    f"instead of `{method}` it answered the request "
                    f"{json.dumps(message.get('id'))[:_MAX_NAME]}, which llc did not send; "
                    "use a version of the agent that llc was tested with"
                )
            elif "error" in message:
                raise _failure_of(method, message["error"])
            else:
                return mapping_of(message.get("result"))

    def _handle(self, message: dict[str, Any]) -> None:
        """Handle a request or a notification of the agent."""
        method, params = message.get("method"), mapping_of(message.get("params"))
        if method == "session/update":
            self._update(mapping_of(params.get("update")))
        elif "id" not in message or method is None:
            return
        elif method == "session/request_permission":
            if self._answers is not None and len(self._requests) < MAX_ITEMS:
                self._requests.append((message["id"], params))
                return
            tool = self._report_tool(params)
            self._permit(message["id"], params, tool.is_allowed(self._permissions))
        elif method in ("fs/read_text_file", "fs/write_text_file"):
            self._connection.send(id=message["id"], **self._use_file(method, params))
        else:
            error = {"code": _METHOD_NOT_FOUND, "message": "the client does not offer this method"}
            self._connection.send(id=message["id"], error=error)

    # --- activities -------------------------------------------------------------------------------

    def _update(self, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if self._is_replay:
            return
        if kind == "usage_update":
            self._report_cost(mapping_of(update.get("cost")))
        elif kind == "agent_message_chunk":
            text = text_of(mapping_of(update.get("content")).get("text"))
            if text.strip():
                self._failed = None
            tell("text", text=text)
        elif kind in ("tool_call", "tool_call_update"):
            self._update_tool(update)
        elif clock.monotonic() - self._last_progress_at > _PROGRESS_INTERVAL:
            self._last_progress_at = clock.monotonic()
            tell("progress", update=text_of(kind)[:_MAX_NAME])

    def _report_cost(self, cost: dict[str, Any]) -> None:
        """Report the cost of the session, which never decreases."""
        usd = cost.get("amount")
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < 1e12:
            return
        if cost.get("currency") != "USD":
            return
        self._cost = max(self._cost, usd)
        tell("cost", usd=self._cost)

    def _tool(self, update: dict[str, Any]) -> ToolCall:
        """The tool call of an update, with the update merged."""
        id = text_of(update.get("toolCallId"))
        tool = self._tools.get(id)
        if tool is None:
            tool = ToolCall(id)
            if len(self._tools) < MAX_ITEMS:
                self._tools[id] = tool
        tool.update(update)
        return tool

    def _update_tool(self, update: dict[str, Any]) -> None:
        tool = self._tool(update)
        if tool.has_begun:
            self._begin_tool(tool)
        if tool.has_ended:
            self._end_tool(tool)

    def _begin_tool(self, tool: ToolCall) -> None:
        if not tool.is_reported:
            tool.is_reported = True
            tell("tool", id=tool.id, name=tool.kind, target=tool.target)

    def _end_tool(self, tool: ToolCall) -> None:
        changed = [path for path in tool.changed if path not in self._written]
        fields = {"name": tool.kind, "target": tool.target, "text": tool.output, "files": changed}
        tell("tool_end", id=tool.id, failed=tool.has_failed, **fields)
        self._tools.pop(tool.id, None)
        self._failed = tool if tool.has_failed else None

    # --- permissions ------------------------------------------------------------------------------

    def _report_tool(self, params: dict[str, Any]) -> ToolCall:
        """The tool of a request for permission; reports its start."""
        tool = self._tool(mapping_of(params.get("toolCall")))
        self._begin_tool(tool)
        return tool

    def _receive(self, deadline: float | None) -> dict[str, Any] | None:
        """`Connection.receive`, with checks for the answers of a person."""
        while True:
            self._check_answer()
            if not self._requests:
                return self._connection.receive(deadline)
            try:
                return self._connection.receive(clock.monotonic() + _ANSWER_CHECK_INTERVAL)
            except TimeoutError:
                # Progress prevents the idle timeout, because the agent waits for the person.
                tell("progress", update="waiting for a person")

    def _check_answer(self) -> None:
        """Ask a person about the first waiting request, and process the answer once it exists."""
        while self._requests:
            id, params = self._requests[0]
            if not self._question:
                self._question_count += 1
                self._question = f"{processes.getpid()}-{self._question_count}"
                tool = self._report_tool(params)
                tell("question", id=self._question, name=tool.kind, target=tool.target)
            answer = acp_files.read_answer(f"{self._answers}{self._question}.json")
            if answer is None:
                return
            tell("answer", id=self._question, text=answer)
            self._question = ""
            self._requests.popleft()
            self._permit(id, params, answer == PERMIT)

    def _permit(self, id: Any, params: dict[str, Any], is_allowed: bool) -> None:
        """Answer a request for permission."""
        outcome = self._outcome(self._tool(mapping_of(params.get("toolCall"))), params, is_allowed)
        self._connection.send(id=id, result={"outcome": outcome})

    def _outcome(self, tool: ToolCall, params: dict[str, Any], is_allowed: bool) -> dict[str, Any]:
        """The answer to a request for permission: an option, selected by its kind."""
        if not is_allowed:
            self._refuse(tool.kind, tool.target)
            # The agent may not report the end of a refused tool.
            self._end_tool(tool)
            self._failed = None
        for kind in ("allow_once", "allow_always") if is_allowed else ("reject_once", "reject_always"):
            for option in items_of(params.get("options")):
                fields = mapping_of(option)
                if fields.get("kind") == kind and isinstance(fields.get("optionId"), str):
                    return {"outcome": "selected", "optionId": fields["optionId"]}
        if is_allowed:
            self._refuse(tool.kind, tool.target)  # no option allows the tool
        return {"outcome": "cancelled"}

    def _refuse(self, name: str, target: str) -> None:
        self._has_refused = True
        tell("refusal", name=name, target=target)

    def _use_file(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request for a file: `result` or `error`."""
        path, text = params.get("path"), params.get("content")
        is_write = method == "fs/write_text_file"
        if not isinstance(path, str) or not path or (is_write and not isinstance(text, str)):
            return _error(_INVALID_PARAMS, f"`{method}` needs a `path`" + " and a `content`" * is_write)
        if is_write and self._permissions == "plan":
            self._refuse("edit", path[:_MAX_NAME])
            return _error(_INTERNAL_ERROR, "edits are not permitted")
        try:
            if not is_write:
                line, limit = _natural_number(params.get("line")), _natural_number(params.get("limit"))
                return {"result": {"content": acp_files.read_text(path, line or 1, limit)}}
            acp_files.write_text(path, str(text))
        except acp_files.Outside:
            self._refuse("edit" if is_write else "read", f"{path[:_MAX_NAME]}, outside of the project")
            return _error(_INVALID_PARAMS, "the path is outside of the project")
        except (OSError, ValueError) as error:
            return _error(_INTERNAL_ERROR, f"{path[:_MAX_NAME]}: {getattr(error, 'strerror', None) or error}")
        if len(self._written) < MAX_ITEMS:
            self._written.add(path)
        tell("files", files=[path])
        return {"result": {}}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _natural_number(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _notation(tool: ToolCall) -> str:
    """The notation of a tool call for a message."""
    return f"`{tool.kind}({' '.join(tool.target.split())[:_MAX_NAME]})`"


def _failure_of(method: str, error: Any) -> Failed:
    """The failure for a JSON-RPC error."""
    fields = mapping_of(error)
    data = fields.get("data")
    details = data if isinstance(data, str) else json.dumps(data)[:2000] if data else ""
    message = f"`{method}`: {text_of(fields.get('message')) or 'it does not say why'}"
    code = fields.get("code")
    # Some agents use an HTTP status as code.
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    return Failed(f"{message} {details}".strip()[:4000], code=code, status=status)
