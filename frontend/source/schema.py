"""Schemas of YAML and JSON files: one attrs class per block, one field per key.

A field's metadata, made by `of` or `optional`, holds its `Type` and its documentation. Everything else
derives from these classes: the reader (`schema_reader`), the JSON Schemas for editors and the tables of
the specification (`json_schema`). Loops, configuration, tools, worlds, cases and jobs are declared this
way, each in the package that uses it. Must not be in here: YAML, the keys of any particular file.

Every object knows its place in the text: `span` is the whole block, `spans[field]` the value of a key
that was given, `spans["key:" + field]` the key itself; entries of maps are `route.success`, items of
lists `steps[0]`. A block that is named by its key has the place of that key in `spans["name"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import attrs

from ...ir.records import frozen
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


def choice(*words: str) -> Type:
    """One of a few words."""
    return Type("choice", choices=words)


def block(cls: type[Any]) -> Type:
    """A nested block."""
    return Type("spec", specs=(cls,))


def of(type: Type, doc: str) -> dict[str, Any]:
    """Metadata of a field that is a key of the file."""
    return {"type": type, "doc": doc}


def required(type: Type, doc: str) -> Any:
    """A field that is a key which must be given."""
    return attrs.field(metadata=of(type, doc))


def optional(type: Type, doc: str, default: Any = None, *, factory: Callable[[], Any] | None = None) -> Any:
    """A field that is a key which may be absent."""
    return attrs.field(default=attrs.Factory(factory) if factory else default, metadata=of(type, doc))


@frozen(kw_only=True)
class Spec:
    """A block of a document. `flawed`: part of it could not be read, and was reported."""

    # Whether the block is an entry of a map and takes its name from the key.
    keyed: ClassVar[bool] = False
    # Keys at least one of which is required.
    any_of: ClassVar[tuple[str, ...]] = ()
    # The term for such a block in messages; empty: its path in the document.
    noun: ClassVar[str] = ""

    span: Span | None = attrs.field(default=None, eq=False, repr=False)
    spans: Mapping[str, Span] = attrs.field(factory=dict, eq=False, repr=False)
    flawed: bool = attrs.field(default=False, eq=False, repr=False)

    def span_of(self, *keys: str) -> Span | None:
        """The place of the first of `keys` that was given, else of the whole block."""
        for key in keys:
            if key in self.spans:
                return self.spans[key]
        return self.span

    def is_given(self, key: str) -> bool:
        """Whether the document contains the key."""
        return f"key:{key}" in self.spans


class Field(NamedTuple):
    """A key of a block."""

    type: Type
    required: bool
    doc: str


_tables: dict[type[Spec], dict[str, Field]] = {}
_needed: dict[type[Spec], frozenset[str]] = {}


def fields_of(cls: type[Spec]) -> dict[str, Field]:
    """The keys that a block may have, in the order of their declaration."""
    table = _tables.get(cls)
    if table is None:
        table = _tables[cls] = {
            field.name: Field(field.metadata["type"], field.default is attrs.NOTHING, field.metadata["doc"])
            for field in attrs.fields(cls)
            if "type" in field.metadata
        }
    return table


def required_of(cls: type[Spec]) -> frozenset[str]:
    """The keys that a block must have."""
    known = _needed.get(cls)
    if known is None:
        known = _needed[cls] = frozenset(key for key, field in fields_of(cls).items() if field.required)
    return known
