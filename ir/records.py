"""Record classes: the part of attrs that is used here, with a shorter start-up time.

Owns `frozen` and `define`, and `field`, `evolve`, `fields` and `asdict` for their classes. They mean what
they do in attrs: mypy takes them for its own, and what reads classes of attrs also reads these. attrs takes
half as long to import as a small loop takes to run, and generates and compiles the methods of a class when
it is declared; a command that compiles a loop declares a hundred first. Here `__init__` is generated for the
first object of a class, and the other methods read the fields.

A class is made twice, to have slots: its methods must not use `super()` without arguments.
"""

from __future__ import annotations

from operator import attrgetter
from reprlib import recursive_repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from attrs import asdict, define, evolve, field, fields, frozen
else:

    def frozen(cls=None, *, eq=True):
        """As `attrs.frozen`, but assignment is refused by mypy, and at run time only after `freeze`.

        The guard of attrs makes construction of an object three times as slow, and a program consists of up
        to a million objects. The tests call `freeze`.

        eq: False where objects are compared by their identity.
        """

        def declared(cls):
            made = _declare(cls, eq, True)
            _FROZEN.append(made)
            if _IS_FREEZING:
                made.__setattr__ = _set_once
            return made

        return declared if cls is None else declared(cls)

    def define(cls=None, *, eq=True):
        """As `attrs.define`."""
        return (lambda cls: _declare(cls, eq, False)) if cls is None else _declare(cls, eq, False)

    def field(**about):
        """As `attrs.field`; the arguments are attributes of `Field`."""
        return Field(**about)

    def fields(cls):
        """As `attrs.fields`: the fields of a class, those of its bases first."""
        return cls.__attrs_attrs__

    def evolve(record, **changes):
        """As `attrs.evolve`: a copy with other values in these fields."""
        for one in record.__attrs_attrs__:
            if one.init and one.name not in changes:
                changes[one.name] = getattr(record, one.name)
        return record.__class__(**changes)

    def asdict(record):
        """As `attrs.asdict`: a record as a dict, with the records in it, also those in its collections."""
        return {one.name: _plain(getattr(record, one.name)) for one in record.__attrs_attrs__}


__all__ = ["asdict", "define", "evolve", "field", "fields", "freeze", "frozen"]

_FROZEN: list[type] = []
_IS_FREEZING = False
_NOTHING: Any = object()


class Field:
    """A field of a record; the attributes are those of `attrs.field`.

    eq: whether it is compared, or what makes the value that is compared.
    """

    __slots__ = ("alias", "default", "eq", "factory", "init", "kw_only", "name", "repr")

    def __init__(
        self,
        *,
        default: Any = _NOTHING,
        factory: Any = None,
        kw_only: bool = False,
        eq: Any = True,
        repr: bool = True,
        init: bool = True,
    ) -> None:
        self.default, self.factory, self.kw_only = default, factory, kw_only
        self.eq, self.repr, self.init = eq, repr, init
        self.name = self.alias = ""


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


def _declare(cls: type, is_compared: bool, is_hashed: bool) -> type:
    own = dict(vars(cls))
    found: dict[str, Field] = {}
    for name, annotation in own.get("__annotations__", {}).items():
        if not str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            value = own.pop(name, _NOTHING)
            one = found[name] = value if isinstance(value, Field) else Field(default=value)
            one.name = one.alias = name
    before = [one for base in cls.__bases__ for one in getattr(base, "__attrs_attrs__", ())]
    taken = {one.name for one in before}
    every = (*(one for one in before if one.name not in found), *found.values())
    own["__attrs_attrs__"] = every
    own["__match_args__"] = tuple(one.name for one in every if one.init and not one.kw_only)
    own["__slots__"] = *(name for name in found if name not in taken), *(() if before else ("__weakref__",))
    own.setdefault("__repr__", _repr)
    if is_compared:
        compared = _compared(every)
        own.setdefault("__eq__", _equality(compared))
        own.setdefault("__hash__", _hashing(compared) if is_hashed else None)
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    made = type(cls)(cls.__name__, cls.__bases__, own)
    if "__init__" not in own:
        _construct_later(made)
    return made


def _construct_later(cls: Any) -> None:
    def __init__(self: Any, *values: Any, **named: Any) -> None:
        if cls.__init__ is __init__:
            cls.__init__ = _constructor(cls)
        cls.__init__(self, *values, **named)

    cls.__init__ = __init__


def _constructor(cls: Any) -> Any:
    """The function that fills the fields of a new object."""
    names: dict[str, Any] = {"NOTHING": _NOTHING}
    arguments: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for number, one in enumerate(cls.__attrs_attrs__):
        value = one.name
        argument = one.name
        if one.factory is not None:
            names[f"F{number}"] = one.factory
            argument += "=NOTHING"
            value = f"F{number}() if {one.name} is NOTHING else {one.name}" if one.init else f"F{number}()"
        elif one.default is not _NOTHING:
            names[f"D{number}"] = one.default
            argument += f"=D{number}"
        if one.init:
            arguments[one.kw_only].append(argument)
        elif one.factory is None:
            continue
        lines.append(f" self.{one.name} = {value}\n")
    if hasattr(cls, "__attrs_post_init__"):
        lines.append(" self.__attrs_post_init__()\n")
    last = ["*", *arguments[True]] if arguments[True] else []
    head = ", ".join(["self", *arguments[False], *last])
    exec(f"def __init__({head}):\n{''.join(lines) or ' pass'}", names)
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _plain(value: Any) -> Any:
    if hasattr(value, "__attrs_attrs__"):
        return asdict(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


@recursive_repr("...")
def _repr(self: Any) -> str:
    cls = type(self)
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in cls.__attrs_attrs__ if one.repr)
    return f"{cls.__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


def _equality(compared: Callable[[Any], object]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hashing(compared: Callable[[Any], object]) -> Callable[[Any], int]:
    return lambda self: hash(compared(self))


def _compared(every: tuple[Field, ...]) -> Callable[[Any], object]:
    """What of an object with these fields counts where it is compared."""
    names = [one.name for one in every if one.eq]
    keys = {one.name: one.eq for one in every if callable(one.eq)}
    if names and not keys:
        return attrgetter(*names)

    def made(record: Any) -> object:
        values = ((name, getattr(record, name)) for name in names)
        return tuple(keys[name](value) if name in keys else value for name, value in values)

    return made
