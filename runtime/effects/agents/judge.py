"""Verdicts by the agent itself, for users who have a login of an agent but no key of a model's API.

The agent gets the question, the output and the schema of the answer, and may only read.
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

# A mode in which an agent changes nothing.
_READING = "permissions: plan"
# Arguments of an `evaluate` effect that its agent gets too.
_PASSED = ("agent", "argv", "protocol", "deadline_ms")


def can_judge(args: dict[str, Any], runner: Runner) -> bool:
    """Whether the agent of an `evaluate` effect answers with data of a schema and is installed."""
    try:
        agent = chosen(args, runner.env)
    except Exception:  # whatever is wrong with its name, the model is asked instead
        return False
    return "schema" in agents.capabilities_of(agent) and runner.find(agent.argv[0]) is not None


def judge(args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """The result of an `evaluate` effect, as the agent says it."""
    started = clock.monotonic()
    schema = json.dumps(args["schema"], ensure_ascii=False)
    handle, schema_file = files.mkstemp(prefix="llc-schema-", suffix=".json")
    try:
        with files.open(handle, "w", encoding="utf-8") as file:
            file.write(schema)
        result = _ask(args, {"schema": schema, "schema_file": schema_file}, context, runner)
    finally:
        files.unlink(schema_file)
    result["duration_ms"] = round((clock.monotonic() - started) * 1000)
    result["elapsed_ms"] = context.elapsed_ms()
    return result


def _ask(args: dict[str, Any], schema: dict[str, str], context: Context, runner: Runner) -> dict[str, Any]:
    """What the agent answers: `reply` or `error`, with `usage`."""
    asked = {
        **schema,
        "command": question(args),
        "timeout_s": args.get("timeout_s") or DEFAULT_TIMEOUT,
        **{name: args[name] for name in _PASSED if args.get(name) is not None},
    }
    if _READING in agents.capabilities_of(chosen(args, runner.env)):
        asked["permissions"] = "plan"
    quiet = copy.copy(context)
    quiet.on_output = None
    on_agent = context.on_agent
    # Only that it waits is shown of a judge.
    quiet.on_agent = lambda said: on_agent(said) if on_agent and said.kind.startswith("quota-") else None
    said = run_agent(asked, quiet, runner)
    result: dict[str, Any] = {name: said[name] for name in ("usage", "timed_out") if name in said}
    error = said.get("error")
    if error is not None:
        result["error"] = {"kind": error["kind"], "message": f"the agent cannot judge: {error['message']}"}
    elif "timed_out" not in result:
        # Some agents answer with the data as their text.
        is_data = said.get("structured") is not None
        reply = {"data": said["structured"]} if is_data else {"text": said["output"]}
        read = structured_output.read({**reply, "stop": "end"}, args["schema"], "")
        if "problem" not in read:
            result["reply"] = read["value"]
        elif is_data:
            result["error"] = {"kind": "invalid-reply", "message": read["problem"]}
        else:
            result |= cannot_judge(args["schema"], "the agent answered without a verdict")
    return result
