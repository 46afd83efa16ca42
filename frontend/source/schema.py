"""Schemas of YAML and JSON files: one class per block (`Spec`), one field per key.

A field is created by `required` or `optional` and holds its `Type` and its documentation. Everything else
derives from these classes: the reader (`schema_reader`), the JSON Schemas for editors (`json_schema`) and the
tables of the specification. Loops, configuration, tools, worlds, cases and jobs are declared this way, each
in the package that uses it. Must not contain: YAML, or the keys of any particular file.

A `Spec` is not an attrs class: a command that reads a loop first declares 40 of them with 400 fields, and
attrs would take more than 10 ms to generate their methods.

Every object knows its position in the text. `span` is the whole block. `spans[field]` is the value of a given
key, `spans["key:" + field]` the key itself. Entries of maps have names such as `route.success`, items of
lists such as `steps[0]`. The name of a block that is an entry of a map has the key's span in `spans["name"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from ...ir.spans import Span

# 30 years. A longer wait is a typing error, and would overflow the clocks of the operating system.
MAX_SECONDS = 1e9
MAX_NAME = 200


class Type(NamedTuple):
    """Type of the values of a field.

    kind:
        text, template (text with `${…}`), target (the name of a state, or a template),
        scalar (a text; a number or boolean is read as its text), integer, number,
        measure (a number or a template), boolean, choice, json (any value), list, map,
        spec (a block), tagged (a block whose `tag` key selects one of `specs`),
        either (one of `options`: a scalar, a list or a mapping selects the option of that form; a required
        key
        selects one of several blocks),
        node (any value; the class that declares the field reads the tree itself).
    item: type of the items of a list or of the values of a map.
    specs: the classes of a block.
    least, most, above: bounds of a number, `above` being exclusive; for a text, list or map, `least` and
        `most` bound its length.
    pattern: regular expression that must match the whole text. expected: the type in words, for messages.
    hint: help for a value that does not fit.
    nullable: an empty value is allowed and reads as None.
    partial: an invalid item of a list or map is left out, and the others are kept.
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
    expected: str = ""
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
# Arguments of a call: positional, or by name.
ARGUMENTS = Type("either", options=(Type("list", JSON), Type("map", JSON)), expected="a list or a mapping")
VARIABLE = Type(
    "text",
    pattern="[A-Za-z_][A-Za-z0-9_]*",
    expected="the name of an environment variable",
    hint="write the variable's name here, never its value",
)


# Marks a field that has no default.
MISSING: Any = object()


def choice(*words: str) -> Type:
    """The type of a text that is one of `words`."""
    return Type("choice", choices=words)


def block(cls: type[Any]) -> Type:
    """The type of a nested block."""
    return Type("spec", specs=(cls,))


class Field(NamedTuple):
    """A field of a block.

    type: None if the field is not a key of the file.
    default: value if the key is absent; `MISSING` makes the key required.
    factory: creates the default value of each object.
    is_compared: whether the field takes part in comparisons of two blocks.
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
    """Declare a required key."""
    return Field(type, doc)


def optional(type: Type, doc: str, default: Any = None, *, factory: Callable[[], Any] | None = None) -> Any:
    """Declare an optional key."""
    return Field(type, doc, MISSING if factory else default, factory)


def internal(default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """Declare a field that is not a key of the file and is not compared."""
    return Field(None, "", default, factory, False)


# Field of an annotation without a value: a required constructor argument that is not a key.
_CONSTRUCTOR_ARGUMENT = Field()


# `optional` and `internal` are not listed: the type checker then takes any value of a field as a default.
@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(required,))
class Block:
    """Base of `Spec`: collects the declared fields of a class. Objects are frozen."""

    # Fields by name: all of them, those that are keys, the required ones, and those with a factory.
    _all: ClassVar[dict[str, Field]] = {}
    _keys: ClassVar[dict[str, Field]] = {}
    _required: ClassVar[frozenset[str]] = frozenset()
    _factories: ClassVar[dict[str, Callable[[], Any]]] = {}

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        fields = dict(cls._all)
        for name, annotation in own.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            fields.pop(name, None)
            field = fields[name] = own.get(name, _CONSTRUCTOR_ARGUMENT)
            if field.default is not MISSING:
                setattr(cls, name, field.default)  # class attribute as the default of each object
            elif name in own:
                delattr(cls, name)
        cls._all = fields
        cls._keys = {name: field for name, field in fields.items() if field.type is not None}
        cls._required = frozenset(name for name, field in fields.items() if field.required)
        cls._factories = {name: field.factory for name, field in fields.items() if field.factory is not None}

    def __init__(self, **values: Any) -> None:
        fields = self.__dict__
        fields.update(values)
        for name, factory in self._factories.items():
            if name not in fields:
                fields[name] = factory()
        if not (fields.keys() <= self._all.keys() and self._required <= fields.keys()):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self._all)}")

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced."""
        return type(self)(**{name: getattr(self, name) for name in self._all} | changes)

    def properties(self) -> dict[str, Any]:
        """The compared values, by field."""
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
    """A block of a document. `flawed`: a part of it was invalid, and was reported."""

    # Whether the block is an entry of a map and is named by its key.
    keyed: ClassVar[bool] = False
    # Keys of which at least one is required.
    any_of: ClassVar[tuple[str, ...]] = ()
    # Term for such a block in messages; if empty, messages use its path in the document.
    noun: ClassVar[str] = ""

    span: Span | None = internal(None)
    spans: Mapping[str, Span] = internal(factory=dict)
    flawed: bool = internal(False)

    def span_of(self, *keys: str) -> Span | None:
        """The span of the first given key of `keys`, or else of the whole block."""
        for key in keys:
            if key in self.spans:
                return self.spans[key]
        return self.span

    def is_given(self, key: str) -> bool:
        """Whether the document contains the key."""
        return f"key:{key}" in self.spans


def fields_of(cls: type[Spec]) -> dict[str, Field]:
    """The keys of a block with their fields, in the order of declaration."""
    return cls._keys


def required_of(cls: type[Spec]) -> frozenset[str]:
    """The required keys of a block."""
    return cls._required & cls._keys.keys()


def values_of(spec: Spec, cls: type[Spec]) -> dict[str, Any]:
    """The values of all fields that `cls` declares, by name."""
    return {name: getattr(spec, name) for name in cls._all}
