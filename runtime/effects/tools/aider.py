"""The tools `aider:automatic` and `aider:interactive`, which run the installed aider (`spec/agents.md`).

Owns the command line, the hand-over of the terminal, and the TaskResult.
"""

from __future__ import annotations

import contextlib

from ....ir.results import TaskError, TaskResult, unstructure
from ...host import clock, pipes, processes, signals, terminal
from ...host.effect_context import TICK, Context, Interrupted, milliseconds
from ..process import NotStarted, Runner
from ..process_group import end_process_group
from .builtin_tools import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


NAMES = ("aider:automatic", "aider:interactive")
# Default timeout of `aider:automatic`, in seconds.
DEFAULT_TIMEOUT = 1800.0
_MAX_PROMPT = 100_000  # characters


def perform(name: str, args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """The TaskResult of an effect. Raises ToolError, and `Interrupted`."""
    values = args["args"]
    path = runner.find("aider")
    if path is None:
        raise ToolError("not-found", "`aider` is not on PATH; see https://aider.chat for how to install it")
    prompt = str(values.get("prompt" if name == NAMES[0] else "query") or "")
    files = values.get("file_context") or []
    for file in files:
        if not isinstance(file, str):
            raise ToolError("type-error", f"`file_context` is a list of paths, not of {file!r:.60}")
    if len(prompt) > _MAX_PROMPT or any("\0" in text for text in (prompt, *files)):
        raise ToolError("unsendable-text", "the text is too long for aider or has a NUL character")
    words = ["aider", *([f"--model={values['model']}"] if values.get("model") else [])]
    words += [f"--file={file}" for file in files]
    limits = {"deadline_ms": args.get("deadline_ms"), "timeout_s": values.get("timeout")}
    if name == NAMES[0]:
        limits["timeout_s"] = limits["timeout_s"] or DEFAULT_TIMEOUT
        words += ["--yes-always", "--no-pretty", "--no-check-update", f"--message={prompt}"]
        try:
            result = runner.run(path, words, limits, context)
        except NotStarted as error:
            raise ToolError("failed-to-start", str(error)) from None
        return _task_result(result)
    if context.on_prompt is None:
        raise ToolError("no-terminal", "`aider:interactive` needs a terminal, and the run has none")
    context.on_prompt("".join(f"{line}\n" for line in ("aider has the terminal", *prompt.splitlines())))
    return _task_result(_hand_over(path, words, limits, context, runner))


def _task_result(result: dict[str, Any]) -> dict[str, Any]:
    output, code = result["output"], result["exit_code"]
    notes: dict[str, Any] = {"exit_code": code}
    if not code and "timed_out" not in result:
        return unstructure(TaskResult("COMPLETE", output, notes=notes))
    reason, why = "subtask_failure", f"aider ended with exit code {code}"
    if "timed_out" in result:
        reason, why = "execution_timeout", f"aider took longer than {result.get('limit_ms', 0) / 1000:g} s"
    text = (result["stderr"].strip() or output.strip())[-500:]
    error = TaskError("TASK_FAILURE", reason, why + (f": {text}" if text else ""), {"exit_code": code})
    return unstructure(TaskResult("FAILED", output or why, notes={**notes, "error": unstructure(error)}))


# --- the terminal -----------------------------------------------------------------------------


def _hand_over(
    path: str, words: list[str], limits: dict[str, Any], context: Context, runner: Runner
) -> dict[str, Any]:
    """Run a program in the foreground of the terminal; the result has no output."""
    started_at = clock.monotonic()
    limit, limited_by = context.limit(limits, own="action")
    env = {**runner.env, b"LLC_EFFECT_ID": context.effect_id.encode(), b"LLC_RUN_ID": context.run_id.encode()}
    settings = terminal.tcgetattr(0)
    # A background process is stopped when it changes the terminal, unless it blocks this signal.
    before = signals.pthread_sigmask(signals.SIG_BLOCK, {signals.SIGTTOU})
    try:
        try:
            pid = processes.posix_spawn(
                path,
                words,
                env,
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signals.SIGINT, signals.SIGPIPE, signals.SIGTTOU, signals.SIGTSTP),
            )
        except OSError as error:
            raise ToolError("failed-to-start", f"aider could not be started: {error.strerror}") from None
        try:
            if context.on_process is not None:
                context.on_process(pid, processes.start_time(pid))
            terminal.tcsetpgrp(0, pid)
            processes.kill(-pid, signals.SIGCONT)  # it may have been stopped while it was in the background
            status, timed_out = _wait(pid, None if limit is None else started_at + limit, context)
        except BaseException:
            end_process_group(pid)
            raise
        finally:
            with contextlib.suppress(OSError):
                terminal.tcsetpgrp(0, processes.getpgrp())
            with contextlib.suppress(terminal.TerminalError):
                terminal.tcsetattr(0, terminal.TCSADRAIN, settings)
    finally:
        signals.pthread_sigmask(signals.SIG_SETMASK, before)
    code = processes.waitstatus_to_exitcode(status)
    result: dict[str, Any] = {"output": "", "stderr": "", "exit_code": code if code >= 0 else 128 - code}
    if timed_out and limit is not None:
        result |= {"timed_out": limited_by, "limit_ms": round(limit * 1000)}
    return result


def _wait(pid: int, deadline: float | None, context: Context) -> tuple[int, bool]:
    """Wait for a process; return its wait status and whether it timed out. Raises `Interrupted`."""
    poller = pipes.poll()
    poller.register(context.interrupt, pipes.POLLIN)
    while True:
        changed, status = processes.waitpid(pid, processes.WNOHANG | processes.WUNTRACED)
        if changed and processes.WIFSTOPPED(status):
            processes.kill(-pid, signals.SIGCONT)  # Ctrl-Z, but there is no shell to return to
        elif changed:
            return status, False
        if context.interrupt.is_set:
            raise Interrupted
        if deadline is not None and clock.monotonic() >= deadline:
            return end_process_group(pid), True
        poller.poll(milliseconds(TICK))
