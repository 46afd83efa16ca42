"""Slash commands: handed to an agent program, and what it reports (`loops.md` 10; `spec/agents.md`).

Owns which program that is, how it is given the command, and how its output becomes a result: the text,
what it used, its session, an error, a hand-off. What it says while it works is read by `agent_stream`.
"""

from __future__ import annotations

import re

from ..host import environment, files
from ..host.effect_context import Context
from ..host.paths import ROOT
from ..project import configuration
from ..project.agents import DEFAULT, FIELDS, KNOWN, Agent
from .agent_stream import Stream, usage_of
from .parts import Parts
from .process import NotStarted, Runner, failure
from .shell import shell_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


VARIABLE = "LLC_AGENT"
_HELP = f"name the agent program in the loop's `agent:` or in {VARIABLE}"
_HANDOFF = re.compile(r"^[ \t>*#`_-]*CONTEXT_HANDOFF:[*`_]*[ \t]*", re.MULTILINE)
ROOT_NOTE = "[llc: claude refuses `permissions: skip` as root; it gets `acceptEdits` and allowed tools]\n"
# Characters of a hand-off that are carried on, and of a result that stay in memory.
_NOT_KNOWN = ("Unknown command:", "Unknown skill:", "Unknown slash command:")
LONGEST_HANDOFF = 64 * 1024
_LONGEST = 1 << 20


class _Refused(Exception):
    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(kind, message)


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Perform an `agent` effect. A model client that is needed afterwards starts at the same time."""
    if "evaluate" in parts.kinds and not parts.has("judge"):
        # Its import takes more than a second, which passes while the agent works.
        from .evaluate import judge_of

        judge_of(parts).start()
    return run_agent(args, context, shell_of(parts).runner)


def run_agent(args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """What the agent makes of `args["command"]`, as the result of an `agent` effect.

    args: also `agent`, a name of the configuration, or `argv`, a program with its arguments; `session`,
    the session to continue.
    """
    try:
        program = chosen(args, runner.env).asked(args)
        if program.unknown_options:
            raise _Refused("unknown-option", _no_option(program))
    except _Refused as error:
        return failure(context, 126, kind=error.kind, message=error.message)
    name = program.argv[0]
    path = runner.find(name)
    if path is None:
        if "/" in name and files.exists(name):
            return failure(
                context, 126, kind="not-executable", message=f"`{name}` is not an executable file; {_HELP}"
            )
        where = "does not exist" if "/" in name else "is not on PATH"
        return failure(context, 127, kind="not-found", message=f"`{name}` {where}; {_HELP}")
    stream, listening = _listen(program, context)
    # With IS_SANDBOX the user declares that root may have every permission.
    is_root = program.is_claude and environment.geteuid() == 0 and runner.env.get(b"IS_SANDBOX") != b"1"
    if is_root and program.skips_permissions() and context.on_output is not None:
        context.on_output("stderr", ROOT_NOTE)
    prompt = args["command"]
    try:
        words = program.words(prompt, args.get("session"), is_root)
        result = runner.run(path, words, args, listening, prompt if program.reads_prompt else None)
    except NotStarted as error:
        return error.result(context)
    if stream is not None:
        stream.finish()
    _read(result, program, stream, context)
    _check_exit(result, stream)
    # It ran; what it used is unknown unless its output says so.
    result.setdefault("usage", usage_of({}))
    handed = handoff_of(result["output"])
    if handed is not None:
        result["handoff"] = handed
    return result


def handoff_of(output: str) -> str | None:
    """What an agent whose context is full hands on: all after `CONTEXT_HANDOFF:` at the start of a line.

    Where nothing follows, what it said before; None where it does not hand over.
    """
    if "CONTEXT_HANDOFF:" not in output:
        return None
    found = _HANDOFF.search(output)
    if found is None:
        return None
    after, before = output[found.end() :].strip(), output[: found.start()].strip()
    return after[:LONGEST_HANDOFF] or before[-LONGEST_HANDOFF:] or "(it said nothing more)"


def _check_exit(result: dict[str, Any], stream: Stream | None) -> None:
    """An exit code that is not 0 is an error, unless the agent only ran out of turns.

    The evaluator `exit_code` judges it by its number all the same.
    """
    report = stream.report if stream is not None else None
    if report is not None and report.get("subtype") == "error_max_turns":
        return
    if result["exit_code"] and not any(key in result for key in ("error", "signal", "timed_out")):
        told = next(
            (line for line in reversed((result["stderr"] or result["output"]).splitlines()) if line), ""
        )
        message = f"the agent ended with exit code {result['exit_code']}" + (
            f": {told[:500]}" if told else ""
        )
        result["error"] = {"kind": "failed-exit", "message": message}


def _no_option(program: Agent) -> str:
    named = " and ".join(f"`{name}`" for name in program.unknown_options)
    return f"`{program.argv[0]}` cannot be told {named}; write that into its arguments under `agents`"


# --- which program ----------------------------------------------------------------------------


def chosen(args: dict[str, Any], env: dict[bytes, bytes]) -> Agent:
    """The program that an effect means: by name, by its words, by the environment, or the default."""
    if args.get("agent"):
        return _named(str(args["agent"]))
    if args.get("argv"):
        words = tuple(args["argv"])
    else:
        try:
            words = configured(env)
        except ValueError as error:
            raise _Refused("failed-to-start", f"{VARIABLE} cannot be read: {error}") from None
    if len(words) == 1 and (entry := _entries().get(words[0])) is not None:
        return entry
    return Agent(words)


def configured(env: dict[bytes, bytes]) -> tuple[str, ...]:
    """The program and arguments that the environment names, else the default.

    ValueError where the variable has an open quote.
    """
    text = env.get(VARIABLE.encode(), b"").decode("utf-8", "surrogateescape")
    if not text.strip():
        return KNOWN[DEFAULT].argv
    import shlex

    return tuple(shlex.split(text)) or KNOWN[DEFAULT].argv


def _entries() -> dict[str, Agent]:
    """The agents of the project's configuration."""
    try:
        return configuration.load_usable(ROOT).agents
    except configuration.Unusable as error:
        raise _Refused("bad-configuration", str(error)) from None


