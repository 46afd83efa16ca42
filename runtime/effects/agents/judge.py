"""Verdicts by the agent, for users with a login of an agent but without an API key.

The agent receives the question, the output and the schema of the answer, and may only read.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from ....ir.effects import cannot_judge
from ...host import clock, files
from ...host.effect_context import Context
from ...models import structured_output
from ...models.judge import DEFAULT_TIMEOUT, question
from ...project import agents
from ..process import Runner
from .agent import chosen, run_agent

# Capability of a permission mode without changes.
_READ_ONLY = "permissions: plan"
# Arguments of an `evaluate` effect that are passed to the agent.
_PASSED_ARGS = ("agent", "argv", "protocol", "deadline_ms")


def can_judge(args: dict[str, Any], runner: Runner) -> bool:
    """Whether the agent of an `evaluate` effect is installed and can answer with data of a schema."""
    try:
        agent = chosen(args, runner.env)
    except Exception:  # for any error in the agent's name, the model judges instead
        return False
    return "schema" in agents.capabilities_of(agent) and runner.find(agent.argv[0]) is not None


def judge(args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """Let the agent judge; return the result of the `evaluate` effect."""
    started_at = clock.monotonic()
    schema = json.dumps(args["schema"], ensure_ascii=False)
    handle, schema_file = files.mkstemp(prefix="llc-schema-", suffix=".json")
    try:
        with files.open(handle, "w", encoding="utf-8") as file:
            file.write(schema)
        result = _ask(args, {"schema": schema, "schema_file": schema_file}, context, runner)
    finally:
        files.unlink(schema_file)
    result["duration_ms"] = round((clock.monotonic() - started_at) * 1000)
    result["elapsed_ms"] = context.elapsed_ms()
    return result


def _ask(args: dict[str, Any], schema: dict[str, str], context: Context, runner: Runner) -> dict[str, Any]:
    """The agent's answer: `reply` or `error`, with `usage`."""
    agent_args = {
        **schema,
        "command": question(args),
        "timeout_s": args.get("timeout_s") or DEFAULT_TIMEOUT,
        **{name: args[name] for name in _PASSED_ARGS if args.get(name) is not None},
    }
    if _READ_ONLY in agents.capabilities_of(chosen(args, runner.env)):
        agent_args["permissions"] = "plan"
    quiet = copy.copy(context)
    quiet.on_output = None
    on_agent = context.on_agent
    # Of a judge's activities, only quota waits are shown.
    quiet.on_agent = lambda activity: (
        on_agent(activity) if on_agent and activity.kind.startswith("quota-") else None
    )
    answer = run_agent(agent_args, quiet, runner)
    result: dict[str, Any] = {name: answer[name] for name in ("usage", "timed_out") if name in answer}
    error = answer.get("error")
    if error is not None:
        result["error"] = {"kind": error["kind"], "message": f"the agent cannot judge: {error['message']}"}
    elif "timed_out" not in result:
        # Some agents answer with the data as text.
        is_data = answer.get("structured") is not None
        reply = {"data": answer["structured"]} if is_data else {"text": answer["output"]}
        parsed = structured_output.read({**reply, "stop": "end"}, args["schema"], "")
        if "problem" not in parsed:
            result["reply"] = parsed["value"]
        elif is_data:
            result["error"] = {"kind": "invalid-reply", "message": parsed["problem"]}
        else:
            result |= cannot_judge(args["schema"], "the agent answered without a verdict")
    return result
