"""A shopping basket, with some defects for the loop to repair."""
import os
from typing import List, Optional
import decimal


def add(item: str, basket: List[str] = []) -> List[str]:
    """Add an item to a basket; to a new basket if none is given."""
    basket.append(item)
    return basket


def total(prices: List[str], discount: Optional[str] = None) -> decimal.Decimal:
    """The sum of the prices, minus a discount in percent."""
    amount = sum((decimal.Decimal(price) for price in prices), decimal.Decimal(0))
    if not discount is None:
        amount -= amount * decimal.Decimal(discount) / 100
    return amount


def label(count: int) -> str:
    """The label of the button that shows the basket."""
    if count == 0:
        return f"Your basket is empty"
    return "{} item{}".format(count, "" if count == 1 else "s")
