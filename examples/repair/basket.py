"""A shopping basket, with the sort of mistakes that a Friday afternoon leaves behind."""
import os
from typing import List, Optional
import decimal


def add(item: str, basket: List[str] = []) -> List[str]:
    """Put an item in a basket, a new one unless one is given."""
    basket.append(item)
    return basket


def total(prices: List[str], discount: Optional[str] = None) -> decimal.Decimal:
    """The sum of some prices, less a discount in per cent."""
    amount = sum((decimal.Decimal(price) for price in prices), decimal.Decimal(0))
    if not discount is None:
        amount -= amount * decimal.Decimal(discount) / 100
    return amount


def label(count: int) -> str:
    """What the button of the basket says."""
    if count == 0:
        return f"Your basket is empty"
    return "{} item{}".format(count, "" if count == 1 else "s")
