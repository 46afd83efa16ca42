"""What tokens cost: `stdlib/prices.json`, which has its dates, and what a project says of its own models."""

from __future__ import annotations

import re

from ...ir.light_json import loads
from ...stdlib import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# USD per million tokens of input and of output.
Price = tuple[float, float]
# Default prices of a cache, as multiples of the input price.
CACHE_READ, CACHE_WRITE = 0.1, 1.25
_DATE = r"-(\d{8}|\d{4}-\d\d-\d\d)$"


def load_prices() -> dict[str, Any]:
    """The rows of the file by the model's name: `input`, `output`, `cache_read`, `cache_write`, `long`?"""
    told: dict[str, Any] = loads(read_text("prices.json"))
    del told["unit"]
    return {
        name: {"cache_read": provider["cache_read"], "cache_write": provider["cache_write"], **row}
        for provider in told.values()
        for name, row in provider["models"].items()
    }


def _own_price(model: str, entries: Mapping[str, Any]) -> Price | None:
    entry = entries.get(model)
    price: Price | None = None if entry is None else entry.price
    return price


class Prices:
    """The known prices, read when first asked for."""

    def __init__(self) -> None:
        self._known: dict[str, Any] | None = None

    def row(self, model: str, price: Price | None = None) -> dict[str, Any] | None:
        """The price of a model: the given one, else the known one, else None."""
        if price is not None:
            return {
                "input": price[0],
                "output": price[1],
                "cache_read": CACHE_READ,
                "cache_write": CACHE_WRITE,
            }
        if self._known is None:
            self._known = load_prices()
        # `claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` does.
        found: dict[str, Any] | None = self._known.get(model) or self._known.get(re.sub(_DATE, "", model))
        return found

    def is_known(self, model: Any, entries: Mapping[str, Any]) -> bool:
        """Whether an agent's `model` has a price, among the project's `models` or in the file."""
        return isinstance(model, str) and self.row(model, _own_price(model, entries)) is not None

    def of_agent(self, model: Any, usage: Mapping[str, Any], entries: Mapping[str, Any]) -> float | None:
        """USD at most for what an agent used of a model that the loop names; None where no price is known.

        Tokens from its cache are in the input, and count like others.
        """
        if not isinstance(model, str) or usage.get("input_tokens") is None:
            return None
        return self.cost(model, usage, _own_price(model, entries))

    def cost(self, model: str, usage: Mapping[str, Any], price: Price | None = None) -> float | None:
        """USD for what one call to a model used, at its known price or at that one; None where none is known.

        Of the input, `cache_read_tokens` came from a cache and `cache_write_tokens` went there.
        """
        row = self.row(model, price)
        if row is None:
            return None
        read = usage["input_tokens"]
        if "long" in row and read > row["long"]["above"]:
            row = {**row, **row["long"]}
        came, went = usage.get("cache_read_tokens", 0), usage.get("cache_write_tokens", 0)
        paid = read - came - went + came * row["cache_read"] + went * row["cache_write"]
        cost: float = round((paid * row["input"] + usage["output_tokens"] * row["output"]) / 1_000_000, 9)
        return cost
