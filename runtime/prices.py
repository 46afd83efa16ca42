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

# Of the price of input: what reading it from a cache costs, and what writing it there does.
CACHE_READ = 0.1
CACHE_WRITE = 1.25


def load_prices() -> dict[str, Price]:
    """Model name → USD per million tokens of input and of output."""
    path = os.path.join(os.path.dirname(__file__), os.pardir, "stdlib", "prices.json")
    with open(path, encoding="utf-8") as file:
        models = json.load(file)["models"]
    return {name: (price[0], price[1]) for name, price in models.items()}


class Prices:
    """The known prices, read when first asked for."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Price] | None = None

    def of(self, model: str) -> Price | None:
        if self._known is None:
            self._known = load_prices()
        # `claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` does.
        name, _, date = model.rpartition("-")
        return self._known.get(model) or (self._known.get(name) if len(date) == 8 else None)


def cost(price: Price | None, usage: Mapping[str, Any]) -> float | None:
    """USD for a usage, in which input counts what was read from a cache and written there; None unknown."""
    if price is None:
        return None
    cache_read, cache_write = usage.get("cache_read_tokens", 0), usage.get("cache_write_tokens", 0)
    plain = usage["input_tokens"] - cache_read - cache_write
    weighed = plain + cache_read * CACHE_READ + cache_write * CACHE_WRITE
    cost: float = round((weighed * price[0] + usage["output_tokens"] * price[1]) / 1_000_000, 9)
    return cost
