"""Performers that need no process and no connection: `sleep`, `clock`, `env`, `pause`, `exit`."""

from __future__ import annotations

from ...ir.compile_options import RUN_FOLDER, RUN_FOLDERS
from ..host import clock, files
from ..host.effect_context import Context, environment_text, leave, pause, sleep_time, slept
from .performers import Parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def perform_sleep(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    seconds, is_shortened = sleep_time(args, context)
    context.interrupt.wait(seconds, context.on_tick)
    return slept(context, is_shortened)


def perform_clock(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    return {"time": clock.timestamp(clock.time()), "elapsed_ms": context.elapsed_ms()}


def perform_env(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    values = {name: environment_text(name) for name in args["names"]}
    if RUN_FOLDER in values:
        values[RUN_FOLDER] = folder = f"{RUN_FOLDERS}/{context.run_id}/"
        files.makedirs(folder, exist_ok=True)
    return {"values": values}


def perform_link(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Return the name of the loop, which the driver has linked before; an error if it could not link it."""
    if args["name"] in args["linked"]:
        return {"name": args["name"]}
    message = f"loop `{args['name'][:200]}` is not part of the program, and only a recorded run can add it"
    return {"error": {"kind": "unknown-loop", "message": message}}


def perform_pause(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    return pause(context)


def perform_exit(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    leave(args)
