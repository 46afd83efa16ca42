"""Primitives over numbers: arithmetic and comparison.

Integers are exact and bounded (`bounds`), floats are IEEE doubles, and a boolean is not a number. The
operations follow R7RS, except for rationals: an inexact quotient of integers is a float.
"""

from __future__ import annotations

import math

from ..values import bounds
from ..values.faults import PrimitiveFault
from ..values.values import show
from .operands import number, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Value = Any
    Number = int | float


def _bounded(result: Number) -> Number:
    if type(result) is int:
        bounds.check_bits(result.bit_length())
    return result


def _mixed(left: Number, right: Number) -> PrimitiveFault:
    return PrimitiveFault("too-large", f"no float can hold {show(left if type(left) is int else right)}")


def _by_zero(left: Number) -> PrimitiveFault:
    return PrimitiveFault("division-by-zero", f"{show(left)} divided by zero")


# --- sums and products ------------------------------------------------------------------------


def add(*numbers: Value) -> Number:
    total: Number = 0
    for item in numbers:
        try:
            total += number(item)
        except OverflowError:
            raise _mixed(total, item) from None
    return total


def sub(first: Value, *others: Value) -> Number:
    if not others:
        return -number(first)
    difference = number(first)
    for item in others:
        try:
            difference -= number(item)
        except OverflowError:
            raise _mixed(difference, item) from None
    return difference


def mul(*numbers: Value) -> Number:
    product: Number = 1
    for item in numbers:
        if type(product) is int is type(item):
            # Checked in advance: computing an oversized product would already be the harm.
            bounds.check_bits(product.bit_length() + item.bit_length() - 1)
        try:
            product = _bounded(product * number(item))
        except OverflowError:
            raise _mixed(product, item) from None
    return product


def div(first: Value, *others: Value) -> Number:
    if not others:
        return _over(1, first)
    quotient = number(first)
    for item in others:
        quotient = _over(quotient, item)
    return quotient


def _over(left: Number, right: Value) -> Number:
    if number(right) == 0:
        raise _by_zero(left)
    if type(left) is int and type(right) is int and left % right == 0:
        return left // right
    try:
        return left / right  # type: ignore[no-any-return]
    except OverflowError:
        raise _mixed(left, right) from None


# --- whole division ---------------------------------------------------------------------------


def _wholly(left: Value, right: Value, divide: Callable[[int, int], int]) -> Number:
    """An integer division; the result is a float if an operand is one (R7RS)."""
    dividend, divisor = whole(number(left)), whole(number(right))
    if divisor == 0:
        raise _by_zero(left)
    result = divide(dividend, divisor)
    if type(left) is int is type(right):
        return result
    return _inexact(result)


def _quotient(left: int, right: int) -> int:
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def quotient(left: Value, right: Value) -> Number:
    return _wholly(left, right, _quotient)


def gcd(*numbers: Value) -> Number:
    result = math.gcd(*(whole(number(item)) for item in numbers))
    return _inexact(result) if float in map(type, numbers) else result


def lcm(*numbers: Value) -> Number:
    result = 1
    for item in numbers:
        other = whole(number(item))
        bounds.check_bits(result.bit_length() + other.bit_length() - 1)
        result = math.lcm(result, other)
    return _inexact(result) if float in map(type, numbers) else result


# --- other functions --------------------------------------------------------------------------


def minimum(first: Value, *others: Value) -> Number:
    smallest = number(first)
    for other in others:
        if number(other) < smallest:
            smallest = other
    return _contagious(smallest, first, others)


def maximum(first: Value, *others: Value) -> Number:
    largest = number(first)
    for other in others:
        if number(other) > largest:
            largest = other
    return _contagious(largest, first, others)


def _contagious(chosen: Number, first: Value, others: tuple[Value, ...]) -> Number:
    """Convert the result to a float if an operand is one (R7RS), provided that the conversion is exact."""
    if type(chosen) is int and (type(first) is float or float in map(type, others)):
        try:
            inexact_ = float(chosen)
        except OverflowError:
            return chosen
        return inexact_ if inexact_ == chosen else chosen
    return chosen


def _rounded(value: Value, how: Callable[[float], int]) -> Number:
    """Round to an integral number of the operand's own type; infinities and NaN are unchanged."""
    if type(number(value)) is int or not math.isfinite(value):
        return value  # type: ignore[no-any-return]
    # `copysign` preserves the sign of a negative number that rounds to zero.
    return math.copysign(float(how(value)), value)


