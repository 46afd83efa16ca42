"""Outcome of an agent: its output, its usage, and whether it has done its work.

Exit code 0 alone does not prove success. Success requires the final event, no error, no refusal, at least one
model turn and exit code 0. Must not contain: processes, the reading of events (`event_stream`).
"""

from __future__ import annotations

import json
import re
from typing import Any

from ...project.agent_schema import FIELDS, AgentSpec, KnownError
from ...project.agents import capabilities_of
from ..handoff import handoff_of
from .event_stream import EventStream, amount

# Maximum length of a result and of an error's text, in characters.
_MAX_OUTPUT = 1 << 20
_MAX_MESSAGE = 500
# Characters of standard error and of an answer that are searched for known errors.
_SEARCHED_LENGTH = 4000
# Error kind that is no failure: the agent has done work, and the loop's check decides.
_HARMLESS = "turn-limit"
# Error kinds that resolve by themselves at a known time.
_LIMIT_KINDS = ("rate-limit", "quota")


def read(
    result: dict[str, Any],
    agent: AgentSpec,
    stream: EventStream | None,
    ended: str = "",
    idle_s: float | None = None,
) -> None:
    """Complete the result of an agent program in place: output, usage, session, error.

    ended: "stopped" if llc stopped the program because of an event, "idle" if it wrote nothing for `idle_s`
    seconds, otherwise "".
    """
    if stream is not None and not stream.is_stream and agent.output == "auto":
        report = _report(result["output"])
        if report is not None:
            stream.take(report)
    if stream is not None and (stream.is_stream or agent.output == "events"):
        _read_stream(result, agent, stream, ended)
    elif agent.output == "json":
        _read_json(result, agent)
    elif agent.output == "stream-json":
        _add_error(result, "it wrote none of the events of stream-json")
    if ended == "idle":
        message = f"the agent wrote nothing for {idle_s:g} s, and was stopped"
        if silent_on := [kind for kind in agent.silent_on if kind != "hang"]:
            message += f" (it does not report errors of these kinds: {', '.join(silent_on)})"
        message += "; if it needs longer, raise `idle_timeout`"
        result["error"] = {"kind": "idle-timeout", "message": message}
    is_harmless = stream is not None and stream.error is not None and stream.error.kind == _HARMLESS
    if not is_harmless:
        _check_exit(result, agent)
    # The program has run, so its usage is unknown unless the output states it.
    result.setdefault("usage", {"usd": None, "tokens": None})
    handoff = handoff_of(result["output"])
    if handoff is not None:
        result["handoff"] = handoff