def _named(name: str) -> Agent:
    entries = _entries()
    entry = entries.get(name)
    if entry is not None:
        return entry
    if name in KNOWN:
        return KNOWN[name]
    from ...ir.diagnostics import suggest

    help = suggest(name, [*KNOWN, *entries], "there are") or "there are none"
    message = f"no agent is called `{name}` under `agents` in .loops/config.yaml; {help}"
    raise _Refused("unknown-agent", message)


# --- what it says -----------------------------------------------------------------------------


def _listen(program: Agent, context: Context) -> tuple[Stream | None, Context]:
    """A context in which what the agent says is read as it comes, and shown as people want it."""
    if program.output in ("text", "json"):
        return None, context
    import copy

    show = context.on_output
    stream = Stream(None if show is None else lambda text: show("output", text))
    listening = copy.copy(context)

    def take(name: str, text: str) -> None:
        if name == "output":
            stream.feed(text)
        elif show is not None:
            show(name, text)

    listening.on_output = take
    return stream, listening


def _read(result: dict[str, Any], program: Agent, stream: Stream | None, context: Context) -> None:
    """Turn what a program wrote into what it reports, in place."""
    if stream is not None and stream.is_stream:
        _read_stream(result, stream, context)
    elif program.output == "json":
        _read_json(result, program)
    elif program.output == "stream-json":
        _lacks(result, "it wrote none of the events of stream-json")
    elif program.output == "auto" and (report := _report(result["output"])) is not None:
        _take_report(result, report, usage_of(report), context)


def _read_stream(result: dict[str, Any], stream: Stream, context: Context) -> None:
    raw = result["output"]
    if stream.session is not None:
        result["session"] = stream.session
    if stream.report is not None:
        _take_report(result, stream.report, stream.usage, context, stream.said, raw)
        return
    result["usage"] = stream.usage
    _put_output(result, stream.said, raw)
    why = "a line of it was too long to be read" if stream.skipped else "its output ends in the middle"
    _lacks(result, f"the agent ended without a result: {why}")


def _take_report(
    result: dict[str, Any],
    report: dict[str, Any],
    usage: dict[str, Any],
    context: Context,
    said: str = "",
    raw: str = "",
) -> None:
    result["usage"] = usage
    session = report.get("session_id")
    if isinstance(session, str) and session:
        result["session"] = session
    text = report.get("result")
    if isinstance(text, str):
        _put_output(result, text, raw)
    elif raw:
        _put_output(result, said, raw)
    # An agent that was stopped by its number of turns did some work; one that failed did not do its work.
    subtype = str(report.get("subtype") or "")
    if report.get("is_error") is True and subtype != "error_max_turns" and "timed_out" not in result:
        told = text if isinstance(text, str) and text.strip() else subtype or "it does not say why"
        _lacks(result, f"the agent failed: {' '.join(told.split())[:500]}", kind="agent-failed", always=True)
    elif "timed_out" not in result:
        _check_work(result, report)


def _check_work(result: dict[str, Any], report: dict[str, Any]) -> None:
    """An agent that took no turn, or was refused a tool, did not do its work, whatever its exit code."""
    refused = report.get("permission_denials")
    text = " ".join(str(report.get("result") or "").split())[:500]
    if report.get("num_turns") == 0 or text.startswith(_NOT_KNOWN):
        _lacks(result, f"the agent did no work: {text or 'it took no turn'}", kind="no-work", always=True)
    elif isinstance(refused, list) and refused:
        tools = ", ".join(dict.fromkeys(_denied(entry) for entry in refused[:20]))
        message = f"the agent was refused {tools}; allow it with `allowed_tools` or `permissions`"
        _lacks(result, message[:1000], kind="refused", always=True)


def _denied(entry: Any) -> str:
    """A refused tool as `allowed_tools` names it."""
    if not isinstance(entry, dict):
        return "a tool"
    name, given = str(entry.get("tool_name")), entry.get("tool_input")
    about = given.get("command") or given.get("file_path") if isinstance(given, dict) else None
    return f"{name}({' '.join(str(about).split())[:100]})" if about else name


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
    """The object of type "result" that an output is, if it is one."""
    if not output.lstrip().startswith("{"):
        return None
    import json

    try:
        report = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and report.get("type") == "result" else None


# --- reports of other agents ------------------------------------------------------------------


def _read_json(result: dict[str, Any], program: Agent) -> None:
    """A report of JSON: all of the output, else the last line of it that is an object."""
    import json

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
    found = {name: _at(report, program.path(name)) for name in FIELDS}
    if isinstance(found["session"], str):
        result["session"] = found["session"]
    counts = {name: found[name] for name in ("input_tokens", "output_tokens")}
    result["usage"] = usage_of({"total_cost_usd": found["usd"], "usage": counts})
    text = found["result"]
    if text is None and found["error"] in (None, False, ""):
        _lacks(result, f"its report has no `{program.path('result')}`")
    elif text is not None:
        _put_output(result, text if isinstance(text, str) else json.dumps(text, ensure_ascii=False), "")
    if found["error"] not in (None, False, "") and "timed_out" not in result:
        told = found["error"] if isinstance(found["error"], str) else json.dumps(found["error"])
        _lacks(result, f"the agent failed: {told[:500]}", kind="agent-failed", always=True)


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
