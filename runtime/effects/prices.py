"""What tokens cost: `stdlib/prices.json`, which has its date, and what a project says of its own models."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# USD per million tokens of input and of output.
Price = tuple[float, float]


def load_prices() -> dict[str, Any]:
    """The file: `models`, name → price; `cache`: what to `read` and to `write` costs, in prices of input."""
    path = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, "stdlib", "prices.json")
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


class Prices:
    """The known prices, read when first asked for."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Any] | None = None

    def cost(self, model: str, usage: Mapping[str, Any], price: Price | None = None) -> float | None:
        """USD for what a model used, at its known price or at that one; None where none is known.

        Of the input, `cache_read_tokens` came from a cache and `cache_write_tokens` went there.
        """
        if self._known is None:
            self._known = load_prices()
        models, cache = self._known["models"], self._known["cache"]
        # `claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` does.
        name, _, date = model.rpartition("-")
        known = price or models.get(model) or (models.get(name) if len(date) == 8 else None)
        if known is None:
            return None
        came, went = usage.get("cache_read_tokens", 0), usage.get("cache_write_tokens", 0)
        read = usage["input_tokens"] - came - went + came * cache["read"] + went * cache["write"]
        cost: float = round((read * known[0] + usage["output_tokens"] * known[1]) / 1_000_000, 9)
        return cost
