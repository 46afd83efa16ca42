"""Slash commands: handed to an agent program as its last argument (`loops.md` 10).

Owns which program that is and how its report of tokens and money is read. Claude's
`--output-format json` prints one object of type "result"; any other output is taken as it is.
"""

from __future__ import annotations

import os

from .process import NotStarted, failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .process import Runner
    from .world import Context

DEFAULT_ARGV = ("claude", "--dangerously-skip-permissions", "-p")
VARIABLE = "LLC_AGENT"
_HELP = f"name the agent program in the loop's `agent:` or in {VARIABLE}"
_INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def perform(args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """The `agent` effect: the result of `args["command"]`, with `usage` where it was reported."""
    try:
        argv = list(args.get("argv") or configured(runner.env))
    except ValueError as error:
        return failure(context, 126, kind="failed-to-start", message=f"{VARIABLE} cannot be read: {error}")
    program = argv[0]
    path = runner.find(program)
    if path is None:
        if "/" in program and os.path.exists(program):
            return failure(
                context, 126, kind="not-executable", message=f"`{program}` is not an executable file; {_HELP}"
            )
        where = "does not exist" if "/" in program else "is not on PATH"
        return failure(context, 127, kind="not-found", message=f"`{program}` {where}; {_HELP}")
    try:
        result = runner.run(path, [*argv, args["command"]], args, context)
    except NotStarted as error:
        return error.result(context)
    report = _report(result)
    if report is not None:
        usage = _usage(report)
        if usage:
            result["usage"] = usage
        if isinstance(report.get("result"), str):
            result["output"] = report["result"]
    return result


def configured(env: dict[bytes, bytes]) -> tuple[str, ...]:
    """The program and arguments that the environment names, else the default.

    ValueError where the variable has an open quote.
    """
    text = env.get(VARIABLE.encode(), b"").decode("utf-8", "surrogateescape")
    if not text.strip():
        return DEFAULT_ARGV
    import shlex

    return tuple(shlex.split(text)) or DEFAULT_ARGV


def _report(result: dict[str, Any]) -> dict[str, Any] | None:
    """The object of type "result" that an output is, if it is one."""
    output = result["output"]
    if not output.lstrip().startswith("{"):
        return None
    import json

    try:
        report = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and report.get("type") == "result" else None


def _usage(report: dict[str, Any]) -> dict[str, Any]:
    """{usd, input_tokens, output_tokens, tokens} of a report; {} where it tells nothing.

    Cached input counts as input: it was read, and it is part of what was paid for.
    """
    counts = report.get("usage")
    usd = _amount(report.get("total_cost_usd"))
    if not isinstance(counts, dict):
        return {} if usd is None else {"usd": usd, "input_tokens": 0, "output_tokens": 0, "tokens": 0}
    read = sum(int(_amount(counts.get(name)) or 0) for name in _INPUT_COUNTS)
    written = int(_amount(counts.get("output_tokens")) or 0)
    return {"usd": usd, "input_tokens": read, "output_tokens": written, "tokens": read + written}


def _amount(value: Any) -> float | int | None:
    """A finite number that is not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 1e15 else None
