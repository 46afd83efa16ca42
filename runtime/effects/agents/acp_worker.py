"""The helper process that speaks the Agent Client Protocol with an agent (https://agentclientprotocol.com).

Reads the prompt from its standard input, starts the agent, holds one turn with it, and writes one JSON object
a line of what the agent does; `stdlib/protocols/acp.yaml` says what these mean. Answers requests for
permission and for files of the project. Must not contain: the framing of messages (`acp_connection`), the
meaning of events, the result of the effect.
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
from .acp_tools import MANY, ToolCall, items_of, mapping_of, text_of

VERSION = 1
# Seconds for each answer until the prompt is sent; for an agent to end a turn that is cancelled; and for the
# end of tools to be stated after that of the turn.
START_LIMIT = 120.0
CANCEL_LIMIT = 1.0
SETTLE_LIMIT = 10.0
# Seconds without a message after which an agent that loads a session repeats nothing more.
QUIET = 1.0
# Seconds between two events that say only that the agent is at work.
_PROGRESS = 0.2
# Seconds between two looks for the answer of a person.
_LOOK_AGAIN = 0.3
# Characters of a name or of a reason in a message.
_SHORT = 200
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
    """Hold one conversation; the last argument has {argv, session?, permissions, mode?, answers?} as JSON."""
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
        Conversation(connection, settings).hold(prompt)
    except Failed as failed:
        tell("error", **failed.fields)
        sys.exit(1)
    except (Interrupted, BrokenPipeError):
        sys.exit(1)  # llc has stopped it, or has ended itself
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
        # While a session is loaded, the agent repeats what was said in it.
        self._is_replay = False
        self._cost = 0.0
        self._has_refused = False
        # Where the answers of a person come to, None where none is asked; the requests that wait for one, and
        # the name of the first one's answer.
        self._answers: str | None = settings.get("answers") if self._permissions == "ask" else None
        self._requests: deque[tuple[Any, dict[str, Any]]] = deque()
        self._asked = ""
        self._questions = 0
        # Files that it has written through llc.
        self._written: set[str] = set()
        # The tool that failed, while the agent has said nothing since.
        self._failed: ToolCall | None = None
        self._told_progress = 0.0

    def hold(self, prompt: str) -> None:
        """Tell everything that the agent does with the prompt. Raises `Failed` and `Interrupted`."""
        able = self._initialize()
        self._session = self._open_session(able)
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
            reason = "refused_tool"  # some agents end the turn then
        elif reason == "end_turn":
            if not self._has_refused:
                self._check_end()
        elif reason not in _ENDINGS:
            raise Failed(
                f"the turn ended for a reason that llc does not know: {json.dumps(reason)[:_SHORT]}; "
                "use a version of the agent that llc was tested with"
            )
        end = {**answer, "stopReason": reason, "message": _ENDINGS.get(reason)}
        tell("end", **{key: value for key, value in end.items() if key != "type"})

    def _initialize(self) -> dict[str, Any]:
        """The agent's capabilities."""
        # Writes are limited to the project then. With reads offered, Gemini CLI 0.61 cannot create a file.
        able_files = {"readTextFile": False, "writeTextFile": True}
        params = {
            "protocolVersion": VERSION,
            "clientCapabilities": {"fs": able_files, "terminal": False},
            "clientInfo": {"name": "llc", "version": "1"},
        }
        answer = self._request("initialize", params, START_LIMIT)
        if answer.get("protocolVersion") != VERSION:
            told = json.dumps(answer.get("protocolVersion"))[:_SHORT]
            raise Failed(
                f"it speaks version {told} of the Agent Client Protocol, and llc version {VERSION}; "
                "install a version of the agent that speaks it too"
            )
        return mapping_of(answer.get("agentCapabilities"))

    def _open_session(self, able: dict[str, Any]) -> str:
        """The id of a new session, or of the one to continue."""
        params: dict[str, Any] = {"cwd": environment.getcwd(), "mcpServers": []}
        if self._wanted is None:
            session = text_of(self._request("session/new", params, START_LIMIT).get("sessionId"))
            if not session:
                raise Failed(
                    "it gave its new session no id, which the Agent Client Protocol requires; "
                    "use a version of the agent that llc was tested with"
                )
            return session
        if "resume" in mapping_of(able.get("sessionCapabilities")):
            method = "session/resume"  # nothing is repeated; opencode repeats some after it has loaded
        elif able.get("loadSession") is True:
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
            self._pass_over_rest()
        self._is_replay = False
        return str(self._wanted)

    def _pass_over_rest(self) -> None:
        """Wait until the agent is quiet: some repeat what was said after they answered `session/load`."""
        end = clock.monotonic() + START_LIMIT
        while clock.monotonic() < end:
            try:
                message = self._connection.receive(min(end, clock.monotonic() + QUIET))
            except TimeoutError:
                return
            if message is None:
                return  # the next request says so
            self._take(message)

    def _settle(self) -> None:
        """Wait for the ends of tools that were not stated when the turn ended."""
        end = clock.monotonic() + SETTLE_LIMIT
        while any(tool.is_told for tool in self._tools.values()):
            try:
                message = self._connection.receive(end)
            except TimeoutError:
                return
            if message is None:
                return
            self._take(message)

    def _check_end(self) -> None:
        """That the work of a turn is done when its end says so. Raises `Failed`."""
        running = [_words(tool) for tool in self._tools.values() if tool.is_told]
        if running:
            raise Failed(
                f"it ended its turn, and did not say how {', '.join(running[:20])} ended, so the work may be "
                "done in part; see what it has done, and run it again"
            )
        if self._failed is not None:
            raise Failed(
                f"it ended its turn after {_words(self._failed)} had failed, and said nothing of it; "
                f"see what it has done, and run it again: {self._failed.output[-_SHORT:]}"
            )

    def _cancel(self) -> None:
        """Cancel the turn, so that the session has what was interrupted; the agent has a moment for it."""
        self._permissions, self._answers = "plan", None
        for id, _ in self._requests:
            self._connection.send(id=id, result={"outcome": {"outcome": "cancelled"}})
        self._connection.send(method="session/cancel", params={"sessionId": self._session})
        end = clock.monotonic() + CANCEL_LIMIT
        while True:
            try:
                message = self._connection.receive(end)
            except TimeoutError:
                return
            if message is None or ("method" not in message and message.get("id") == self._id):
                return
            self._take(message)

    # --- messages ---------------------------------------------------------------------------------

    def _request(self, method: str, params: dict[str, Any], limit: float | None) -> dict[str, Any]:
        """The result of a request; what comes before it is handled."""
        self._id += 1
        self._connection.send(id=self._id, method=method, params=params)
        end = None if limit is None else clock.monotonic() + limit
        started = "see that its command starts it as an agent of the Agent Client Protocol"
        while True:
            try:
                message = self._receive(end)
            except TimeoutError:
                raise Failed(f"it did not answer `{method}` within {limit:g} s; {started}") from None
            if message is None:
                how = self._connection.end()
                raise Failed(f"{how} before it answered `{method}`; {started}, and what it wrote")
            if "method" in message:
                self._take(message)
            elif str(message.get("id")) != str(self._id):
                raise Failed(
                    f"in place of `{method}` it answered {json.dumps(message.get('id'))[:_SHORT]}, a request "
                    "that llc did not send; use a version of the agent that llc was tested with"
                )
            elif "error" in message:
                raise _failure_of(method, message["error"])
            else:
                return mapping_of(message.get("result"))

    def _take(self, message: dict[str, Any]) -> None:
        """Handle a request or a notification of the agent."""
        method, params = message.get("method"), mapping_of(message.get("params"))
        if method == "session/update":
            self._update(mapping_of(params.get("update")))
        elif "id" not in message or method is None:
            return
        elif method == "session/request_permission":
            if self._answers is not None and len(self._requests) < MANY:
                self._requests.append((message["id"], params))
                return
            tool = self._announced(params)
            self._permit(message["id"], params, tool.is_allowed(self._permissions))
        elif method in ("fs/read_text_file", "fs/write_text_file"):
            self._connection.send(id=message["id"], **self._use_file(method, params))
        else:
            error = {"code": _METHOD_NOT_FOUND, "message": "the client does not offer this method"}
            self._connection.send(id=message["id"], error=error)

    # --- what it does -----------------------------------------------------------------------------

    def _update(self, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if self._is_replay:
            return
        if kind == "usage_update":
            self._count(mapping_of(update.get("cost")))
        elif kind == "agent_message_chunk":
            text = text_of(mapping_of(update.get("content")).get("text"))
            if text.strip():
                self._failed = None
            tell("text", text=text)
        elif kind in ("tool_call", "tool_call_update"):
            self._update_tool(update)
        elif clock.monotonic() - self._told_progress > _PROGRESS:
            self._told_progress = clock.monotonic()
            tell("progress", update=text_of(kind)[:_SHORT])  # it is at work

    def _count(self, cost: dict[str, Any]) -> None:
        """Tell what the session has cost, which cannot fall."""
        usd = cost.get("amount")
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < 1e12:
            return
        if cost.get("currency") != "USD":
            return
        self._cost = max(self._cost, usd)
        tell("cost", usd=self._cost)

    def _tool(self, update: dict[str, Any]) -> ToolCall:
        """The tool call that an update is about, with it."""
        id = text_of(update.get("toolCallId"))
        tool = self._tools.get(id)
        if tool is None:
            tool = ToolCall(id)
            if len(self._tools) < MANY:
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
        if not tool.is_told:
            tool.is_told = True
            tell("tool", id=tool.id, name=tool.kind, target=tool.target)

    def _end_tool(self, tool: ToolCall) -> None:
        changed = [path for path in tool.changed if path not in self._written]
        words = {"name": tool.kind, "target": tool.target, "text": tool.output, "files": changed}
        tell("tool_end", id=tool.id, failed=tool.has_failed, **words)
        self._tools.pop(tool.id, None)
        self._failed = tool if tool.has_failed else None

    # --- what it may do ---------------------------------------------------------------------------

    def _announced(self, params: dict[str, Any]) -> ToolCall:
        """The tool that a request for permission is about; its start is in the record."""
        tool = self._tool(mapping_of(params.get("toolCall")))
        self._begin_tool(tool)
        return tool

    def _receive(self, end: float | None) -> dict[str, Any] | None:
        """The next message, as `Connection.receive`; meanwhile a person may answer."""
        while True:
            self._look_for_answer()
            if not self._requests:
                return self._connection.receive(end)
            try:
                return self._connection.receive(clock.monotonic() + _LOOK_AGAIN)
            except TimeoutError:
                tell("progress", update="waiting for a person")  # that is no silence of the agent

    def _look_for_answer(self) -> None:
        """Ask a person about the first request that waits, and take the answer when it is there."""
        while self._requests:
            id, params = self._requests[0]
            if not self._asked:
                self._questions += 1
                self._asked = f"{processes.getpid()}-{self._questions}"
                tool = self._announced(params)
                tell("question", id=self._asked, name=tool.kind, target=tool.target)
            said = acp_files.read_answer(f"{self._answers}{self._asked}.json")
            if said is None:
                return
            tell("answer", id=self._asked, text=said)
            self._asked = ""
            self._requests.popleft()
            self._permit(id, params, said == PERMIT)

    def _permit(self, id: Any, params: dict[str, Any], is_allowed: bool) -> None:
        """Answer a request for permission."""
        outcome = self._outcome(self._tool(mapping_of(params.get("toolCall"))), params, is_allowed)
        self._connection.send(id=id, result={"outcome": outcome})

    def _outcome(self, tool: ToolCall, params: dict[str, Any], is_allowed: bool) -> dict[str, Any]:
        """The answer to a request for permission: an option, chosen by its kind."""
        if not is_allowed:
            self._refuse(tool.kind, tool.target)
            # Its end may not be stated.
            self._end_tool(tool)
            self._failed = None
        for kind in ("allow_once", "allow_always") if is_allowed else ("reject_once", "reject_always"):
            for option in items_of(params.get("options")):
                found = mapping_of(option)
                if found.get("kind") == kind and isinstance(found.get("optionId"), str):
                    return {"outcome": "selected", "optionId": found["optionId"]}
        if is_allowed:
            self._refuse(tool.kind, tool.target)  # it offers nothing that allows it
        return {"outcome": "cancelled"}

    def _refuse(self, name: str, target: str) -> None:
        self._has_refused = True
        tell("refusal", name=name, target=target)

    def _use_file(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request for a file: its result or its error."""
        path, text = params.get("path"), params.get("content")
        is_write = method == "fs/write_text_file"
        if not isinstance(path, str) or not path or (is_write and not isinstance(text, str)):
            return _error(_INVALID_PARAMS, f"`{method}` needs a `path`" + " and a `content`" * is_write)
        if is_write and self._permissions == "plan":
            self._refuse("edit", path[:_SHORT])
            return _error(_INTERNAL_ERROR, "edits are not permitted")
        try:
            if not is_write:
                line, limit = _whole(params.get("line")), _whole(params.get("limit"))
                return {"result": {"content": acp_files.read_text(path, line or 1, limit)}}
            acp_files.write_text(path, str(text))
        except acp_files.Outside:
            self._refuse("edit" if is_write else "read", f"{path[:_SHORT]}, outside of the project")
            return _error(_INVALID_PARAMS, "the path is outside of the project")
        except (OSError, ValueError) as error:
            return _error(_INTERNAL_ERROR, f"{path[:_SHORT]}: {getattr(error, 'strerror', None) or error}")
        if len(self._written) < MANY:
            self._written.add(path)
        tell("files", files=[path])
        return {"result": {}}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _words(tool: ToolCall) -> str:
    """A tool call in a message."""
    return f"`{tool.kind}({' '.join(tool.target.split())[:_SHORT]})`"


def _failure_of(method: str, error: Any) -> Failed:
    """The failure that an error of JSON-RPC is."""
    found = mapping_of(error)
    data = found.get("data")
    details = data if isinstance(data, str) else json.dumps(data)[:2000] if data else ""
    message = f"`{method}`: {text_of(found.get('message')) or 'it does not say why'}"
    code = found.get("code")
    # Some agents give the status of HTTP.
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    return Failed(f"{message} {details}".strip()[:4000], code=code, status=status)