def add_usage_of(previous: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Add duration and usage of a previous start of the same effect; `previous` is empty without one."""
    if not previous:
        return result
    result["duration_ms"] += previous["duration_ms"]
    used, usage = previous.get("usage") or {}, result.get("usage") or {}
    names = {**usage, **used}
    # An unknown amount counts as 0, because a start without an answer used nothing.
    known = {name: [part[name] for part in (used, usage) if part.get(name) is not None] for name in names}
    result["usage"] = {name: sum(amounts) if amounts else None for name, amounts in known.items()}
    return result


# --- streams ----------------------------------------------------------------------------------


def _read_stream(result: dict[str, Any], agent: AgentSpec, stream: EventStream, ended: str) -> None:
    result["usage"] = stream.usage
    if stream.structured is not None:
        result["structured"] = stream.structured
    if stream.session is not None:
        result["session"] = stream.session
    if stream.thread is not None:
        result["thread"] = stream.thread
    if stream.is_stream:
        answer = stream.answer if stream.is_final else ""
        _put_output(result, answer if answer or stream.has_answer else stream.texts, result["output"])
    if "timed_out" in result or ended == "idle":
        return
    error, stderr = stream.error, result["stderr"][-_SEARCHED_LENGTH:]
    if error is not None and error.kind == _HARMLESS:
        return
    if error is not None:
        message = " ".join(error.message.split())[:_MAX_MESSAGE] or "it does not say why"
        known = _recognise(agent, f"{error.message}\n{stderr}", error.status, result["exit_code"])
        kind = error.kind or (known.kind if known is not None else "agent-failed")
        _fail(result, agent, kind, f"the agent failed: {message}", error.status, known)
        if kind in _LIMIT_KINDS and stream.resets_at is not None:
            result["error"]["resets_at"] = stream.resets_at
    elif (known := _error_despite_success(agent, stderr, stream.answer)) is not None:
        line = _matching_line(known, f"{stream.answer[:_SEARCHED_LENGTH]}\n{stderr}")
        verb = "did no work" if known.kind == "unknown-command" else "failed"
        _fail(result, agent, known.kind, f"the agent {verb}: {line}", None, known)
    elif stream.refusals:
        tools = ", ".join(dict.fromkeys(_tool_notation(*entry) for entry in stream.refusals[:20]))
        has_tools = "allowed_tools" in capabilities_of(agent)
        keys = "`allowed_tools` or `permissions`" if has_tools else "`permissions`"
        message = f"the agent was refused {tools}; allow it with {keys}"
        result["error"] = {"kind": "refused", "message": message[:1000]}
    elif stream.has_final and not stream.is_final:
        if not (result["output"] or result["stderr"]).strip():
            reason = "it wrote nothing; check it with `llc doctor`"
        elif stream.skipped:
            reason = "a line of its output was too long to be read; see `llc logs -v`"
        else:
            reason = "its output is incomplete; see `llc logs -v`"
        _add_error(result, f"the agent ended without a result: {reason}")
    elif stream.turns == 0 or (stream.turns is None and stream.counts_turns and not stream.has_answer):
        answer = " ".join(stream.answer.split())[:_MAX_MESSAGE] or "it took no turn"
        help = "write the action as a prompt that asks it to do something"
        _fail(result, agent, "no-work", f"the agent did no work: {answer}; {help}", None, None)


def _recognise(agent: AgentSpec, text: str, status: int | None, exit_code: int) -> KnownError | None:
    """The first known error that matches a status, a text or an exit code."""
    for known in agent.errors:
        if status is not None and status in known.status:
            return known
        if exit_code in known.exit or (known.text and re.search(known.text, text, re.MULTILINE)):
            return known
    return None


def _error_despite_success(agent: AgentSpec, stderr: str, answer: str) -> KnownError | None:
    """A known error at the start of the answer or on standard error that the event stream does not state."""
    for known in agent.errors:
        if known.always and known.text:
            pattern = re.compile(known.text, re.MULTILINE)
            if pattern.match(answer[:_SEARCHED_LENGTH]) or pattern.search(stderr):
                return known
    return None


def _matching_line(known: KnownError, text: str) -> str:
    match = re.search(known.text or "", text, re.MULTILINE)
    start = text.rfind("\n", 0, match.start()) + 1 if match is not None else 0
    return " ".join(text[start:].partition("\n")[0].split())[:_MAX_MESSAGE]


def _fail(
    result: dict[str, Any],
    agent: AgentSpec,
    kind: str,
    message: str,
    status: int | None,
    known: KnownError | None,
) -> None:
    help = known.help if known is not None else None
    if help is None:
        help = next((one.help for one in agent.errors if one.kind == kind and one.help), None)
    result["error"] = {"kind": kind, "message": f"{message}; {help}" if help else message}
    if status is not None:
        result["error"]["status"] = status


def _tool_notation(name: str, target: str) -> str:
    """A refused tool in the notation of `allowed_tools`."""
    return f"{name}({target[:100]})" if target else name


def _check_exit(result: dict[str, Any], agent: AgentSpec) -> None:
    """Add an error for an exit code that is not 0; the evaluator `exit_code` uses the number itself."""
    if not result["exit_code"] or any(key in result for key in ("error", "signal", "timed_out")):
        return
    lines = (result["stderr"] or result["output"]).splitlines()
    last_line = next((line for line in reversed(lines) if line.strip()), "")
    text = f"{result['stderr'][-_SEARCHED_LENGTH:]}\n{result['output'][-_SEARCHED_LENGTH:]}"
    known = _recognise(agent, text, None, result["exit_code"])
    if known is not None and known.kind == _HARMLESS:
        return
    message = f"the agent ended with exit code {result['exit_code']}"
    message += f": {last_line[:_MAX_MESSAGE]}" if last_line else ""
    _fail(result, agent, known.kind if known is not None else "failed-exit", message, None, known)


def _put_output(result: dict[str, Any], text: str, raw: str) -> None:
    """Set the output to a text. A truncation of the raw output does not apply to the text."""
    truncated = result.get("truncated")
    if truncated is not None and raw:
        truncated.pop("output", None)
        if not truncated:
            del result["truncated"]
    if len(text) > _MAX_OUTPUT:
        half = _MAX_OUTPUT // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}\n[llc: {left_out} of {len(text)} characters are left out here]\n{text[-half:]}"
        result.setdefault("truncated", {})["output"] = len(text)
    result["output"] = text


def _add_error(result: dict[str, Any], message: str, kind: str = "no-result", always: bool = False) -> None:
    """Set an error, unless the result already states a failure. always: replace an existing error."""
    has_failed = "signal" in result or "timed_out" in result or "error" in result
    if always or not (has_failed or result["exit_code"]):
        result["error"] = {"kind": kind, "message": message}


def _report(output: str) -> dict[str, Any] | None:
    """The output as an object of type "result"; None if it is none."""
    if not output.lstrip().startswith("{"):
        return None
    try:
        report = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and report.get("type") == "result" else None


# --- reports of other agents ------------------------------------------------------------------


def _read_json(result: dict[str, Any], agent: AgentSpec) -> None:
    """Read a JSON report: the whole output, otherwise its last line that is an object or a list."""
    output = result["output"].strip()
    report: Any = None
    for text in (output, *reversed(output.splitlines()[-200:])):
        try:
            report = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(report, dict | list):
            break
    if not isinstance(report, dict | list):
        _add_error(result, "the output of the agent is not JSON", kind="invalid-json")
        return
    paths = {**FIELDS, **agent.fields}
    values = {name: _at(report, path) for name, path in paths.items()}
    if isinstance(values["session"], str):
        result["session"] = values["session"]
    counts = [amount(values[name]) for name in ("input_tokens", "output_tokens")]
    usage: dict[str, Any] = {"usd": amount(values["usd"])}
    if counts == [None, None]:
        usage["tokens"] = None
    else:
        read, written = (int(count or 0) for count in counts)
        usage |= {"input_tokens": read, "output_tokens": written, "tokens": read + written}
    result["usage"] = usage
    text, error = values["result"], values["error"]
    if text is None and error in (None, False, ""):
        _add_error(result, f"its report has no `{paths['result']}`")
    elif text is not None:
        _put_output(result, text if isinstance(text, str) else json.dumps(text, ensure_ascii=False), "")
    if error not in (None, False, "") and "timed_out" not in result:
        message = error if isinstance(error, str) else json.dumps(error)
        _add_error(result, f"the agent failed: {message[:_MAX_MESSAGE]}", kind="agent-failed", always=True)


def _at(value: Any, path: str) -> Any:
    """The value at a path such as `.choices.0.message.content`; None if there is none."""
    for key in path.strip(".").split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.lstrip("-").isdigit():
            index = int(key)
            value = value[index] if -len(value) <= index < len(value) else None
        else:
            return None
    return value
