"""The `evaluate` effect: its world's model client, made on first use."""

from __future__ import annotations

from ..host.effect_context import Context
from ..models.judge import Judge
from .parts import Parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    return judge_of(parts).perform(args, context)


def judge_of(parts: Parts) -> Judge:
    return parts.keep("judge", lambda: Judge(parts.workers))
