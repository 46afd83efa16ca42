"""Token prices: `stdlib/prices.json`, which states its dates, and the prices of a project's own models."""

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
# Default prices of cached tokens, as multiples of the input price.
CACHE_READ, CACHE_WRITE = 0.1, 1.25
_DATE = r"-(\d{8}|\d{4}-\d\d-\d\d)$"


def load_prices() -> dict[str, Any]:
    """Rows of the file by model name: `input`, `output`, `cache_read`, `cache_write`, maybe `long`."""
    providers: dict[str, Any] = loads(read_text("prices.json"))
    del providers["unit"]
    return {
        name: {"cache_read": provider["cache_read"], "cache_write": provider["cache_write"], **row}
        for provider in providers.values()
        for name, row in provider["models"].items()
    }


def _own_price(model: str, entries: Mapping[str, Any]) -> Price | None:
    entry = entries.get(model)
    price: Price | None = None if entry is None else entry.price
    return price


class Prices:
    """Price table; the file is read on first use."""

    def __init__(self) -> None:
        self._rows: dict[str, Any] | None = None

    def row(self, model: str, price: Price | None = None) -> dict[str, Any] | None:
        """The price row of a model. price: overrides the file. Returns None for an unknown model."""
        if price is not None:
            return {
                "input": price[0],
                "output": price[1],
                "cache_read": CACHE_READ,
                "cache_write": CACHE_WRITE,
            }
        if self._rows is None:
            self._rows = load_prices()
        # `claude-haiku-4-5-20251001` has the price of `claude-haiku-4-5`.
        row: dict[str, Any] | None = self._rows.get(model) or self._rows.get(re.sub(_DATE, "", model))
        return row

    def is_known(self, model: Any, entries: Mapping[str, Any]) -> bool:
        """Whether an agent's `model` has a price, in the project's `models` (`entries`) or in the file."""
        return isinstance(model, str) and self.row(model, _own_price(model, entries)) is not None

    def of_agent(self, model: Any, usage: Mapping[str, Any], entries: Mapping[str, Any]) -> float | None:
        """Upper bound in USD for an agent's usage of the loop's `model`; None if the price is unknown.

        Cached tokens are part of the input tokens and are charged at the full input price.
        """
        if not isinstance(model, str) or usage.get("input_tokens") is None:
            return None
        return self.cost(model, usage, _own_price(model, entries))

    def cost(self, model: str, usage: Mapping[str, Any], price: Price | None = None) -> float | None:
        """Cost of one model call in USD; None if the price is unknown. price: overrides the file.

        `usage` has `input_tokens` and `output_tokens`; the input includes `cache_read_tokens` and
        `cache_write_tokens`, which have their own prices.
        """
        row = self.row(model, price)
        if row is None:
            return None
        total = usage["input_tokens"]
        if "long" in row and total > row["long"]["above"]:
            row = {**row, **row["long"]}
        cached, written = usage.get("cache_read_tokens", 0), usage.get("cache_write_tokens", 0)
        weighted = total - cached - written + cached * row["cache_read"] + written * row["cache_write"]
        cost: float = round((weighted * row["input"] + usage["output_tokens"] * row["output"]) / 1_000_000, 9)
        return cost
