"""The code of the pure primitives, one function for each row of `ir.primitives`.

Import fails where a row and its code do not pair up. A primitive takes values and gives a value; it
touches nothing else, changes no operand and raises `PrimitiveFault` for the program's errors. Nothing
here recurses over a value, and nothing grows beyond the bounds below.

`markdown()` prints `spec/primitives.md`.
"""

from __future__ import annotations

from ..ir.primitives import PRIMITIVES
from . import judges, quoting
from .faults import PrimitiveFault
from .values import Box, FunctionValue, equal, show, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Value = Any

# The longest text a primitive makes, in characters, and the largest integer, in bits. A program that
# doubles something in a loop faults here before it fills the machine's memory.
MAX_TEXT = 1 << 27
MAX_BITS = 1 << 17
# The longest duration that is shown, in milliseconds.
MAX_DURATION = 1 << 60


def _expected(what: str, value: Value) -> PrimitiveFault:
    return PrimitiveFault("type-error", f"expected {what}, not {show(value)} ({type_name(value)})")


def _number(value: Value) -> int | float:
    if type(value) is int or type(value) is float:
        return value  # type: ignore[no-any-return]
    raise _expected("a number", value)


def _string(value: Value) -> str:
    if type(value) is str:
        return value
    raise _expected("a string", value)


# --- values -----------------------------------------------------------------------------------


def make_list(*items: Value) -> Value:
    return items


def make_map(*entries: Value) -> Value:
    keys = entries[::2]
    if len(entries) % 2:
        raise PrimitiveFault("type-error", f"a map is made of pairs, not of {len(entries)} operands")
    for key in keys:
        if type(key) is not str:
            raise _expected("a string as key", key)
    return dict(zip(keys, entries[1::2], strict=True))


def _map_or_null(value: Value) -> dict[str, Value]:
    if value is None:
        return {}
    if type(value) is dict:
        return value
    raise _expected("a map", value)


def get(map: Value, key: Value) -> Value:
    return _map_or_null(map).get(_string(key))


def put(map: Value, key: Value, value: Value) -> Value:
    return {**_map_or_null(map), _string(key): value}


def without_nulls(map: Value) -> Value:
    return {key: value for key, value in _map_or_null(map).items() if value is not None}


def is_null(value: Value) -> bool:
    return value is None


def select(condition: Value, then: Value, otherwise: Value) -> Value:
    return then if condition else otherwise


def negate(value: Value) -> bool:
    return not value


def conjunction(*values: Value) -> Value:
    last = True
    for last in values:
        if not last:
            break
    return last


def disjunction(*values: Value) -> Value:
    last = False
    for last in values:
        if last:
            break
    return last


def unbox(box: Value) -> Value:
    if type(box) is not Box:
        raise _expected("a box", box)
    return box.value


def unset_box() -> Value:
    # No value of a program is a box that stands in itself.
    box = Box()
    box.value = box
    return box


def unbox_set(box: Value, variable: Value) -> Value:
    value = unbox(box)
    if value is box:
        raise PrimitiveFault("uninitialised", f"`{_string(variable)}` is used before it has its value")
    return value


# --- functions --------------------------------------------------------------------------------


def applied(function: Value, items: Value) -> Value:
    if type(function) is not FunctionValue:
        raise PrimitiveFault("not-a-function", f"cannot call {show(function)}: it is no function")
    return FunctionValue(function.function, (*_operands(items), *function.captures))


def operate(name: Value, items: Value) -> Value:
    signature = PRIMITIVES.get(_string(name))
    if signature is None or name == "operate":  # on itself it could recurse without end
        raise PrimitiveFault("type-error", f"there is no primitive {show(name)}")
    operands = _operands(items)
    if len(operands) < signature.least or (signature.most is not None and len(operands) > signature.most):
        raise PrimitiveFault("arity", f"`{name}` takes `{signature.operands}`, not {len(operands)} operands")
    return HANDLERS[name](*operands)


def _operands(items: Value) -> tuple[Value, ...]:
    if type(items) is tuple:
        return items
    raise _expected("a list", items)


# --- numbers and order ------------------------------------------------------------------------


def _bounded(number: int | float) -> int | float:
    if type(number) is int and number.bit_length() > MAX_BITS:
        raise PrimitiveFault("too-large", f"an integer of more than {MAX_BITS} bits")
    return number


def _mixed(left: int | float, right: int | float) -> PrimitiveFault:
    return PrimitiveFault("too-large", f"no float can hold {show(left if type(left) is int else right)}")


def add(*numbers: Value) -> Value:
    total: int | float = 0
    for number in numbers:
        try:
            total = _bounded(total + _number(number))
        except OverflowError:
            raise _mixed(total, number) from None
    return total


