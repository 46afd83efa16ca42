"""Performer of the `evaluate` effect: calls a model, or the agent itself if there is no key for the model."""

from __future__ import annotations

from typing import Any

from ...ir.effects import cannot_judge
from ..host.effect_context import Context
from ..models.judge import judge_of
from .performers import Parts
from .shell import shell_of


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Perform an `evaluate` effect. Without `judge`, the agent judges if there is no key for the model."""
    evidence = args.get("evidence")
    if (
        evidence is not None
        and evidence.get("step") is None
        and not (args["output"] or evidence.get("checked"))
    ):
        reason = f"there is no evidence of what the agent did: {evidence.get('missing')}, and no check ran"
        result = cannot_judge(args["schema"], reason, "no-evidence")
        return {**result, "duration_ms": 0, "elapsed_ms": context.elapsed_ms()}
    judge = args.get("judge")
    if judge == "agent" or (judge is None and not judge_of(parts).has_key(args["model"])):
        from .agents import judge as agent_judge  # already imported by the `agent` effect that is judged

        runner = shell_of(parts).runner
        if judge == "agent" or agent_judge.can_judge(args, runner):
            return agent_judge.judge(args, context, runner)
    return judge_of(parts).perform(args, context)
