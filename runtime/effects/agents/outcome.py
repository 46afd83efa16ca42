"""Outcome of an agent: its output, what it used, and whether it did its work.

An exit code of 0 proves nothing. Success is the final event, no error, no refusal, at least one model turn
and exit code 0. Must not contain: processes, the reading of events (`event_stream`).
"""

from __future__ import annotations

import json
import re
from typing import Any

from ...project.agent_schema import FIELDS, AgentSpec, KnownError
from ...project.agents import capabilities_of
from ..handoff import handoff_of
from .event_stream import EventStream, amount

# Characters of a result that stay in memory, and of an error's text.
_LONGEST = 1 << 20
_TOLD = 500
# Characters of standard error and of an answer that are searched for known errors.
_SEARCHED = 4000
# Work was done then, and the loop's check shows how much.
_HARMLESS = "turn-limit"
# Errors that end by themselves at a known time.
_LIMITS = ("rate-limit", "quota")


def read(
    result: dict[str, Any],
    agent: AgentSpec,
    stream: EventStream | None,
    ended: str = "",
    idle_s: float | None = None,
) -> None:
    """Turn what a program wrote into what it reports, in place.

    ended: "stopped" if llc stopped it because of an event, "idle" if it wrote nothing for `idle_s` seconds.
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
        _lacks(result, "it wrote none of the events of stream-json")
    if ended == "idle":
        message = f"the agent wrote nothing for {idle_s:g} s, and was stopped"
        if unsaid := [kind for kind in agent.silent_on if kind != "hang"]:
            message += f" (errors of these kinds it does not report: {', '.join(unsaid)})"
        message += "; if it needs longer, raise `idle_timeout`"
        result["error"] = {"kind": "idle-timeout", "message": message}
    is_harmless = stream is not None and stream.error is not None and stream.error.kind == _HARMLESS
    if not is_harmless:
        _check_exit(result, agent)
    # It ran; what it used is unknown unless its output says so.
    result.setdefault("usage", {"usd": None, "tokens": None})
    handed = handoff_of(result["output"])
    if handed is not None:
        result["handoff"] = handed


def added(before: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """A result with what an earlier start of the same effect has used; `before` is empty without one."""
    if not before:
        return result
    result["duration_ms"] += before["duration_ms"]
    used, usage = before.get("usage") or {}, result.get("usage") or {}
    names = {**usage, **used}
    # What is unknown of a start that got no answer is nothing.
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
        _put_output(result, answer if answer or stream.has_answer else stream.said, result["output"])
    if "timed_out" in result or ended == "idle":
        return
    error, stderr = stream.error, result["stderr"][-_SEARCHED:]
    if error is not None and error.kind == _HARMLESS:
        return
    if error is not None:
        message = " ".join(error.message.split())[:_TOLD] or "it does not say why"
        known = _recognise(agent, f"{error.message}\n{stderr}", error.status, result["exit_code"])
        kind = error.kind or (known.kind if known is not None else "agent-failed")
        _fail(result, agent, kind, f"the agent failed: {message}", error.status, known)
        if kind in _LIMITS and stream.resets_at is not None:
            result["error"]["resets_at"] = stream.resets_at
    elif (known := _said_in_spite_of_success(agent, stderr, stream.answer)) is not None:
        said = _matching_line(known, f"{stream.answer[:_SEARCHED]}\n{stderr}")
        what = "did no work" if known.kind == "unknown-command" else "failed"
        _fail(result, agent, known.kind, f"the agent {what}: {said}", None, known)
    elif stream.refusals:
        tools = ", ".join(dict.fromkeys(_refused(*entry) for entry in stream.refusals[:20]))
        ways = (
            "`allowed_tools` or `permissions`"
            if "allowed_tools" in capabilities_of(agent)
            else "`permissions`"
        )
        message = f"the agent was refused {tools}; allow it with {ways}"
        result["error"] = {"kind": "refused", "message": message[:1000]}
    elif stream.has_final and not stream.is_final:
        if not (result["output"] or result["stderr"]).strip():
            why = "it wrote nothing; check it with `llc doctor`"
        elif stream.skipped:
            why = "a line of its output was too long to be read; see `llc logs -v`"
        else:
            why = "its output ends in the middle; see `llc logs -v`"
        _lacks(result, f"the agent ended without a result: {why}")
    elif stream.turns == 0 or (stream.turns is None and stream.counts_turns and not stream.has_answer):
        said = " ".join(stream.answer.split())[:_TOLD]
        help = "write the action as a prompt that asks it to do something"
        _fail(
            result,
            agent,
            "no-work",
            f"the agent did no work: {said or 'it took no turn'}; {help}",
            None,
            None,
        )


def _recognise(agent: AgentSpec, text: str, status: int | None, exit_code: int) -> KnownError | None:
    """The first known error that a status, a text or an exit code shows."""
    for known in agent.errors:
        if status is not None and status in known.status:
            return known
        if exit_code in known.exit or (known.text and re.search(known.text, text, re.MULTILINE)):
            return known
    return None


def _said_in_spite_of_success(agent: AgentSpec, stderr: str, answer: str) -> KnownError | None:
    """An error that a stream of events does not state: at the start of the answer, or on standard error."""
    for known in agent.errors:
        if known.always and known.text:
            found = re.compile(known.text, re.MULTILINE)
            if found.match(answer[:_SEARCHED]) or found.search(stderr):
                return known
    return None


def _matching_line(known: KnownError, text: str) -> str:
    found = re.search(known.text or "", text, re.MULTILINE)
    start = text.rfind("\n", 0, found.start()) + 1 if found is not None else 0
    return " ".join(text[start:].partition("\n")[0].split())[:_TOLD]


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


def _refused(name: str, target: str) -> str:
    """A refused tool as `allowed_tools` names it."""
    return f"{name}({target[:100]})" if target else name


def _check_exit(result: dict[str, Any], agent: AgentSpec) -> None:
    """An exit code that is not 0 is an error; the evaluator `exit_code` judges it by its number anyway."""
    if not result["exit_code"] or any(key in result for key in ("error", "signal", "timed_out")):
        return
    lines = (result["stderr"] or result["output"]).splitlines()
    told = next((line for line in reversed(lines) if line.strip()), "")
    text = f"{result['stderr'][-_SEARCHED:]}\n{result['output'][-_SEARCHED:]}"
    known = _recognise(agent, text, None, result["exit_code"])
    if known is not None and known.kind == _HARMLESS:
        return
    message = f"the agent ended with exit code {result['exit_code']}" + (f": {told[:_TOLD]}" if told else "")
    _fail(result, agent, known.kind if known is not None else "failed-exit", message, None, known)


def _put_output(result: dict[str, Any], text: str, raw: str) -> None:
    """Make a text the output. What was cut from the raw output is not cut from the text."""
    truncated = result.get("truncated")
    if truncated is not None and raw:
        truncated.pop("output", None)
        if not truncated:
            del result["truncated"]
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}\n[llc: {left_out} of {len(text)} characters are left out here]\n{text[-half:]}"
        result.setdefault("truncated", {})["output"] = len(text)
    result["output"] = text


def _lacks(result: dict[str, Any], message: str, kind: str = "no-result", always: bool = False) -> None:
    """Note an error where nothing else says already why there is no result."""
    told = "signal" in result or "timed_out" in result or "error" in result
    if always or not (told or result["exit_code"]):
        result["error"] = {"kind": kind, "message": message}


def _report(output: str) -> dict[str, Any] | None:
    """The one object of type "result" that an output is, if it is one."""
    if not output.lstrip().startswith("{"):
        return None
    try:
        report = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and report.get("type") == "result" else None


# --- reports of other agents ------------------------------------------------------------------


def _read_json(result: dict[str, Any], agent: AgentSpec) -> None:
    """A report of JSON: all of the output, else the last line of it that is an object."""
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
        _lacks(result, "what the agent wrote is no JSON", kind="invalid-json")
        return
    paths = {**FIELDS, **agent.fields}
    found = {name: _at(report, path) for name, path in paths.items()}
    if isinstance(found["session"], str):
        result["session"] = found["session"]
    counts = [amount(found[name]) for name in ("input_tokens", "output_tokens")]
    usage: dict[str, Any] = {"usd": amount(found["usd"])}
    if counts == [None, None]:
        usage["tokens"] = None
    else:
        read, written = (int(count or 0) for count in counts)
        usage |= {"input_tokens": read, "output_tokens": written, "tokens": read + written}
    result["usage"] = usage
    text, error = found["result"], found["error"]
    if text is None and error in (None, False, ""):
        _lacks(result, f"its report has no `{paths['result']}`")
    elif text is not None:
        _put_output(result, text if isinstance(text, str) else json.dumps(text, ensure_ascii=False), "")
    if error not in (None, False, "") and "timed_out" not in result:
        told = error if isinstance(error, str) else json.dumps(error)
        _lacks(result, f"the agent failed: {told[:_TOLD]}", kind="agent-failed", always=True)


def _at(value: Any, path: str) -> Any:
    """The value at a path such as `.choices.0.message.content`, None if there is none."""
    for key in path.strip(".").split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.lstrip("-").isdigit():
            at = int(key)
            value = value[at] if -len(value) <= at < len(value) else None
        else:
            return None
    return value