def exact(value: Value) -> int:
    if type(number(value)) is float and not value.is_integer():
        raise PrimitiveFault(
            "type-error", f"no integer equals {show(value)}; `round`, `floor` or `truncate` it first"
        )
    return whole(value)


def inexact(value: Value) -> float:
    return _inexact(number(value))


def _inexact(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _mixed(value, value) from None


def expt(base: Value, exponent: Value) -> Number:
    number(base)
    number(exponent)
    if base == 0 and exponent < 0:
        raise PrimitiveFault("division-by-zero", f"zero to the power {show(exponent)}")
    if type(base) is int and type(exponent) is int:
        size = abs(base)
        if size > 1:
            bounds.check_bits((size.bit_length() - 1) * abs(exponent))
            power = base ** abs(exponent)
        else:
            power = (
                base if exponent % 2 else size
            )  # bases 0, 1 and -1 need no multiplication, however large the exponent
            power = 1 if exponent == 0 else power
        return _bounded(power) if exponent >= 0 else _over(1, power)
    try:
        return math.pow(base, exponent)
    except ValueError:
        raise PrimitiveFault(
            "no-real-number", f"{show(base)} to the power {show(exponent)} is no real number"
        ) from None
    except OverflowError:
        if type(base) is int or type(exponent) is int:
            _inexact(base)
            _inexact(exponent)
        is_odd = base < 0 and float(exponent) % 2 == 1
        return -math.inf if is_odd else math.inf


def sqrt(value: Value) -> Number:
    if number(value) < 0:
        raise PrimitiveFault("no-real-number", f"the square root of {show(value)} is no real number")
    if type(value) is int:
        root = math.isqrt(value)
        if root * root == value:
            return root
    try:
        return math.sqrt(value)
    except OverflowError:
        raise _mixed(value, value) from None


# --- order and kinds --------------------------------------------------------------------------


def _ascending(first: Value, others: tuple[Value, ...], holds: Callable[[Any, Any], bool]) -> bool:
    """Whether a relation holds between all neighbouring operands. All operands must be numbers."""
    result = True
    previous = number(first)
    for other in others:
        if not holds(previous, number(other)):
            result = False
        previous = other
    return result


def lt(first: Value, *others: Value) -> bool:
    if len(others) == 1:
        return number(first) < number(others[0])
    return _ascending(first, others, lambda a, b: a < b)


def le(first: Value, *others: Value) -> bool:
    if len(others) == 1:
        return number(first) <= number(others[0])
    return _ascending(first, others, lambda a, b: a <= b)


def gt(first: Value, *others: Value) -> bool:
    if len(others) == 1:
        return number(first) > number(others[0])
    return _ascending(first, others, lambda a, b: a > b)


def ge(first: Value, *others: Value) -> bool:
    if len(others) == 1:
        return number(first) >= number(others[0])
    return _ascending(first, others, lambda a, b: a >= b)


def is_odd(value: Value) -> bool:
    return whole(number(value)) % 2 == 1


HANDLERS: dict[str, Callable[..., Value]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "quotient": quotient,
    "remainder": lambda left, right: _wholly(left, right, lambda a, b: a - b * _quotient(a, b)),
    "modulo": lambda left, right: _wholly(left, right, lambda a, b: a % b),
    "gcd": gcd,
    "lcm": lcm,
    "abs": lambda value: abs(number(value)),
    "min": minimum,
    "max": maximum,
    "round": lambda value: _rounded(value, round),
    "floor": lambda value: _rounded(value, math.floor),
    "ceiling": lambda value: _rounded(value, math.ceil),
    "truncate": lambda value: _rounded(value, math.trunc),
    "exact": exact,
    "inexact": inexact,
    "expt": expt,
    "sqrt": sqrt,
    "num_eq": lambda first, *others: _ascending(first, others, lambda a, b: a == b),
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
    "is_zero": lambda value: number(value) == 0,
    "is_positive": lambda value: number(value) > 0,
    "is_negative": lambda value: number(value) < 0,
    "is_even": lambda value: whole(number(value)) % 2 == 0,
    "is_odd": is_odd,
    "is_number": lambda value: type(value) is int or type(value) is float,
    "is_integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "is_float": lambda value: type(value) is float,
}
