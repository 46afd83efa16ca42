"""Performer of the `context` effect: a search in the index of the project, optionally ranked by a model."""

from __future__ import annotations

from typing import Any

from ..host.effect_context import Context
from ..memory import recall
from .performers import Parts


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    def rank(rank_args: dict[str, Any], rank_context: Context) -> dict[str, Any]:
        return parts.perform_kind("evaluate", rank_args, rank_context)

    return recall.perform(args, context, rank)
