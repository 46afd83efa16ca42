"""Constant folding of operations on literals whose result does not depend on when they are evaluated.

Folds only operations that cannot fault and whose results are small.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from ...ir.nodes import Const, Expr, Prim
from ...ir.spans import Span

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}
_ORDER: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "num_eq": operator.eq,
}
_KINDS: dict[str, tuple[type, ...]] = {
    "is_number": (int, float),
    "is_string": (str,),
    "is_boolean": (bool,),
    "is_null": (type(None),),
}
# Larger integers are computed at run time.
_LARGEST = 1 << 63


def fold(op: str, operands: Sequence[Expr], span: Span | None) -> Expr:
    """The application of a primitive to operands, or its value as a literal."""
    expr = Prim(op, tuple(operands), span=span)
    values = [operand.value for operand in operands if isinstance(operand, Const)]
    if len(values) != len(operands):
        return expr
    if op == "not" and len(values) == 1:
        return Const(not values[0], span=span)
    if op in _KINDS and len(values) == 1:
        return Const(type(values[0]) in _KINDS[op], span=span)
    if len(values) < 2 or not all(type(value) is int for value in values):
        return expr
    folded: Any = None
    if op in _ARITHMETIC:
        folded = reduce(_ARITHMETIC[op], values)
        if not -_LARGEST < folded < _LARGEST:
            return expr
    elif op in _ORDER and len(values) == 2:
        folded = _ORDER[op](*values)
    return expr if folded is None else Const(folded, span=span)
