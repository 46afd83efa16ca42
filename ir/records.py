"""How classes of records are declared: `attrs.frozen` and `attrs.define`, and less to wait for.

attrs writes and compiles the methods of each class when it is declared, and a command that compiles a
loop declares a hundred of them before it does anything. So all share one `__repr__`, `__eq__` and
`__hash__`, which ask attrs for the fields when they are first used; they say what attrs' would.
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
        """As `attrs.frozen`, but it is mypy that sees to it: past attrs' own guard, to make an object takes
        three times as long, and a program is a million of them.

        eq: True where objects are compared so often that attrs had better write it.
        """
        settings["unsafe_hash"] = True if eq else None
        return _declare(attrs.define, cls, eq, {"__hash__": _hash}, settings)

    def define(cls=None, *, eq=None, **settings):
        """As `attrs.define`."""
        return _declare(attrs.define, cls, eq, {"__hash__": None}, settings)


__all__ = ["define", "frozen"]


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
