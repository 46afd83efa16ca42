"""The `context` effect: a search in the index of the project, ranked by a model if asked for."""

from __future__ import annotations

from typing import Any

from ..host.effect_context import Context
from ..memory import recall
from .performers import Parts


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    return recall.perform(args, context, lambda asked, asking: parts.perform_kind("evaluate", asked, asking))
