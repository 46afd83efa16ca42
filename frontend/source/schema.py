"""Schemas of YAML and JSON files: one class per block (`Spec`), one field per key.

A field, made by `required` or `optional`, holds its `Type` and its documentation. Everything else
derives from these classes: the reader (`schema_reader`), the JSON Schemas for editors and the tables of
the specification (`json_schema`). Loops, configuration, tools, worlds, cases and jobs are declared this
way, each in the package that uses it. Must not be in here: YAML, the keys of any particular file.

A `Spec` is no class of attrs: a command that reads a loop declares forty of them first, with 400 fields, and
attrs would take more than 10 ms to generate their methods.

Every object knows its place in the text: `span` is the whole block, `spans[field]` the value of a key
that was given, `spans["key:" + field]` the key itself; entries of maps are `route.success`, items of
lists `steps[0]`. A block that is named by its key has the place of that key in `spans["name"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from ...ir.spans import Span

# 30 years: longer waits are typing errors, and would overflow the clocks below us.
MAX_SECONDS = 1e9
MAX_NAME = 200


class Type(NamedTuple):
    """What the value of a field may be.

    kind:
        text, template (text with `${…}`), target (a state's name or a template),
        scalar (a text, or a number or word that is taken as one), integer, number,
        measure (a number or a template), boolean, choice, json (any value), list, map,
        spec (a block), tagged (a block whose `tag` key selects one of `specs`),
        either (one of `options`, selected by whether the value is a scalar, a list or a mapping; among
        several blocks by which of their required keys is given),
        node (any value; the class that declares it reads the tree itself).
    item: type of a list's items or of a map's values.
    specs: the classes that a block may be.
    least, most, above: bounds of a number, `above` being exclusive; `least` of a text, list or map
        is its least length, `most` the greatest.
    pattern: a regular expression that matches the whole text; `says` describes it in words.
    hint: the remedy to offer where a value does not fit.
    nullable: whether the value may be left empty, which reads as None.
    partial: whether an item that cannot be read leaves the others of a list or map as they are.
    """

    kind: str
    item: Type | None = None
    specs: tuple[type[Any], ...] = ()
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    options: tuple[Type, ...] = ()
    tag: str = ""
    pattern: str = ""
    says: str = ""
    hint: str | None = None
    nullable: bool = False
    partial: bool = False


TEXT = Type("text", least=1)
NAME = Type("text", least=1, most=MAX_NAME)
TEMPLATE = Type("template", least=1)
TARGET = Type("target", least=1)
SCALAR = Type("scalar")
BOOLEAN = Type("boolean")
JSON = Type("json")
MEASURE = Type("measure")
COUNT = Type("integer", least=1, most=1e12)
DURATION = Type("number", above=0, most=MAX_SECONDS)
PAUSE = Type("number", least=0, most=MAX_SECONDS)
EXIT_CODES = Type("list", Type("integer", least=0, most=255))
# The arguments of a call: positional or by name.
ARGUMENTS = Type("either", options=(Type("list", JSON), Type("map", JSON)), says="a list or a mapping")
VARIABLE = Type(
    "text",
    pattern="[A-Za-z_][A-Za-z0-9_]*",
    says="the name of an environment variable",
    hint="write the variable's name here, never its value",
)


# The default of a field that has none.
MISSING: Any = object()


def choice(*words: str) -> Type:
    """One of a few words."""
    return Type("choice", choices=words)


def block(cls: type[Any]) -> Type:
    """A nested block."""
    return Type("spec", specs=(cls,))


class Field(NamedTuple):
    """A field of a block. type: None if it is no key of the file.

    default: its value if it is not given; `MISSING`: it must be. factory: makes the default of each block.
    is_compared: whether it counts where two blocks are compared.
    """

    type: Any = None
    doc: str = ""
    default: Any = MISSING
    factory: Callable[[], Any] | None = None
    is_compared: bool = True

    @property
    def required(self) -> bool:
        return self.default is MISSING and self.factory is None


def required(type: Type, doc: str) -> Any:
    """A field that is a key which must be given."""
    return Field(type, doc)


def optional(type: Type, doc: str, default: Any = None, *, factory: Callable[[], Any] | None = None) -> Any:
    """A field that is a key which may be absent."""
    return Field(type, doc, MISSING if factory else default, factory)


def internal(default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """A field that is no key of the file, and that is not compared."""
    return Field(None, "", default, factory, False)


# Of a field without a value in the class: it must be given, and is no key.
_BARE = Field()


# `optional` and `internal` are not listed: the type checker then takes any value of a field for a default.
@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(required,))
class Block:
    """Fields of classes as they are declared, and of their objects, which are frozen: the base of `Spec`."""

    # All fields by name; those that are keys; those that must be given; those with a factory.
    _all: ClassVar[dict[str, Field]] = {}
    _keys: ClassVar[dict[str, Field]] = {}
    _required: ClassVar[frozenset[str]] = frozenset()
    _made: ClassVar[dict[str, Callable[[], Any]]] = {}

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        fields = dict(cls._all)
        for name, annotation in own.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            fields.pop(name, None)
            field = fields[name] = own.get(name, _BARE)
            if field.default is not MISSING:
                setattr(cls, name, field.default)  # unless an object has another
            elif name in own:
                delattr(cls, name)
        cls._all = fields
        cls._keys = {name: field for name, field in fields.items() if field.type is not None}
        cls._required = frozenset(name for name, field in fields.items() if field.required)
        cls._made = {name: field.factory for name, field in fields.items() if field.factory is not None}

    def __init__(self, **values: Any) -> None:
        fields = self.__dict__
        fields.update(values)
        for name, factory in self._made.items():
            if name not in fields:
                fields[name] = factory()
        if not (fields.keys() <= self._all.keys() and self._required <= fields.keys()):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self._all)}")

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields replaced."""
        return type(self)(**{name: getattr(self, name) for name in self._all} | changes)

    def properties(self) -> dict[str, Any]:
        """The values that count where two blocks are compared, by field."""
        return {name: getattr(self, name) for name, field in self._all.items() if field.is_compared}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"`{type(self).__name__}` is frozen: `{name}` cannot be set")

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.properties().items())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block) or other.__class__ is not self.__class__:
            return NotImplemented
        return self.properties() == other.properties()

    def __hash__(self) -> int:
        return hash(tuple(self.properties().values()))