def sub(left: Value, right: Value) -> Value:
    try:
        return _bounded(_number(left) - _number(right))
    except OverflowError:
        raise _mixed(left, right) from None


def mul(*numbers: Value) -> Value:
    product: int | float = 1
    for number in numbers:
        if type(product) is int is type(number) and product.bit_length() + number.bit_length() > MAX_BITS + 1:
            raise PrimitiveFault("too-large", f"an integer of more than {MAX_BITS} bits")
        try:
            product = _bounded(product * _number(number))
        except OverflowError:
            raise _mixed(product, number) from None
    return product


def div(left: Value, right: Value) -> Value:
    _number(left)
    if _number(right) == 0:
        raise PrimitiveFault("division-by-zero", f"{show(left)} divided by zero")
    if type(left) is int and type(right) is int and left % right == 0:
        return left // right
    try:
        return left / right
    except OverflowError:
        raise _mixed(left, right) from None


def minimum(left: Value, right: Value) -> Value:
    return right if _number(right) < _number(left) else left


def maximum(left: Value, right: Value) -> Value:
    return right if _number(right) > _number(left) else left


def lt(left: Value, right: Value) -> bool:
    return _number(left) < _number(right)


def le(left: Value, right: Value) -> bool:
    return _number(left) <= _number(right)


def gt(left: Value, right: Value) -> bool:
    return _number(left) > _number(right)


def ge(left: Value, right: Value) -> bool:
    return _number(left) >= _number(right)


# --- text -------------------------------------------------------------------------------------


def _too_long() -> PrimitiveFault:
    return PrimitiveFault("too-large", f"a text of more than {MAX_TEXT} characters")


def concat(*values: Value) -> str:
    parts = [value if type(value) is str else text(value) for value in values]
    if sum(map(len, parts)) > MAX_TEXT:
        raise _too_long()
    return "".join(parts)


def text(value: Value) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    if type(value) is tuple or type(value) is dict:
        return _json(value)
    return _scalar(value)


def _scalar(value: Value) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return _digits(value)
    if type(value) is float:
        from json import dumps

        return dumps(value)
    if value is None:
        return "null"
    if type(value) is str:
        from json import dumps

        return dumps(value, ensure_ascii=False)
    raise PrimitiveFault("type-error", f"a {type_name(value)} has no text")


def _digits(number: int) -> str:
    """The decimal digits of an integer, also where Python's own limit refuses them."""
    if number.bit_length() < 10_000:
        return str(number)
    sign, number = ("-", -number) if number < 0 else ("", number)
    chunks = []
    base = 10**1000
    while number:
        number, chunk = divmod(number, base)
        chunks.append(str(chunk).rjust(1000, "0"))
    return sign + "".join(reversed(chunks)).lstrip("0")


def _json(value: Value) -> str:
    """A list or map as JSON, written from a work list (last first); texts in it stand for themselves."""
    parts: list[str] = []
    size = 0
    todo: list[tuple[bool, Value]] = [(False, value)]
    while todo:
        is_text, item = todo.pop()
        kind = type(item)
        if is_text or (kind is not tuple and kind is not dict):
            part = item if is_text else _scalar(item)
            parts.append(part)
            size += len(part)
            if size > MAX_TEXT:
                raise _too_long()
            continue
        opening, closing = ("[", "]") if kind is tuple else ("{", "}")
        ahead: list[tuple[bool, Value]] = [(True, opening)]
        for entry in item:
            if len(ahead) > 1:
                ahead.append((True, ", "))
            if kind is tuple:
                ahead.append((False, entry))
            else:
                ahead += [(True, _scalar(entry) + ": "), (False, item[entry])]
        ahead.append((True, closing))
        todo += reversed(ahead)
    return "".join(parts)


def trim_newline(value: Value) -> Value:
    """Values that are no strings stay as they are: what was never captured, an exit code."""
    return value.removesuffix("\n") if type(value) is str else value


def tail(value: Value, count: Value) -> str:
    length = _number(count)
    whole = text(value)
    if length >= len(whole):
        return whole
    return whole[-int(length) :] if length >= 1 else ""


