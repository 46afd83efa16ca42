"""Performer of the `tool` effect: built-in tools, commands, Python functions, MCP tools, aider.

The effect contains the definition of the tool at compile time. See `spec/effects.md`.
"""

from __future__ import annotations

import json

from ....vm.primitives.shell_words import (
    shell_double,
    shell_heredoc,
    shell_quoted_heredoc,
    shell_single,
    shell_word,
)
from ....vm.values.faults import PrimitiveFault
from ...host import clock, environment
from ...host.effect_context import Context
from ...models.helper_process import START_LIMIT, Worker, WorkerEnded, WorkerTimeout
from ..performers import Parts
from ..process import NotStarted
from ..shell import Shell, shell_of
from .builtin_tools import TOOLS, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .mcp_client import Servers

# Default timeout of a custom tool, in seconds.
DEFAULT_TIMEOUT = 600.0
# Characters of a command's output in an error message.
_MAX_OUTPUT = 2000
_QUOTING: dict[str, Callable[..., str]] = {
    "word": shell_word,
    "single": shell_single,
    "double": shell_double,
    "heredoc": shell_heredoc,
    "quoted_heredoc": shell_quoted_heredoc,
    "comment": lambda text: text.replace("\n", " "),
}


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Perform a `tool` effect."""
    return parts.keep_for_run("tools", lambda: Tools(shell_of(parts), lambda: _servers_of(parts))).perform(
        args, context
    )


def _servers_of(parts: Parts) -> Servers:
    """The MCP servers of the run; the client of the protocol is imported on first use."""
    from .mcp_client import Servers

    return parts.keep_common("servers", Servers)


class Tools:
    """Performs the `tool` effects of one run; Python functions run in one helper process.

    servers: returns the MCP servers of the run.
    """

    def __init__(self, shell: Shell, servers: Callable[[], Servers]) -> None:
        self._shell = shell
        self._servers = servers
        self._worker: Worker | None = None

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def perform(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """Perform a tool; return {"value"} or {"error"}. An error of the tool is never an exception."""
        started_at = clock.monotonic()
        name, definition = args["name"], args.get("definition")
        try:
            if name in TOOLS:
                result = {"value": TOOLS[name](args["args"])}
            elif name.startswith("aider:"):
                from . import aider

                result = {"value": aider.perform(name, args, context, self._shell.runner)}
            elif not isinstance(definition, dict):
                raise ToolError("unknown-tool", "the tool has a declaration but no definition")
            elif "mcp" in definition:
                result = self._servers().call(definition["mcp"], args, context)
            elif "python" in definition:
                result = self._python(definition, args, context)
            else:
                result = self._command(definition, args, context)
        except (ToolError, PrimitiveFault) as error:
            result = {"error": {"kind": error.kind, "message": error.message}}
        result["duration_ms"] = round((clock.monotonic() - started_at) * 1000)
        result["elapsed_ms"] = context.elapsed_ms()
        return result

    # --- commands -----------------------------------------------------------------------------

    def _command(self, definition: dict[str, Any], args: dict[str, Any], context: Context) -> dict[str, Any]:
        values = args["args"]
        limits = _limits(args)
        if "shell" in definition:
            command = "".join(in_shell(piece, values) for piece in definition["shell"])
            result = self._shell.perform({**limits, "command": command}, context)
        else:
            argv = [word for pieces in definition["argv"] for word in words(pieces, values)]
            result = self._run(argv, limits, context)
        return _answer(result, definition.get("output", "text"))

    def _run(self, argv: list[str], limits: dict[str, Any], context: Context) -> dict[str, Any]:
        runner = self._shell.runner
        if not argv or not argv[0]:
            raise ToolError("not-found", "its command is empty")
        if any("\0" in word for word in argv):
            raise ToolError("unsendable-text", "a text with a NUL character cannot be passed to a program")
        path = runner.find(argv[0])
        if path is None:
            problem = "is not a program" if "/" in argv[0] else "is not on PATH"
            raise ToolError("not-found", f"`{argv[0]}` {problem}")
        try:
            return runner.run(path, argv, limits, context)
        except NotStarted as error:
            return error.result(context)

    # --- Python functions ---------------------------------------------------------------------

    def _python(self, definition: dict[str, Any], args: dict[str, Any], context: Context) -> dict[str, Any]:
        if self._worker is None:
            self._worker = Worker("effects.tools.tool_worker", dict(environment.environb))
        limits = _limits(args)
        request = {"entry": definition["python"], "args": args["args"], "env": context.variables}
        seconds = None
        try:
            self._worker.ready(START_LIMIT, context.interrupt, context.on_tick)
            seconds, _ = context.limit(limits, own="action")
            if seconds is None or seconds <= 0:
                raise WorkerTimeout
            return self._worker.ask(request, seconds, context.interrupt, context.on_tick)
        except WorkerTimeout:
            message = (
                f"no answer within {seconds:g} s" if seconds and seconds > 0 else "there was no time left"
            )
            return {"error": {"kind": "timeout", "message": message}, "timed_out": "action"}
        except WorkerEnded as error:
            return {"error": {"kind": "crash", "message": f"its process failed: {error}"}}


def _limits(args: dict[str, Any]) -> dict[str, Any]:
    return {"timeout_s": args.get("timeout_s") or DEFAULT_TIMEOUT, "deadline_ms": args.get("deadline_ms")}


# --- expansion of a command -------------------------------------------------------------------


def text_of(value: Any) -> str:
    """A value as text for a command: text unchanged, "" for null, other values as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def words(pieces: list[Any], values: dict[str, Any]) -> list[str]:
    """Expand one word of `command`.

    Empty if a parameter in the word was omitted; one word per item if the word is one parameter with a list.
    """
    names = [piece["of"] for piece in pieces if isinstance(piece, dict)]
    if any(values.get(name) is None for name in names):
        return []
    if len(pieces) == 1 and names and isinstance(values[names[0]], list):
        return [text_of(item) for item in values[names[0]]]
    return ["".join(piece if isinstance(piece, str) else text_of(values[piece["of"]]) for piece in pieces)]


