"""Records without attrs, for the modules that a run of a compiled image imports.

attrs and `typing` take longer to import than such a run takes. A record here is mutable and has no generated
code: one `__init__` fills the fields of every class.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_):
        return lambda cls: cls


def field(*, factory: Callable[[], T]) -> T:
    """A field whose default value is made for each record, such as a list."""
    return _Made(factory)  # type: ignore[return-value]


class _Made:
    def __init__(self, factory: Callable[[], object]) -> None:
        self.factory = factory


@dataclass_transform(field_specifiers=(field,))
class LightRecord:
    """Fields are the annotated names of a class, in this order; a value in the class is the default."""

    field_names: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()
    _made: ClassVar[dict[str, Callable[[], object]]] = {}

    def __init_subclass__(cls) -> None:
        cls.field_names = (*cls.field_names, *vars(cls).get("__annotations__", ()))
        cls._names = frozenset(cls.field_names)
        own = {name: value.factory for name, value in vars(cls).items() if isinstance(value, _Made)}
        cls._made = {**cls._made, **own}

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self.__dict__
        for name, factory in self._made.items():
            fields[name] = factory()
        if values:
            fields.update(zip(self.field_names, values, strict=False))
        fields.update(named)
        if len(values) > len(self.field_names) or not named.keys() <= self._names:
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self.field_names)}")

    def evolve(self, **named: Any) -> Self:
        """A copy with other values in these fields."""
        made = self.__class__.__new__(self.__class__)
        made.__dict__.update(self.__dict__, **named)
        return made

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name, None)!r}" for name in self.field_names)
        return f"{type(self).__name__}({shown})"