class Spec(Block):
    """A block of a document. `flawed`: part of it could not be read, and was reported."""

    # Whether the block is an entry of a map and takes its name from the key.
    keyed: ClassVar[bool] = False
    # Keys at least one of which is required.
    any_of: ClassVar[tuple[str, ...]] = ()
    # The term for such a block in messages; empty: its path in the document.
    noun: ClassVar[str] = ""

    span: Span | None = internal(None)
    spans: Mapping[str, Span] = internal(factory=dict)
    flawed: bool = internal(False)

    def span_of(self, *keys: str) -> Span | None:
        """The place of the first of `keys` that was given, else of the whole block."""
        for key in keys:
            if key in self.spans:
                return self.spans[key]
        return self.span

    def is_given(self, key: str) -> bool:
        """Whether the document contains the key."""
        return f"key:{key}" in self.spans


def fields_of(cls: type[Spec]) -> dict[str, Field]:
    """The keys that a block may have, in the order of their declaration."""
    return cls._keys


def required_of(cls: type[Spec]) -> frozenset[str]:
    """The keys that a block must have."""
    return cls._required & cls._keys.keys()


def values_of(spec: Spec, cls: type[Spec]) -> dict[str, Any]:
    """The values of all fields that a class of a block declares, by name."""
    return {name: getattr(spec, name) for name in cls._all}
