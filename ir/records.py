"""Record classes: `frozen` and `define` of attrs, without importing attrs at the start of a command.

Type checkers see the functions of attrs. At run time, a record class whose fields have only the arguments
of `field` below is built here: attrs takes more time to import, and to generate and compile the methods of
each class, than llc needs to compile a loop. `attrs.fields`, `attrs.evolve` and the other functions of attrs
accept such a class, because attrs makes its `__attrs_attrs__` when it is first read. Other declarations
(base classes, converters, `__attrs_post_init__`, the fields of attrs) are left to attrs.

All records share one `__repr__`, `__eq__` and `__hash__`, which read the fields when they are first used and
give the same results as those of attrs.
"""

from __future__ import annotations

from operator import attrgetter
from reprlib import recursive_repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from attrs import asdict, define, evolve, field, frozen
else:

    def frozen(cls=None, *, eq=None):
        """As `attrs.frozen`, but assignment is refused by mypy, and at run time only after `freeze`.

        The guard of attrs makes construction of an object three times as slow, and a program consists of up
        to a million objects. The tests call `freeze`.

        eq: False: compare by identity. True: generate the methods, for objects that are compared often.
        """

        def declared(cls):
            made = _declare(cls, eq, {"__hash__": _hash})
            _FROZEN.append(made)
            if _IS_FREEZING:
                made.__setattr__ = _set_once
            return made

        return declared if cls is None else declared(cls)

    def define(cls=None, *, eq=None):
        """As `attrs.define`."""

        def declared(cls):
            return _declare(cls, eq, {"__hash__": None})

        return declared if cls is None else declared(cls)

    def field(**settings):
        """As `attrs.field`, with the arguments default, factory, kw_only, repr and eq."""
        return _Field(**settings)

    def evolve(record, **changes):
        """As `attrs.evolve`: a copy with other values in these fields."""
        for name in _fields(type(record)):
            if name not in changes:
                changes[name] = getattr(record, name)
        return type(record)(**changes)

    def asdict(record):
        """As `attrs.asdict`: the fields by name, with records inside as dicts and tuples as lists."""
        return {name: _plain(getattr(record, name)) for name in _fields(type(record))}


__all__ = ["asdict", "define", "evolve", "field", "freeze", "frozen"]

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


# --- declaration ------------------------------------------------------------------------------

_NOTHING: Any = object()


class _Field:
    """A field of a record; the attributes are those of an attribute of attrs."""

    def __init__(
        self,
        default: Any = _NOTHING,
        factory: Callable[[], Any] | None = None,
        kw_only: bool = False,
        repr: bool = True,
        eq: bool | Callable[[Any], Any] = True,
    ) -> None:
        self.default = default
        self.factory = factory
        self.kw_only = kw_only
        self.repr = repr
        self.eq = eq is not False
        self.eq_key = eq if callable(eq) else None


def _declare(cls: type, eq: bool | None, hashing: dict[str, Any]) -> type:
    own = vars(cls)
    shared = {"__repr__": _repr, **({} if eq is False else {"__eq__": _equal, **hashing})}
    missing = {name: method for name, method in shared.items() if name not in own}
    fields = _light_fields(cls)
    if fields is None:
        import attrs  # start-up time: other records need it only for its functions

        for name, method in missing.items():
            setattr(cls, name, method)
        made: type = attrs.define(cls, repr=False, eq=False)
        return made
    left_out = {*fields, "__dict__", "__weakref__"}
    content = {
        **{name: value for name, value in own.items() if name not in left_out},
        **missing,
        "__init__": _first_init,
        "__slots__": tuple(fields),
        "__match_args__": tuple(name for name, field in fields.items() if not field.kw_only),
        "__qualname__": cls.__qualname__,
        "__record_fields__": fields,
        "__has_own_equality__": eq is True,
        "__attrs_attrs__": _Attributes(),
    }
    return type(cls)(cls.__name__, cls.__bases__, content)


