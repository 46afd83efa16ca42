"""Record classes: `attrs.frozen` and `attrs.define` with a shorter start-up time.

attrs generates and compiles the methods of each class when it is declared, and a command that compiles a
loop declares a hundred classes first. All records therefore share one `__repr__`, `__eq__` and `__hash__`,
which read the fields when they are first used and give the same results as those of attrs.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from attrs import define, frozen
else:

    def frozen(cls=None, *, eq=None, **settings):
        """As `attrs.frozen`, but assignment is refused by mypy, and at run time only after `freeze`.

        The guard of attrs makes construction of an object three times as slow, and a program consists of up
        to a million objects. The tests call `freeze`.

        eq: True where objects are compared so often that attrs should generate the methods.
        """
        settings["unsafe_hash"] = True if eq else None
        declare = _declare(attrs.define, None, eq, {"__hash__": _hash}, settings)

        def declared(cls):
            made = declare(cls)
            _FROZEN.append(made)
            if _IS_FREEZING:
                made.__setattr__ = _set_once
            return made

        return declared if cls is None else declared(cls)

    def define(cls=None, *, eq=None, **settings):
        """As `attrs.define`."""
        return _declare(attrs.define, cls, eq, {"__hash__": None}, settings)


__all__ = ["define", "freeze", "frozen"]

_FROZEN: list[type] = []
_IS_FREEZING = False


def freeze() -> None:
    """Refuse assignment to the fields of frozen records from now on (AttributeError); for tests."""
    global _IS_FREEZING
    _IS_FREEZING = True
    for cls in _FROZEN:
        cls.__setattr__ = _set_once  # type: ignore[assignment, method-assign]


def _set_once(self: object, name: str, value: object) -> None:
    """`__setattr__` of a frozen record: a field can be set only while it is unset, in `__init__`."""
    if hasattr(self, name):
        raise AttributeError(f"`{type(self).__name__}` is frozen: `{name}` cannot be set")
    object.__setattr__(self, name, value)


def _declare(
    declare: Any, cls: type | None, eq: bool | None, hashing: dict[str, Any], settings: dict[str, Any]
) -> Any:
    shared = {"__repr__": _repr, **({"__eq__": _equal, **hashing} if eq is None else {})}

    def declared(cls: type) -> type:
        own = vars(cls)
        for name in shared.keys() - own.keys():
            setattr(cls, name, shared[name])
        made: type = declare(cls, repr=False, eq=eq is True, **settings)
        return made

    return declared if cls is None else declared(cls)


@recursive_repr("...")
def _repr(self: Any) -> str:
    cls = type(self)
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in attrs.fields(cls) if field.repr)
    return f"{cls.__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


def _equal(self: Any, other: object) -> Any:
    cls = self.__class__
    if other.__class__ is not cls:
        return NotImplemented
    compared = _COMPARED.get(cls) or _compared(cls)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    cls = self.__class__
    return hash((_COMPARED.get(cls) or _compared(cls))(self))


# What of an object of a class counts where it is compared.
_COMPARED: dict[type, Callable[[Any], object]] = {}


def _compared(cls: type) -> Callable[[Any], object]:
    fields = [field for field in attrs.fields(cls) if field.eq]
    names = [field.name for field in fields]
    keys = {field.name: field.eq_key for field in fields if field.eq_key}

    def made(record: Any) -> object:
        values = ((name, getattr(record, name)) for name in names)
        return tuple(keys[name](value) if name in keys else value for name, value in values)

    _COMPARED[cls] = attrgetter(*names) if names and not keys else made
    return _COMPARED[cls]
