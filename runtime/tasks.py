"""The `task` effect in the real world.

A task is done by a model. No model runner is configured for tasks, so the answer says so.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .world import Context


def perform(args: dict[str, Any], context: Context) -> dict[str, Any]:
    """{"result": a FAILED TaskResult}: there is nothing here that does tasks."""
    result = failed(
        "subtask_failure",
        f"`{args['name']}` cannot be done: a task needs a model runner, and there is none",
        {"task": args["name"]},
    )
    return {"result": result, "duration_ms": 0, "elapsed_ms": context.elapsed_ms()}


def failed(reason: str, message: str, details: dict[str, Any]) -> dict[str, Any]:
    """A FAILED TaskResult as plain data."""
    from ..ir.results import TaskError, TaskResult, unstructure

    error = unstructure(TaskError("TASK_FAILURE", reason, message, details))
    return unstructure(TaskResult("FAILED", message, notes={"error": error}))