def in_shell(piece: Any, values: dict[str, Any]) -> str:
    """Expand a piece of a shell command: text of the author unchanged, a value quoted for its context."""
    if isinstance(piece, str):
        return piece
    quote = _QUOTING[piece["quoting"]]
    value = values.get(piece["of"])
    if value is None and piece["quoting"] == "word":
        return ""
    if isinstance(value, list) and piece["quoting"] == "word":
        return " ".join(quote(text_of(item)) for item in value)
    return quote(text_of(value), *piece.get("around", ()))


# --- result of a command ----------------------------------------------------------------------


def _task_result(outputs: dict[str, Any], problem: str | None) -> dict[str, Any]:
    """The fields that make the result of a command a TaskResult; see `calls:task-result` in the library."""
    result: dict[str, Any] = {"status": "COMPLETE", "content": outputs["stdout"], "notes": outputs}
    if problem is None and outputs["exit_code"] == 0:
        return result
    message = problem or f"exit code {outputs['exit_code']}"
    error = {"type": "TASK_FAILURE", "reason": "subtask_failure", "message": message, "details": {}}
    result |= {"status": "FAILED", "notes": {**outputs, "error": error}}
    return result if problem is None else {**result, "error": problem}


def _answer(result: dict[str, Any], output: str) -> dict[str, Any]:
    problem = _problem(result)
    if output == "result":
        value = {"stdout": result["output"], "stderr": result["stderr"], "exit_code": result["exit_code"]}
        return {"value": {**value, **_task_result(value, problem and problem[1])}}
    if problem is None and result["exit_code"]:
        text = (result["stderr"].strip() or result["output"].strip())[-_MAX_OUTPUT:]
        problem = "tool-failed", f"exit code {result['exit_code']}" + (f": {text}" if text else "")
    if problem is not None:
        details = {"exit_code": result["exit_code"], "stderr": result["stderr"][-_MAX_OUTPUT:]}
        answer: dict[str, Any] = {"error": {"kind": problem[0], "message": problem[1], "details": details}}
        return answer | ({"timed_out": result["timed_out"]} if "timed_out" in result else {})
    if output == "json":
        try:
            return {"value": json.loads(result["output"], parse_constant=_refuse_constant)}
        except (ValueError, RecursionError) as error:
            why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise ToolError("invalid-json", f"the output is not JSON: {why}") from None
    return {"value": result["output"].removesuffix("\n")}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _problem(result: dict[str, Any]) -> tuple[str, str] | None:
    """Kind and message of the failure of a command that did not end by itself; None if it did."""
    if "error" in result:
        return str(result["error"]["kind"]), str(result["error"]["message"])
    if result.get("timed_out") == "action":
        return "timeout", f"timed out after {result.get('limit_ms', 0) / 1000:g} s"
    if "timed_out" in result:
        return "timeout", "the run's time limit was reached"
    return ("signal", f"ended by {result['signal']}") if "signal" in result else None