def _light_fields(cls: type) -> dict[str, _Field] | None:
    """The fields of a class, or None if attrs has to build it."""
    own = vars(cls)
    if cls.__bases__ != (object,) or "__attrs_post_init__" in own or "__init__" in own:
        return None
    fields: dict[str, _Field] = {}
    for name, hint in cls.__annotations__.items():
        if "ClassVar" in str(hint):
            continue
        value = own.get(name, _NOTHING)
        if isinstance(value, _Field):
            fields[name] = value
        elif type(value).__module__.startswith("attr."):
            return None
        else:
            fields[name] = _Field(value)
    return fields


class _Attributes:
    """`__attrs_attrs__` of a record class: the fields as attrs declares them, made when first read."""

    def __get__(self, record: object, cls: Any) -> Any:
        import attrs

        content: dict[str, Any] = {"__annotations__": cls.__annotations__, "__module__": cls.__module__}
        for name, field in cls.__record_fields__.items():
            settings = {"kw_only": field.kw_only, "repr": field.repr, "eq": field.eq_key or field.eq}
            if field.factory is not None:
                settings["factory"] = field.factory
            elif field.default is not _NOTHING:
                settings["default"] = field.default
            content[name] = attrs.field(**settings)
        made: Any = attrs.define(type(cls.__name__, (), content), slots=False, repr=False, eq=False)
        cls.__attrs_attrs__ = made.__attrs_attrs__
        return made.__attrs_attrs__


def _first_init(self: Any, *values: Any, **named: Any) -> None:
    """`__init__` of a record class of which no object exists: generate the function that replaces it.

    Most commands use half of the classes that they import.
    """
    cls: Any = type(self)
    known: dict[str, Any] = {"NOTHING": _NOTHING}
    positional, keywords, lines = ["self"], ["*"], []
    for name, field in cls.__record_fields__.items():
        parameter, value = name, name
        if field.factory is not None:
            known[f"make_{name}"] = field.factory
            parameter, value = f"{name}=NOTHING", f"make_{name}() if {name} is NOTHING else {name}"
        elif field.default is not _NOTHING:
            known[f"default_{name}"] = field.default
            parameter = f"{name}=default_{name}"
        (keywords if field.kw_only else positional).append(parameter)
        lines.append(f" self.{name} = {value}\n")
    parameters = ", ".join(positional + keywords if len(keywords) > 1 else positional)
    text = f"def __init__({parameters}):\n{''.join(lines) or ' pass'}\n"
    if cls.__has_own_equality__:
        names = [name for name, field in cls.__record_fields__.items() if field.eq]
        text += (
            "def __eq__(self, other):\n if other.__class__ is not self.__class__: return NotImplemented\n"
            f" return {' and '.join(f'self.{name} == other.{name}' for name in names)}\n"
            f"def __hash__(self): return hash(({''.join(f'self.{name}, ' for name in names)}))\n"
        )
    exec(text, known)
    for name in ("__init__", "__eq__", "__hash__"):
        if name in known:
            setattr(cls, name, known[name])
    self.__init__(*values, **named)


def _fields(cls: Any) -> Any:
    """The fields of a record class by name."""
    found = vars(cls).get("__record_fields__")
    return {field.name: field for field in cls.__attrs_attrs__} if found is None else found


# --- shared methods ---------------------------------------------------------------------------


@recursive_repr("...")
def _repr(self: Any) -> str:
    cls = type(self)
    shown = (f"{name}={getattr(self, name)!r}" for name, field in _fields(cls).items() if field.repr)
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
    keys = {name: field.eq_key for name, field in _fields(cls).items() if field.eq}

    def made(record: Any) -> object:
        return tuple(
            key(getattr(record, name)) if key else getattr(record, name) for name, key in keys.items()
        )

    _COMPARED[cls] = attrgetter(*keys) if keys and not any(keys.values()) else made
    return _COMPARED[cls]


def _plain(value: Any) -> Any:
    if "__attrs_attrs__" in vars(type(value)):  # `hasattr` would import attrs
        return asdict(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items()}
    return value