def duration(milliseconds: Value) -> str:
    """As the progress display writes it: `0.3s`, `12s`, `2m 34s`, `1h 2m`."""
    if not -MAX_DURATION < _number(milliseconds) < MAX_DURATION:
        raise PrimitiveFault("too-large", f"{show(milliseconds)} ms is no duration")
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.1f}s"
    seconds = int(milliseconds // 1000)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60}s"
    return f"{seconds // 3600}h {seconds % 3600 // 60}m"


def shell_word(value: Value) -> str:
    return quoting.shell_word(text(value))


def shell_single(value: Value) -> str:
    return quoting.shell_single(text(value))


def shell_double(value: Value) -> str:
    return quoting.shell_double(text(value))


def shell_heredoc(value: Value) -> str:
    return quoting.shell_heredoc(text(value))


def shell_number(value: Value) -> str:
    digits = text(value) if type(value) is int or type(value) is str else ""
    if not (digits.isascii() and digits.removeprefix("-").isdecimal()):
        message = f"only a whole number can stand here in a shell action, not {show(value)}"
        raise PrimitiveFault("not-a-number", message)
    return digits


# --- variables --------------------------------------------------------------------------------


class _Undefined(Exception):
    """Why a path leads nowhere."""


def _walk(value: Value, path: Value) -> Value:
    if type(path) is not tuple:
        raise _expected("a list of keys", path)
    for depth, key in enumerate(path):
        if type(key) is not str and type(key) is not int:
            raise _expected("a name or an index", key)
        if type(value) is dict:
            if type(key) is not str or key not in value:
                fields = ", ".join(f"`{show_key(name)}`" for name in list(value)[:12])
                raise _Undefined(
                    f"there is no `{show_key(key)}`" + (f"; there is {fields}" if fields else "")
                )
            value = value[key]
        elif type(value) is tuple:
            index = int(key) if type(key) is str and key.isdecimal() and len(key) < 10 else key
            if type(index) is not int or not 0 <= index < len(value):
                raise _Undefined(f"`{show_key(key)}` is no index into a list of {len(value)}")
            value = value[index]
        elif value is None and depth == 0:
            raise _Undefined("nothing has set it yet")
        else:
            raise _Undefined(f"a {type_name(value)} has no `{show_key(key)}`")
    return value


def show_key(key: Value) -> str:
    return key[:80] if type(key) is str else show(key)


def lookup(value: Value, path: Value, variable: Value) -> Value:
    try:
        return _walk(value, path)
    except _Undefined as why:
        name = variable if type(variable) is str else show(variable)
        name = name if name.startswith("${") else f"${{{name}}}"
        raise PrimitiveFault("undefined-variable", f"`{name}` is not defined: {why}") from None


def lookup_or(value: Value, path: Value, default: Value) -> Value:
    try:
        return _walk(value, path)
    except _Undefined:
        return default


HANDLERS: dict[str, Callable[..., Value]] = {
    "list": make_list,
    "map": make_map,
    "get": get,
    "put": put,
    "without_nulls": without_nulls,
    "is_null": is_null,
    "select": select,
    "not": negate,
    "and": conjunction,
    "or": disjunction,
    "box": Box,
    "unbox": unbox,
    "unset_box": unset_box,
    "unbox_set": unbox_set,
    "applied": applied,
    "operate": operate,
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "min": minimum,
    "max": maximum,
    "eq": equal,
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
    "concat": concat,
    "text": text,
    "trim_newline": trim_newline,
    "tail": tail,
    "duration": duration,
    "shell_word": shell_word,
    "shell_single": shell_single,
    "shell_double": shell_double,
    "shell_heredoc": shell_heredoc,
    "shell_number": shell_number,
    "lookup": lookup,
    "lookup_or": lookup_or,
    "judge_exit": judges.judge_exit,
    "judge_numeric": judges.judge_numeric,
    "judge_contains": judges.judge_contains,
    "judge_json": judges.judge_json,
    "judge_convergence": judges.judge_convergence,
    "judge_model": judges.judge_model,
    "judge_crash": judges.judge_crash,
    "unrouted": judges.unrouted,
    "judge_fault": judges.judge_fault,
}

if HANDLERS.keys() != PRIMITIVES.keys():
    odd = ", ".join(sorted(HANDLERS.keys() ^ PRIMITIVES.keys()))
    raise AssertionError(f"primitives without code, or code without a primitive: {odd}")


def markdown() -> str:
    """The text of `spec/primitives.md`."""
    lines = [
        "# Primitives",
        "",
        "Printed from `ir/primitives.py` by `python -m llc.vm.primitives`; a test compares.",
        "",
        "A primitive computes one value from others. It touches nothing else, changes no operand and gives",
        "the same answer for the same operands. An operand that ends in `…` may stand any number of times.",
        "An operand of a wrong type is the fault `type-error`; other faults are named where they can happen.",
        f"Texts are at most {MAX_TEXT} characters long and integers have at most {MAX_BITS} bits; what would",
        "be larger is the fault `too-large`.",
        "",
        "| primitive | operands | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{row.name}` | {row.operands} | {row.doc} |" for row in PRIMITIVES.values()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
