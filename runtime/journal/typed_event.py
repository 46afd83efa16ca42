"""Typed event: the JSON object of a journal line, with declared fields.

Owns the base class of the kinds that `events` declares. An `Event` keeps the object (`wire`) and checks a
field when it is read. A journal is untrusted input, so a field with a value of another type reads as its
empty value. Must not contain: kinds.
"""

from __future__ import annotations

from .codec import KIND, RESERVED, TIME, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar, dataclass_transform

    # A written event: kind, fields, timestamp, and position of its line in bytes.
    Written = tuple[str, dict[str, Any], str, int]
    E = TypeVar("E", bound="Event")
else:
    Written = tuple

    def dataclass_transform(**_):
        return lambda cls: cls


# Numbers that are not smaller are invalid in a journal.
LARGEST = 1e15


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


# Default of an optional field: the field is omitted from the line.
ABSENT: Any = _Absent()
_EMPTY: dict[str, Any] = {"int": int, "float": float, "str": str, "dict": dict, "list": list, "bool": bool}


def _types(annotation: str) -> tuple[frozenset[type], Callable[[], Any] | None]:
    """Return the types that an annotation accepts, and the constructor of the empty value or None."""
    names = [part.strip().partition("[")[0] for part in annotation.split(" | ")]
    accepted = {_EMPTY[name] for name in names if name in _EMPTY}
    if float in accepted:
        accepted.add(int)
    return frozenset(accepted), _EMPTY.get(names[0]) if "None" not in names else None


# Cache of `_types`.
_TYPES: dict[str, tuple[frozenset[type], Callable[[], Any] | None]] = {}


class Field(property):
    """Field of an event: its value on the line if it has a declared type, otherwise the empty value."""

    def __init__(self, name: str, annotation: str, is_optional: bool) -> None:
        self.wire_name = name.rstrip("_")
        self.is_optional = is_optional
        types = _TYPES.get(annotation)
        if types is None:
            types = _TYPES[annotation] = _types(annotation)
        super().__init__(_reader(self.wire_name, *types))


def _reader(name: str, accepted: frozenset[type], empty: Callable[[], Any] | None) -> Callable[[Event], Any]:
    """Return a getter for a field with as few checks as possible: a step reads some twenty fields."""

    def read(event: Event) -> Any:
        value: Any = event.wire.get(name)
        return value if value.__class__ in accepted else None if empty is None else empty()

    def read_number(event: Event) -> Any:
        value: Any = event.wire.get(name)
        kind = value.__class__
        if kind in accepted and ((kind is not int and kind is not float) or -LARGEST < value < LARGEST):
            return value
        return None if empty is None else empty()

    if not accepted:  # declared as Any
        return lambda event: event.wire.get(name)
    return read_number if int in accepted else read


# All kinds by wire name.
KINDS: dict[str, type[Event]] = {}


@dataclass_transform(kw_only_default=True)
class Event:
    """Event of a journal.

    offset: position of its line in bytes. line: number of the line. ts: timestamp; "" if absent.

    Subclasses declare fields as annotated names; the default ABSENT marks an optional field. A trailing `_`
    is not part of the wire name.
    """

    __slots__ = ("line", "offset", "ts", "wire")

    name = ""
    by = "driver"
    fields: Mapping[str, Field]
    # Wire names of fields whose attribute has another name, including fields of base classes.
    _renamed: Mapping[str, str] = {}
    # Whether values of the constructor may be ABSENT or have another wire name.
    _is_selective = False

    def __init_subclass__(cls, name: str = "") -> None:
        own = cls.__dict__
        cls.fields = fields = {}
        cls._renamed = renamed = {**cls._renamed}
        for field, annotation in own.get("__annotations__", {}).items():
            descriptor = Field(field, annotation, own.get(field) is ABSENT)
            setattr(cls, field, descriptor)
            fields[descriptor.wire_name] = descriptor
            if field != descriptor.wire_name:
                renamed[field] = descriptor.wire_name
            if descriptor.is_optional or renamed:
                cls._is_selective = True
        if name:
            cls.name = name
            KINDS[name] = cls

    def __init__(self, **values: Any) -> None:
        if self._is_selective:
            names = self._renamed
            values = {names.get(name, name): value for name, value in values.items() if value is not ABSENT}
        self.wire: dict[str, Any] = values
        self.ts = ""
        self.offset = self.line = 0

    @classmethod
    def of(cls: type[E], wire: dict[str, Any], offset: int = 0, line: int = 0) -> E:
        """Return an event of this kind for the object of a line."""
        event = cls.__new__(cls)
        ts = wire.get(TIME)
        event.ts = ts if ts.__class__ is str else ""
        event.wire, event.offset, event.line = wire, offset, line
        return event

    @property
    def kind_name(self) -> str:
        """Kind on the line; for `Unlisted` it is not in the table."""
        return self.name

    @property
    def moment(self) -> float | None:
        """Timestamp in seconds since 1970; None if absent or invalid."""
        return seconds(self.ts)

    @property
    def active_ms(self) -> int | None:
        """Active time of the run so far in milliseconds; None if the event does not contain it."""
        return None

    def own_fields(self) -> dict[str, Any]:
        """Return the fields of the kind as on the line, without the fields that every line has."""
        return {name: value for name, value in self.wire.items() if name not in RESERVED}


def line_head(kind: type[Event]) -> bytes:
    """Return the beginning of each line of a kind."""
    return b'{"%b":"%b",' % (KIND.encode(), kind.name.encode())
